"""Where a training run is: one bar on a terminal with rate, time left and the last figures; silence elsewhere."""

from __future__ import annotations

from typing import Any

from tqdm import tqdm
from transformers import TrainerCallback

SHOWN = ("loss", "eval_loss", "reward")


class Bar(TrainerCallback):  # type: ignore[misc]
    """On the main process only; a run that goes on from a checkpoint starts where it was."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.figures: dict[str, str] = {}
        self.bar: tqdm[Any] | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            self.bar = tqdm(
                total=state.max_steps,
                initial=state.global_step,
                desc=self.name,
                unit="update",
                disable=None,
                leave=False,
            )

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        new = {key: f"{float(value):.3f}" for key, value in (logs or {}).items() if key in SHOWN}
        self.figures |= new
        if self.bar is not None and new:
            self.bar.set_postfix(self.figures, refresh=False)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.bar is not None:
            self.bar.update(state.global_step - self.bar.n)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None
