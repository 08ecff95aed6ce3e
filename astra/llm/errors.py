"""How asking a model can end without a reply.

Exception
├── Unavailable
│   └── EndpointUnavailable   the machinery: the stage stops, finished replies stay in the cache
│       └── BudgetSpent       the same, because the budget is used up
├── Refused
│   └── RequestRefused        this request: its record is a reject with ``reason``
└── Transient                 between transport and client only: may work when asked again
"""

from __future__ import annotations

from astra.records import Refused, Unavailable


class EndpointUnavailable(Unavailable):
    """No reply is to be had from an endpoint; the message names it, the model, what it said and how to continue."""


class BudgetSpent(EndpointUnavailable):
    """The replies of a stage or a run have cost what params.yaml allows; the message says how to go on."""


class RequestRefused(Refused):
    """The endpoint is there, but answers this request with no usable reply.

    ``reason`` is one of filtered, refused, overlong, prompt_truncated, bad_request, empty_response, bad_response,
    timeout, server_error (the endpoint answers others meanwhile), reply_invalid, reply_truncated.
    """


class Transient(Exception):
    """One attempt failed.

    ``becomes`` is the RequestRefused reason after the last attempt, ``attempts`` how many this kind is worth at most.
    ``fault`` says whose it may be: the request's own (it times out, it crashes the server) or the endpoint's only.
    """

    def __init__(
        self, status: int | None, detail: str, retry_after_s: float | None = None, becomes: str | None = None,
        attempts: int | None = None, fault: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(f"status {status}: {detail}" if status is not None else detail)
        self.status = status
        self.detail = detail
        self.retry_after_s = retry_after_s
        self.becomes = becomes
        self.attempts = attempts
        self.fault = fault

    @property
    def is_pushback(self) -> bool:
        """The server asks for less."""
        return self.status in (429, 503)
