"""What a trained model carries with its weights: where it comes from (provenance.json) and a model card (README.md).

Nothing in them is of a clock or a machine, so that the same inputs give the same bytes. The code is named by a hash of
the modules that were loaded, not by a commit: a commit that changes no line of them would else retrain what follows.
The commit is the one whose dvc.lock holds the folder's hash: ``git log -S HASH dvc.lock``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from astra.caches import digest_of_named, sha256_of
from astra.nested import leaves
from astra.stage import write_json

PACKAGES = ("torch", "transformers", "trl", "accelerate")


def describe(
    folder: Path, stage: str, base: str, params: Mapping[str, Any], inputs: Iterable[str], figures: Mapping[str, Any]
) -> None:
    """Write provenance.json and README.md into a model's folder. ``inputs`` are files or folders, parents included."""
    settings = {key: one.model_dump(mode="json") if isinstance(one, BaseModel) else one for key, one in params.items()}
    origin = {
        "stage": stage,
        "base": base,
        "inputs": {path: digest(Path(path)) for path in sorted(inputs)},
        "code": code_digest(),
        "packages": {name: version(name) for name in PACKAGES},
        "params": settings,
        "weights": {path.name: digest(path) for path in sorted(folder.glob("*.safetensors"))},
    }
    write_json(folder / "provenance.json", origin)
    (folder / "README.md").write_text(card(origin, figures), encoding="utf-8")


def digest(path: Path) -> str:
    """SHA-256 of a file, or of a folder's files with their names; clocks and modes do not count."""
    if path.is_file():
        return sha256_of(path).hex()
    files = sorted(one for one in path.rglob("*") if one.is_file())
    return digest_of_named((str(one.relative_to(path)), one) for one in files)


def code_digest() -> str:
    """A hash of the first-party modules that this process has loaded."""
    loaded = [module for name, module in sys.modules.items() if name.partition(".")[0] in ("astra", "stages")]
    main = sys.modules.get("__main__")
    if main is not None and (main.__spec__ is not None and main.__spec__.name.startswith("stages.")):
        loaded.append(main)
    files = {Path(file).resolve() for module in loaded if (file := getattr(module, "__file__", None))}
    root = Path(__file__).resolve().parents[2]
    return digest_of_named(sorted((str(file.relative_to(root)), file) for file in files if file.is_relative_to(root)))


def card(origin: Mapping[str, Any], figures: Mapping[str, Any]) -> str:
    """The model card: what it is, what was measured, how to load it, what it must not be taken for."""
    lines = [
        "---", "library_name: transformers", "pipeline_tag: text-generation", "tags: [tool-use, astra-pipeline]", "---",
        "",
        f"# Policy after `{origin['stage']}`", "",
        f"Trained by the stage `{origin['stage']}` of the Astra Pipeline from `{origin['base']}`. "
        "Settings, data hashes, parents and packages: `provenance.json`.", "",
        "| measured by the stage | |", "|---|---|",
        *(f"| {name} | {value} |" for name, value in leaves(figures)), "",
        "What it scores is not here: `metrics/eval.json` of the same commit has base, SFT and RL with intervals.", "",
        "```python", "from transformers import AutoModelForCausalLM, AutoTokenizer", "",
        'tokenizer = AutoTokenizer.from_pretrained("FOLDER")', 'model = AutoModelForCausalLM.from_pretrained("FOLDER")',
        "```", "",
        "It calls tools in the format of its chat template. It was not trained to be safe with tools that act.",
        "",
    ]  # fmt: skip
    return "\n".join(lines)
