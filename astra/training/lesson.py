"""One imitation run as a job: written to a folder, done here or by the ranks of a launch, continued after a kill.

The folder is named by a hash of everything that the result depends on, so a killed stage that is run again with the
same inputs finds its checkpoints, and one with other inputs does not. It is removed when the job is done.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
from array import array
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from datasets import Dataset, disable_progress_bars

from astra.caches import cache_root, sha256_of
from astra.chat import Chat, Encoded
from astra.records import Section
from astra.training import imitation, lm_head, optimiser, weights
from astra.training.imitation import Checkpoints, Regime, Schedule, as_dataset, train
from astra.training.launch import LOG, Launcher, is_main, launched
from astra.training.weights import Lora, merge_adapters, save_trained

disable_progress_bars()
_CODE = (imitation, lm_head, optimiser, weights)
_PACKAGES = ("torch", "transformers", "trl", "accelerate")


class Lesson(Section):
    """What is learned from a folder's rows: everything but the rows that the weights depend on."""

    base: str
    schedule: Schedule
    seed: int
    checkpoints: Checkpoints | None = None
    lora: Lora | None = None
    packing: bool = False


class Learned(NamedTuple):
    """Logged losses, losses on held-out rows, and the update whose weights were kept."""

    losses: list[dict[str, float]]
    heldout: list[dict[str, float]]
    kept: int


def teach(
    lesson: Lesson,
    rows: Sequence[Encoded],
    heldout: Sequence[Encoded],
    launcher: Launcher,
    out: Path,
    threads: int,
) -> Learned:
    """Train a copy of the lesson's base and write it to ``out``, tokenizer and template with it.

    Raises LossInvalid, StageError, LaunchFailed.
    """
    jobs = cache_root() / "training"  # on a cluster: on a disk that all nodes see, as the repository
    job = jobs / name_of(lesson, launcher, rows, heldout)
    job.mkdir(parents=True, exist_ok=True)
    with (jobs / f"{job.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two experiments of one queue can have the same lesson
        return _teach(job, lesson, rows, heldout, launcher, out, threads)


def _teach(
    job: Path,
    lesson: Lesson,
    rows: Sequence[Encoded],
    heldout: Sequence[Encoded],
    launcher: Launcher,
    out: Path,
    threads: int,
) -> Learned:
    for word, some in (("rows", rows), ("heldout", heldout)):
        shutil.rmtree(job / word, ignore_errors=True)
        if some:
            as_dataset(some).save_to_disk(str(job / word))
    (job / "lesson.json").write_text(lesson.model_dump_json(), encoding="utf-8")
    launched(launcher, "astra.training.lesson:learn", job, threads, job.with_name(f"{job.name}-{LOG}"))
    shutil.rmtree(out, ignore_errors=True)
    if lesson.lora and lesson.lora.rank:
        merge_adapters(lesson.base, job / "weights", out)
    else:
        shutil.copytree(job / "weights", out)
    Chat.load(lesson.base).save(out)
    done = json.loads((job / "learned.json").read_text(encoding="utf-8"))
    shutil.rmtree(job)
    return Learned(**done)


def learn(job: Path) -> None:
    """Do the job of a folder; every rank calls this."""
    lesson = Lesson.model_validate_json((job / "lesson.json").read_text(encoding="utf-8"))
    heldout = Dataset.load_from_disk(str(job / "heldout")) if (job / "heldout").is_dir() else None
    regime = Regime(lesson.checkpoints, lesson.lora, lesson.packing, job / "checkpoints")
    rows = Dataset.load_from_disk(str(job / "rows"))
    done = train(Path(lesson.base), Chat.load(lesson.base), rows, lesson.schedule, job, lesson.seed, regime, heldout)
    save_trained(done.trainer, job / "weights", lesson.base)
    if is_main():
        learned = Learned(done.losses, done.heldout, done.kept)
        (job / "learned.json").write_text(json.dumps(learned._asdict()), encoding="utf-8")


def name_of(lesson: Lesson, launcher: Launcher, rows: Sequence[Encoded], heldout: Sequence[Encoded]) -> str:
    """A hash of settings, rows, starting weights, code and packages."""
    digest = hashlib.sha256(lesson.model_dump_json().encode() + launcher.model_dump_json().encode())
    for some in (rows, heldout):
        digest.update(f"|{len(some)}|".encode())
        for row in some:
            digest.update(array("i", row.ids).tobytes() + bytes(row.mask))
    for file in sorted(Path(lesson.base).glob("*.safetensors")):
        digest.update(sha256_of(file))
    for module in _CODE:
        digest.update(Path(str(module.__file__)).read_bytes())
    digest.update(" ".join(f"{name} {version(name)}" for name in _PACKAGES).encode())
    return digest.hexdigest()[:16]


def report(learned: Learned) -> dict[str, Any]:
    """For metrics: the loss on held-out rows first, last and where the weights were kept."""
    if not learned.heldout:
        return {}
    by_step = {int(one["step"]): one["loss"] for one in learned.heldout}
    return {
        "heldout_loss": {
            "first": round(learned.heldout[0]["loss"], 4),
            "last": round(learned.heldout[-1]["loss"], 4),
            "kept": round(by_step[learned.kept], 4),
            "kept_update": learned.kept,
        }
    }
