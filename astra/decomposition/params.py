"""The section ``decompose`` of params.yaml."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from astra.decomposition.languages import LANGUAGES
from astra.records import Section


class Counts(Section):
    train: int = Field(ge=0, description="Training questions.")
    heldout: int = Field(ge=0, description="Held-out questions: seen entities and relations, unseen facts.")
    heldout_entities: int = Field(ge=0, description="Questions over reserved entities.")
    heldout_tools: int = Field(ge=0, description="Questions that need a reserved relation.")


class Shares(Section):
    single_hop: float = Field(ge=0)
    parallel_single_hop: float = Field(ge=0)
    multi_hop: float = Field(ge=0)
    parallel_multi_hop: float = Field(ge=0)


class Reserve(Section):
    pairs: float = Field(gt=0, lt=1, description="Share of compositions kept for the main held-out split.")
    countries: int = Field(ge=1, description="Countries kept out, with their cities, airports and holidays.")
    elements: int = Field(ge=0, description="Chemical elements kept out.")
    relations: int = Field(ge=1, description="Relations (tools) kept out; only such that end a path.")


class Texts(Section):
    questions: int = Field(ge=0, description="Questions asked for of each passage.")
    joined: float = Field(ge=0, le=1, description="Share of them over two passages of one domain.")
    passage: int = Field(ge=200, description="Characters of a passage at most; longer documents are cut at paragraphs.")
    heldout: float = Field(ge=0, lt=1, description="Share of documents that only held-out questions are made from.")


class Given(Section):
    heldout: float = Field(
        ge=0, lt=1, description="Share of given questions held out; training shares nothing with them."
    )


class Percentile(Section):
    percentile: float = Field(ge=0, le=100, description="Kept are questions whose QS is at least this percentile's.")


Share = Annotated[float, Field(ge=0)]


class Params(Section):
    questions: Counts = Field(description="Questions over the tables.")
    shapes: Shares = Field(
        description="How training questions spread over the four shapes; held-out ones are balanced."
    )
    max_hops: int = Field(ge=2, le=8, description="Longest chain of tool steps (the paper's hop budget H).")
    same_relation: float = Field(
        ge=0, le=1, description="Share of parallel questions asking one thing of two subjects."
    )
    computed: float = Field(
        ge=0,
        le=1,
        description="Share of parallel questions over numbers of one relation that ask to compute with them.",
    )
    languages: dict[str, Share] = Field(min_length=1, description="How the questions to be written spread.")
    reserve: Reserve
    texts: Texts
    given: Given
    reasks: int = Field(ge=0, le=5, description="Further tries for a reply that cannot be used.")
    min_quality: Annotated[float, Field(ge=0, le=1)] | Percentile = Field(
        description="QS below this value, or below this percentile of all judged questions, is a reject."
    )

    @field_validator("languages")
    @classmethod
    def _are_known(cls, languages: dict[str, float]) -> dict[str, float]:
        unknown = sorted(languages.keys() - set(LANGUAGES))
        if unknown:
            raise ValueError(f"no check for {', '.join(unknown)}; languages are: {', '.join(LANGUAGES)}")
        if not any(languages.values()):
            raise ValueError("every share is 0")
        return languages
