"""The deterministic checks of a draft, in the order in which they are made; a judge is asked of what passes them.

Each is a function of the draft that raises Unsound. What the graph is like is checked before there is a draft
(``graph.renumbered``): a reply with a cycle has no steps in order.
"""

from __future__ import annotations

from collections.abc import Callable

from astra.answers import is_empty, item_of, matches, mentions, says
from astra.decomposition.draft import Draft, Unsound
from astra.decomposition.graph import check_graph, check_hops, shape_of
from astra.decomposition.languages import check_language
from astra.decomposition.operations import OPERATIONS, NotComputable, against, computed, gives, inferred, operands_of
from astra.decomposition.quotes import holds
from astra.records import Answer, Step

Check = Callable[[Draft], None]


def graph(draft: Draft) -> None:
    """No step twice, no dangling, cyclic or forward dependency, and at least one step that needs a tool."""
    check_graph([(step.id, step.question, step.depends_on) for step in draft.steps])
    shape_of(draft.steps)


def needed_tools(draft: Draft) -> None:
    """A step that another depends on needs a tool; one that needs none is a leaf that puts others together."""
    needed = {before for step in draft.steps for before in step.depends_on}
    for step in draft.steps:
        if step.id in needed and not step.needs_tool:
            raise Unsound("needed_step_without_tool", f"step {step.id}: {step.question}")
        if not step.needs_tool and not step.depends_on:
            raise Unsound("answer_not_derivable", f"step {step.id} needs no tool and depends on nothing")


def answers(draft: Draft) -> None:
    """No answer is empty, and every one fits its own type."""
    for what, answer in [("the answer", draft.answer), *((f"step {one.id}", one.answer) for one in draft.steps)]:
        if is_empty(answer) or not matches(answer, answer.value):
            raise Unsound("bad_answer", f"{what}: {answer.value!r} is no {answer.kind} that can be compared")


def evidence(draft: Draft) -> None:
    """Quotations hold the answers of their steps; steps written from texts have some."""
    for step in draft.steps:
        if not step.needs_tool:
            continue
        if draft.origin == "texts" and not step.evidence:
            raise Unsound("no_evidence", f"step {step.id} quotes no document: {step.question}")
        if step.evidence and not holds("\n".join(one.text for one in step.evidence), step.answer):
            quoted = " / ".join(one.text for one in step.evidence)
            raise Unsound("answer_not_in_quote", f"step {step.id}: {step.answer.value!r} is not in {quoted!r}"[:500])


def derivable(draft: Draft) -> None:
    """Every step without a tool, and the answer, follow from the answers of the steps."""
    for step in draft.steps:
        if not step.needs_tool:
            _computes(step, draft)
    if not any(_is_answered_by(step, draft.answer) for step in last_steps(draft)) and not _is_list_of_last(draft):
        given = [step.answer.value for step in last_steps(draft)]
        raise Unsound("answer_not_derivable", f"answer {draft.answer.value!r}, the steps give {given!r}")


def _computes(step: Step, draft: Draft) -> None:
    operands, asks = operands_of(step, draft.steps), f"{draft.question} {step.question}"
    if step.operation is None:
        if inferred(operands, step.answer, asks) is None:
            values = [one.answer.value for one in operands]
            raise Unsound(
                "answer_not_derivable", f"step {step.id}: no operation makes {step.answer.value!r} of {values!r}"
            )
        return
    if against(step.operation, asks, operands):
        raise Unsound("answer_not_derivable", f"step {step.id}: {step.operation} is not what is asked: {asks}")
    if not gives(step.operation, operands, step.answer):
        try:
            found = repr(computed(step.operation, operands).value)
        except NotComputable as error:
            found = f"nothing: {error}"
        raise Unsound("answer_not_derivable", f"step {step.id}: {step.answer.value!r}, {step.operation} gives {found}")


def last_steps(draft: Draft) -> list[Step]:
    """The steps that no step depends on."""
    needed = {before for step in draft.steps for before in step.depends_on}
    return [step for step in draft.steps if step.id not in needed]


def _is_answered_by(step: Step, answer: Answer) -> bool:
    same_type = step.answer.kind == answer.kind and (not answer.unit or answer.unit == step.answer.unit)
    return same_type and bool(matches(answer, step.answer.value))


def _is_list_of_last(draft: Draft) -> bool:
    values = [step.answer.value for step in last_steps(draft)]
    return len(values) > 1 and draft.answer.kind == "list" and bool(matches(draft.answer, values))


def silent_question(draft: Draft) -> None:
    """The question tells neither its answer nor one that a tool has to find; a choice between entities names them."""
    chosen = any(
        step.operation and OPERATIONS[step.operation].chooses and _is_answered_by(step, draft.answer)
        for step in last_steps(draft)
    )
    told = [step.answer for step in draft.steps if step.needs_tool] + ([] if chosen else [draft.answer])
    for answer in told:
        for one in map(item_of, answer.value) if answer.kind == "list" else [answer]:
            if mentions(one, draft.question) or (one.kind != "boolean" and says(str(one.value), draft.question)):
                raise Unsound("answer_in_question", f"{one.value!r} stands in {draft.question!r}")


def language(draft: Draft) -> None:
    """The question and its sub-questions are in the draft's language."""
    check_language([draft.question, *(step.question for step in draft.steps)], draft.language)


def checks(max_hops: int) -> dict[str, Check]:
    """All checks by name, in order."""

    def hops(draft: Draft) -> None:
        check_hops(draft.steps, draft.hops, max_hops)

    return {
        "graph": graph,
        "hops": hops,
        "needed_tools": needed_tools,
        "answers": answers,
        "evidence": evidence,
        "derivable": derivable,
        "silent_question": silent_question,
        "language": language,
    }
