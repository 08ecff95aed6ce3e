"""Certificates for arenas, or what keeps them from one; and whether those of a written file can be repeated."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, UnknownType
from referencing import Registry
from referencing.exceptions import Unresolvable

from astra.certificate.agents import payments, solving
from astra.certificate.cache import Kept
from astra.certificate.checks import CHECKS
from astra.certificate.trials import UNKNOWN, Tried, tried
from astra.certificate.variants import rebuilt, refusing, withheld
from astra.environments.arena import forget, refusal
from astra.records import Arena, Certificate, CodeTool, Environment, Variant, canonical
from astra.sandbox import Pool, open_pool
from astra.stage import Watch, read_records, unwatched

VALID = "documents_valid"  # a tool's schema is one, so that calls can be checked against it
BATCH = 128  # arenas tried together; what they gave is then let go


class Playable(NamedTuple):
    """What is certified: an arena as it will be played, and what was taken from it, if anything was."""

    arena: Environment
    variant: Variant | None = None


class Failures(NamedTuple):
    """The checks that failed, each with what was seen; a certificate is refused."""

    found: dict[str, str]


def playable(arena: Arena) -> Playable:
    """What is certified of an arena, as it stands in its file."""
    return Playable(arena, arena.variant)


def artifact(one: Playable) -> str:
    """The hash of what a certificate is about: everything of an arena but the certificate."""
    content: dict[str, Any] = one.arena.model_dump(mode="json", include=set(Environment.model_fields))
    content["variant"] = None if one.variant is None else one.variant.model_dump(mode="json")
    return hashlib.sha256(canonical(content).encode()).hexdigest()


def seal(certificate: Certificate) -> str:
    """The hash of the other fields of a certificate."""
    content = certificate.model_dump(mode="json", exclude={"seal"})
    return hashlib.sha256(canonical(content).encode()).hexdigest()


def certify(
    arenas: Sequence[Playable], pool: Pool, kept: Kept | None = None, watch: Watch = unwatched
) -> list[Certificate | Failures]:
    """A certificate for each arena, or what failed; from the arenas alone. Raises SandboxUnavailable.

    With ``kept``, an arena that this code certified on this backend before is not tried again.
    """
    names = [artifact(one) for one in arenas]
    found: dict[str, Certificate | Failures] = {}
    if kept is not None:
        found |= kept.get(names, pool.backend)
    missing = {name: one for name, one in zip(names, arenas, strict=True) if name not in found}
    new = iter(watch(missing.items(), len(missing), "arena"))
    while batch := dict(islice(new, BATCH)):
        outcomes = dict(zip(batch, _certified(batch, pool), strict=True))
        if kept is not None:
            kept.put([one for one in outcomes.values() if isinstance(one, Certificate)])
        found |= outcomes
    return [found[name] for name in names]


def _certified(batch: dict[str, Playable], pool: Pool) -> Iterator[Certificate | Failures]:
    forget()
    wholes = [_whole(one) for one in batch.values()]
    runs = tried([one for one in wholes if isinstance(one, Environment)], pool)
    results = iter(runs)
    for (name, one), whole in zip(batch.items(), wholes, strict=True):
        if isinstance(whole, Failures):
            yield whole
            continue
        yield _outcome(name, one, whole, next(results), pool.backend)
    forget()


def _whole(one: Playable) -> Environment | Failures:
    """What the tools are tried in: the arena, or the one that a variant was made from."""
    try:
        whole = one.arena if one.variant is None else rebuilt(one.arena, one.variant)
    except ValueError as error:
        return Failures({"withheld": str(error)})
    wrong = next((why for tool in whole.tools if (why := _invalid(tool)) is not None), None)
    return whole if wrong is None else Failures({VALID: wrong})


def _invalid(tool: CodeTool) -> str | None:
    """Why calls of a tool cannot be checked against its document; None where they can."""
    try:
        Draft202012Validator.check_schema(tool.spec.parameters)
        list(Draft202012Validator(tool.spec.parameters, registry=Registry()).iter_errors({}))
        refusal(tool, {UNKNOWN: 1})
    except (SchemaError, UnknownType, Unresolvable, AttributeError, TypeError, ValueError, RecursionError) as error:
        return f"{tool.spec.name} has no valid schema: {error}"[:300]
    return None if tool.spec.parameters.get("type") == "object" else f"{tool.spec.name} takes no object"


def _outcome(
    name: str, one: Playable, whole: Environment, runs: Sequence[Tried], backend: str
) -> Certificate | Failures:
    found = {check: why for check, shows in CHECKS.items() if (why := shows(whole, runs)) is not None}
    checks = dict.fromkeys((VALID, *CHECKS), True)
    if one.variant is not None:
        checks["withheld"] = True
        why = withheld(one.arena, one.variant)
        found |= {"withheld": why} if why else {}
    checks["payments"] = True
    paid: dict[str, float] = {}
    if not found:  # what agents are paid says something only of an arena that is otherwise sound
        agents = solving(whole, runs) if one.variant is None else refusing(one.arena, one.variant)
        paid, why = payments(one.arena, one.variant, agents, runs)
        found |= {"payments": why} if why else {}
    if found:
        return Failures(found)
    certificate = Certificate(artifact=name, checks=checks, backend=backend, payments=paid)
    return certificate.model_copy(update={"seal": seal(certificate)})


def verify(path: Path, backend: str, workers: int) -> tuple[int, list[str]]:
    """How many arenas a written file holds, and what is wrong with the certificate of each that cannot be repeated.

    Nothing that was kept is used, and every line must be the one text of its record.
    """
    wrong = []
    with open_pool(backend, workers) as pool:
        arenas = read_records(path, Arena)
        lines = path.read_bytes().split(b"\n")
        at = 0
        while batch := list(islice(arenas, BATCH)):
            outcomes = certify([playable(one) for one in batch], pool)
            for arena, outcome in zip(batch, outcomes, strict=True):
                why = _not_repeated(arena, outcome, lines[at])
                at += 1
                if why:
                    wrong.append(f"{arena.id}: {why}")
    return at, wrong


def _not_repeated(arena: Arena, outcome: Certificate | Failures, line: bytes) -> str | None:
    if isinstance(outcome, Failures):
        return str(outcome.found)
    given = arena.certificate
    if given.artifact != outcome.artifact:
        return "the certificate is of other bytes"
    if (given.checks, given.payments) != (outcome.checks, outcome.payments) or given.seal != seal(given):
        return "the certificate does not say what was shown"
    if line.decode() != json.dumps(arena.model_dump(mode="json"), ensure_ascii=False, allow_nan=False):
        return "the line is not the text of its record"
    return None
