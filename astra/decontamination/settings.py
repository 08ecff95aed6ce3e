"""What training rows are compared with, and from where on one is too like a case."""

from __future__ import annotations

from pydantic import Field, field_validator, model_validator

from astra.decontamination.benchmarks import BENCHMARKS
from astra.records import Section


class Thresholds(Section):
    """From where on a row is too like a case; cosines are the encoder's, so another encoder wants others."""

    ngrams: float = Field(gt=0, le=1, description="Share of a question's groups of five words that a message holds.")
    question: float = Field(gt=0, le=1, description="Cosine of a message, or a sentence of it, with a question.")
    description: float = Field(gt=0, le=1, description="Cosine of two tools' descriptions.")
    document: float = Field(gt=0, le=1, description="Cosine of two tools' names, descriptions and parameters together.")
    support: float = Field(gt=0, le=1, description="The same, where the name or a set of three parameters is equal.")
    family: int = Field(ge=2, description="Tool names that a row has in common with one API of a benchmark.")


class Decontaminating(Section):
    """What training rows are compared with, and how strictly."""

    benchmarks: tuple[str, ...] = Field(min_length=1, description="What must be compared with: all that eval may run.")
    waived: tuple[str, ...] = Field(description="Benchmarks that may be missing; the metrics name them.")
    paths: dict[str, str] = Field(description="Benchmark -> its package's folder or checkout, where not importable.")
    environments: str | None = Field(description="Folder with one environment a benchmark; null takes data/bench_env.")
    fingerprints: str | None = Field(description="A file of fingerprints to use instead of the benchmarks themselves.")
    encoder: str = Field(description="builtin, or a sentence-transformers model.")
    thresholds: Thresholds

    @field_validator("benchmarks", "waived", "paths")
    @classmethod
    def _names_exist(cls, named: tuple[str, ...] | dict[str, str]) -> tuple[str, ...] | dict[str, str]:
        if unknown := [name for name in named if name not in BENCHMARKS]:
            raise ValueError(f"no benchmark {', '.join(unknown)}; known: {', '.join(BENCHMARKS)}")
        return named

    @model_validator(mode="after")
    def _waivers_are_wanted(self) -> Decontaminating:
        if idle := sorted({*self.waived, *self.paths} - set(self.benchmarks)):
            raise ValueError(f"waived or paths name {', '.join(idle)}, which benchmarks does not")
        return self
