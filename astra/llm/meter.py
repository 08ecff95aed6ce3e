"""What asking costs: calls, tokens and money of one role, and the budget that they share."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from astra.llm.errors import BudgetSpent, EndpointUnavailable
from astra.llm.types import Budget, Completion, ModelParams, Price

MILLION = 1_000_000
FREE = Price(prompt=0, completion=0)


@dataclass
class Purse:
    """What the replies of one stage have cost so far, kept ones included, against the budgets of stage and run.

    A kept reply counts with what it cost when it was paid, so that a stage that is continued stops where it stopped
    before, until the budget is raised. ``others_usd`` is what the other stages' current outputs have cost.
    """

    stage: str
    budget: Budget
    others_usd: float = 0.0
    spent_usd: float = 0.0

    def check(self) -> None:
        """Raises BudgetSpent where nothing may be asked any more."""
        limits = (("stage_usd", 0.0, self.budget.stage_usd), ("run_usd", self.others_usd, self.budget.run_usd))
        for name, before, limit in limits:
            if limit is not None and before + self.spent_usd >= limit:
                others = f" and those of the other stages {before:.4f}" if before else ""
                raise BudgetSpent(
                    f"llm.budget.{name} {limit:g} is spent: the replies of {self.stage} have cost "
                    f"{self.spent_usd:.4f} USD{others}. All of them are kept. Raise the budget in params.yaml, then: "
                    f"dvc repro {self.stage}"
                )


def others_usd(stage: str, folder: Path = Path("metrics")) -> float:
    """What the metrics files of the other stages say that their replies cost."""
    total = 0.0
    for file in sorted(folder.glob("*.json")):
        if file.stem == stage:
            continue
        try:
            roles = json.loads(file.read_text(encoding="utf-8")).get("models", {})
            total += sum(float(role.get("cost_usd", 0)) for role in roles.values())
        except (ValueError, AttributeError, TypeError):
            continue  # not a stage's metrics
    return total


def price_of(model: ModelParams, prices: Mapping[str, Price], budget: Budget) -> Price:
    """What a model's tokens cost. Raises EndpointUnavailable where a budget is set and the price is not known."""
    if model.name in prices:
        return prices[model.name]
    limited = budget.stage_usd is not None or budget.run_usd is not None
    if limited and model.transport != "builtin":
        raise EndpointUnavailable(
            f"params.yaml: llm.prices: no price of {model.name!r}, so llm.budget cannot be kept. Add "
            f"{model.name}: {{prompt: ..., completion: ...}} in USD per million tokens"
        )
    return FREE


@dataclass
class Meter:
    """What one role asked and used."""

    price: Price
    purse: Purse
    calls: int = 0
    cached: int = 0
    retries: int = 0
    repaired: int = 0  # JSON replies that had to be mended
    prompt_tokens: int = 0
    completion_tokens: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    cost_usd: float = 0.0
    new_usd: float = 0.0

    def count(self, completion: Completion) -> None:
        """One reply that was used."""
        usage = completion.usage
        cost = (usage.prompt_tokens * self.price.prompt + usage.completion_tokens * self.price.completion) / MILLION
        self.calls += usage.calls
        self.cached += usage.calls if completion.cached else 0
        self.prompt_tokens += usage.prompt_tokens
        self.completion_tokens += usage.completion_tokens
        self.cost_usd += cost
        self.new_usd += 0.0 if completion.cached else cost
        self.purse.spent_usd += cost

    def metrics(self) -> dict[str, Any]:
        """For the stage's metrics; ``calls`` counts kept replies too."""
        found: dict[str, Any] = {
            "calls": self.calls,
            "cached": self.cached,
            "retries": self.retries,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "cost_usd": round(self.cost_usd, 6),
        }
        if self.repaired:
            found["repaired"] = self.repaired
        if self.refused:
            found["refused"] = dict(sorted(self.refused.items()))
        return found
