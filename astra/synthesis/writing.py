"""Has a model write the parts of tools, checks them, and asks again with what was wrong; failed tries are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from astra.llm import Completion, ModelParams, Request, RequestRefused
from astra.llm.reply import ReplyInvalid
from astra.records import Answer, Message, ToolTry
from astra.sandbox import Pool, Result
from astra.stage import Watch, unwatched
from astra.synthesis import tryout
from astra.synthesis.code import NoCode, extract_code, without_table
from astra.synthesis.documents import Document
from astra.synthesis.lost import Lost
from astra.synthesis.rows import Row
from astra.synthesis.tryout import Case

T = TypeVar("T")
Reader = Callable[[Completion], T]
Part = Literal["code", "merge"]


class Asks(Protocol):
    """What is needed of a client."""

    def stream(self, requests: Iterable[Request]) -> Iterator[Completion | RequestRefused]: ...

    def read_all(self, asked: Iterable[tuple[Request, Reader[T]]], reasks: int = 1) -> Iterator[T | RequestRefused]: ...


class Wanted(NamedTuple):
    """One reply that is wanted: what it is about, its prompt, and what reads it."""

    about: str
    prompt: str
    read: Callable[[str], Any]


@dataclass
class Order:
    """One function that is to be written, and the data that it must serve without its writer seeing them.

    ``functions`` holds for every case the program that serves it; none where no try did.
    """

    about: str
    part: Part
    document: Document
    answer: Answer
    examples: list[Row]
    cases: list[Case]
    prompt: str
    messages: tuple[Message, ...] = ()
    functions: list[str | None] = field(default_factory=list)
    reason: str = "code_failed"
    trouble: str = ""

    @property
    def served(self) -> int:
        return sum(one is not None for one in self.functions)

    @property
    def is_done(self) -> bool:
        return self.served == len(self.cases)


@dataclass
class Writer:
    """A model that writes parts of tools, and the sandbox in which they are tried."""

    client: Asks
    model: ModelParams
    seed: int
    pool: Pool
    max_tries: int
    tries: list[ToolTry] = field(default_factory=list)
    n_written: int = 0
    watch: Watch = unwatched

    def asked(self, part: str, wanted: Iterable[Wanted], schema: dict[str, Any]) -> dict[str, Any]:
        """What the replies hold, or a Lost, by what they are about; each is asked for once."""
        distinct = list({one.about: one for one in wanted}.values())
        pairs = [
            (replace(self._request((Message(role="user", content=one.prompt),), 0), json_schema=schema),
             self._noting(part, one))
            for one in distinct
        ]  # fmt: skip
        replies = self.watch(self.client.read_all(pairs, self.max_tries - 1), len(pairs), part)
        return {
            one.about: Lost(*_refusal(part, reply)) if isinstance(reply, RequestRefused) else reply
            for one, reply in zip(distinct, replies, strict=True)
        }

    def write(self, orders: Sequence[Order]) -> None:
        """Have every function written, tried and written again, until it serves all its cases or tries run out."""
        for number in range(1, self.max_tries + 1):
            self._write([one for one in orders if not one.is_done], number)

    def _noting(self, part: str, one: Wanted) -> Reader[Any]:
        """The reader, which keeps the tries that it cannot use."""
        number = 0

        def read(reply: Completion) -> Any:
            nonlocal number
            number += 1
            try:
                return one.read(reply.content or "")
            except ReplyInvalid as why:
                about, said = one.about, reply.content or ""
                self.tries.append(ToolTry.model_validate(
                    {"about": about, "part": part, "number": number, "trouble": str(why), "reply": said}
                ))  # fmt: skip
                raise

        return read

    def _request(self, messages: tuple[Message, ...], sample: int) -> Request:
        return Request(model=self.model, messages=messages, seed=self.seed, sample=sample)

    # ------------------------------------------------------------ functions

    def _write(self, orders: Sequence[Order], number: int) -> None:
        """Write each function once more, and try it."""
        requests = [self._request(_messages(one), number - 1) for one in orders]
        replies = list(self.watch(self.client.stream(requests), len(requests), "function"))
        written = []
        for one, reply in zip(orders, replies, strict=True):
            if isinstance(reply, RequestRefused):
                one.reason = reply.reason
                self._failed(one, number, reply.detail, "")
            elif reply.finish_reason == "length":
                self._failed(one, number, "the reply is cut; write a shorter program", reply.content or "")
            else:
                try:
                    code = without_table(extract_code(reply.content or "", one.document.name))
                    written.append((one, code))
                except NoCode as why:
                    self._failed(one, number, str(why), reply.content or "")
        self.n_written += len(written)
        for one, code in self._sound(written, number):
            self._serve(one, code, number)

    def _sound(self, written: Sequence[tuple[Order, str]], number: int) -> list[tuple[Order, str]]:
        """The functions that do on their example rows what their documents promise."""
        calls = [tryout.example_calls(one.document, one.examples, one.answer) for one, _ in written]
        jobs = [
            tryout.job(code, one.document, one.examples, [call.arguments for call in some])
            for (one, code), some in zip(written, calls, strict=True)
        ]
        sound = []
        for (one, code), some, results in zip(written, calls, self.pool.map(jobs), strict=True):
            wrong = tryout.trouble(one.document, one.examples, some, results)
            if wrong is None:
                sound.append((one, code))
            else:
                self._failed(one, number, wrong, code)
        return sound

    def _serve(self, order: Order, code: str, number: int) -> None:
        """Try a function on the data of every case; the one that serves most is kept."""
        plain = _flat(self.pool.map(tryout.golden_jobs(code, order.document, order.cases)))
        swapped = _flat(self.pool.map(tryout.swapped_jobs(code, order.document, order.cases)))
        wrong = tryout.hidden_troubles(order.document, order.cases, plain, swapped)
        functions = [code if one is None else None for one in wrong]
        if functions.count(code) > order.served:
            order.functions = functions
        if None in functions:
            self._failed(order, number, next(one for one in wrong if one is not None), code)

    def _failed(self, order: Order, number: int, trouble: str, said: str) -> None:
        """Keep a failed try, and what its writer is told."""
        self.tries.append(ToolTry(about=order.about, part=order.part, number=number, trouble=trouble, reply=said))
        order.trouble = trouble
        order.reason = "code_failed" if said else order.reason
        text = f"This does not work: {trouble}. Reply with the whole corrected program."
        order.messages = (Message(role="assistant", content=said), Message(role="user", content=text)) if said else ()


def in_order(tries: Iterable[ToolTry]) -> list[ToolTry]:
    """Failed tries in an order that does not depend on which reply came first."""
    return sorted(tries, key=lambda one: (one.part, one.about, one.number))


def _messages(order: Order) -> tuple[Message, ...]:
    return (Message(role="user", content=order.prompt), *order.messages)


def _flat(results: Iterable[Sequence[Result]]) -> list[Result]:
    return [one for some in results for one in some]


def _refusal(part: str, refused: RequestRefused) -> tuple[str, str]:
    """Reason and detail of a reject."""
    return (f"{part}_invalid" if refused.reason == "reply_invalid" else refused.reason, refused.detail)
