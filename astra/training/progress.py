"""Where a training is: one bar of updates on a terminal, silence elsewhere."""

from __future__ import annotations

from typing import Any

from tqdm import tqdm
from transformers import TrainerCallback


class Bar(TrainerCallback):  # type: ignore[misc]
    """Updates done, rate, time left and the latest of some logged figures; only where ``rank 0`` has a terminal."""

    def __init__(self, name: str, *figures: str) -> None:
        self.name = name
        self.figures = figures
        self.bar: tqdm[Any] | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.bar = tqdm(
            total=state.max_steps,
            initial=state.global_step,
            desc=self.name,
            unit="update",
            disable=None if state.is_world_process_zero else True,
            leave=False,
        )

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.bar is not None:
            self.bar.update(state.global_step - self.bar.n)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        shown = {figure: (logs or {})[figure] for figure in self.figures if figure in (logs or {})}
        if self.bar is not None and shown:
            self.bar.set_postfix(shown, refresh=False)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.bar is not None:
            self.bar.close()
