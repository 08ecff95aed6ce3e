"""The steps of a reply or a file as records: typed answers, quotations with their places, computed answers."""

from __future__ import annotations

from collections.abc import Sequence

from astra.answers import matches
from astra.decomposition.draft import StepReply, Unsound, natural
from astra.decomposition.graph import renumbered
from astra.decomposition.operations import NotComputable, computed, operands_of
from astra.decomposition.quotes import Document, located
from astra.records import Step

Hops = tuple[tuple[int, int], ...]


def steps_of(replies: Sequence[StepReply], documents: Sequence[Document]) -> tuple[tuple[Step, ...], Hops]:
    """The steps, and the hop levels that were stated. Raises Unsound for a faulty graph or quotation."""
    by_id = {one.id: one for one in documents}
    steps: list[Step] = []
    ordered = renumbered(replies)
    for one in ordered:
        step = Step(
            id=one.id,
            question=one.question,
            answer=natural(one.answer, one.unit),
            depends_on=tuple(one.depends_on),
            needs_tool=one.needs_tool,
            relation=one.relation,
            subject=one.subject,
            evidence=tuple(located(quote, by_id) for quote in one.evidence),
            operation=None if one.needs_tool else one.operation,
        )
        if one.needs_tool and one.operation is not None:
            raise Unsound("operation_with_tool", f"step {one.id} needs a tool and names {one.operation}")
        steps.append(_as_computed(step, steps))
    return tuple(steps), tuple((one.id, one.hop) for one in ordered if one.hop is not None)


def _as_computed(step: Step, before: Sequence[Step]) -> Step:
    """The step with the type and unit that its operation gives, where that is its answer."""
    if step.operation is None:
        return step
    try:
        found = computed(step.operation, operands_of(step, before))
    except NotComputable:
        return step
    return step.model_copy(update={"answer": found}) if matches(found, step.answer.value) else step
