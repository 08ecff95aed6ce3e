"""Which split a question belongs to where its content is known only after it is written, and what stands in two."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from astra.records import Decomposition
from astra.splits import Composition, Heldout, of_steps


def split_given(found: Sequence[Decomposition], share: float, pairs: float, seed: int) -> list[Decomposition]:
    """The questions, a share of them held out: drawn by seed among those that have only reserved compositions.

    A question whose sub-questions have no named relations has no compositions, and any of these may be held out.
    """
    wanted = round(share * len(found))
    order = sorted(found, key=lambda one: random.Random(f"{seed}:given:{one.id}").random())
    fit = [one.id for one in order if all(_reserved(each, pairs, seed) for each in of_steps(one.steps).compositions)]
    held = set(fit[:wanted])
    return [one.model_copy(update={"split": "heldout"}) if one.id in held else one for one in found]


def _reserved(composition: Composition, share: float, seed: int) -> bool:
    return random.Random(f"{seed}:{':'.join(composition)}").random() < share


def conflicts(found: Sequence[Decomposition]) -> Iterator[str | None]:
    """For each question why it must not be trained on beside those held out; None where it may, or is held out."""
    heldout = Heldout.of(found)
    for one in found:
        yield None if one.split != "train" else heldout.conflict(one.question, of_steps(one.steps))


def unfamiliar(found: Sequence[Decomposition]) -> Iterator[bool]:
    """For each whether it is no fair test of facts: held out, with a subject or relation that training never shows.

    Of the harder splits and of other sources that is asked for.
    """
    trained = [of_steps(one.steps) for one in found if one.split == "train"]
    entities = frozenset[str]().union(*(content.entities for content in trained))
    relations = frozenset[str]().union(*(content.relations for content in trained))
    for one in found:
        content = of_steps(one.steps)
        is_known = {subject for _, subject in content.facts} <= entities and content.relations <= relations
        yield one.split == "heldout" and one.origin == "tables" and not is_known
