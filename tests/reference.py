"""The reference of docs/reference, from the typed models: ``python -m tests.reference`` writes it.

A page for each stage (what it reads and writes, every knob with type, range, default and meaning) and one for records.
It stands here and not in astra, which never imports a stage.
"""

from __future__ import annotations

import importlib
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from astra.lineage.files import FILES, TRIES
from astra.records import ARTIFACTS, KeptReply, Record, Reject, ToolTry
from tests.import_closure import ROOT
from tests.test_pipeline import DVC, PARAMS, STAGES, contract

FOLDER = Path("docs/reference")
RECORDS = "records.md"
HEAD = "<!-- Written by python -m tests.reference from the typed models; a test checks that it is current. -->\n"
BOUNDS = {
    "ge": ">=",
    "gt": ">",
    "le": "<=",
    "lt": "<",
    "min_length": "at least {} long",
    "max_length": "at most {} long",
    "pattern": "`{}`",
}


MEANING = {  # of knobs whose names say it all, so that their models do not
    "temperature": "Sampling temperature.",
    "max_tokens": "Tokens of a reply at most.",
    "single_hop": "Share of questions that ask one fact.",
    "parallel_single_hop": "Share that ask single facts side by side.",
    "multi_hop": "Share in which one fact leads to the next.",
    "parallel_multi_hop": "Share with several such paths side by side.",
    "stage_usd": "What the replies of one stage may have cost.",
    "run_usd": "What the replies of all stages may have cost.",
}


def pages() -> dict[Path, str]:
    """The text of every page, by its file."""
    made = {FOLDER / f"{stage}.md": stage_page(stage) for stage in STAGES}
    return made | {FOLDER / RECORDS: records_page(), FOLDER / "README.md": index_page()}


def index_page() -> str:
    rows = [f"| [{stage}]({stage}.md) | {DVC['stages'][stage]['desc']} |" for stage in STAGES]
    lines = ["# Reference", "", "| stage | what |", "| --- | --- |", *rows, "", f"All records: [{RECORDS}]({RECORDS})."]
    return HEAD + "\n".join(lines) + "\n"


def stage_page(stage: str) -> str:
    """One stage."""
    one = contract(stage)
    doc = importlib.import_module(f"stages.{stage}").__doc__ or ""
    about, _, command = doc.partition("\n    python -m ")
    lines = [HEAD, f"# {stage}", "", about.strip(), ""]
    lines += [
        "```console",
        f"$ python -m {command.strip().splitlines()[0]}" if command else f"$ python -m stages.{stage}",
        "```",
        "",
    ]
    lines += ["## Files", "", "| | | |", "| --- | --- | --- |"]
    lines += [f"| reads | `{path}` | {_link(path)} |" for path in dict.fromkeys(one.reads.values())]
    outs = [*one.writes.values(), *([one.replies] if one.replies else []), one.rejects, one.metrics, *one.plots]
    lines += [f"| writes | `{path}` | {_link(path)} |" for path in outs]
    for flag, meaning in one.flags.items():
        lines += ["", f"`--{flag}`: {meaning}."]
    lines += ["", "## Params", "", "| key | type | default | range | meaning |", "| --- | --- | --- | --- | --- |"]
    for key, kind in one.params.items():
        lines += list(_params(key, kind))
    if one.settings:
        lines += ["", "## Settings", "", "Read like params; they cannot change a byte, so DVC does not track them.", ""]
        lines += ["| key | type | default | range | meaning |", "| --- | --- | --- | --- | --- |"]
        for key, kind in one.settings.items():
            lines += list(_params(key, kind))
    return "\n".join(lines) + "\n"


def _link(path: str) -> str:
    """The record that a file holds."""
    known: dict[str, type[Record]] = {file: kind for kind, (_, file) in FILES.items()}
    known |= dict.fromkeys(TRIES.values(), ToolTry)
    name = path.rpartition("/")[2]
    kind = known.get(path) or {"replies.jsonl": KeptReply, "rejects.jsonl": Reject}.get(name)
    return f"[{kind.__name__}]({RECORDS}#{kind.__name__.lower()})" if kind else ""


def _params(key: str, kind: Any) -> Iterator[str]:
    """A row for each knob of a section, or for a plain value."""
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        yield f"| `{key}` | {kind.__name__} | `{_default(key)}` | | |"
        return
    for name, field in kind.model_fields.items():
        place = f"{key}.{name}"
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            if field.description:
                yield f"| `{place}` | section | | | {_cell(field.description)} |"
            yield from _params(place, inner)
        else:
            yield f"| `{place}` | {type_text(inner)} | `{_default(place, field)}` | {_range(field)} | {_cell(field.description or MEANING.get(name, ''))} |"


def _default(key: str, field: FieldInfo | None = None) -> str:
    """The value in params.yaml; where it is left out there, the model's own."""
    value: Any = PARAMS
    for part in key.split("."):
        if not isinstance(value, dict) or part not in value:
            return (
                ""
                if field is None or field.is_required()
                else _cell(_plain(field.get_default(call_default_factory=True)))
            )
        value = value[part]
    return _cell(_plain(value))


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_plain(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_plain, value)) + "]"
    if isinstance(value, bool) or value is None:
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def _range(field: FieldInfo) -> str:
    """The bounds that a value must keep."""
    parts = []
    for one in field.metadata:
        for name, text in BOUNDS.items():
            bound = getattr(one, name, None)
            if bound is not None:
                parts.append(text.format(bound) if "{}" in text else f"{text} {bound:g}")
    return _cell(", ".join(parts))


def type_text(annotation: Any) -> str:
    """An annotation in words, e.g. ``list of ToolSpec``, ``text or null``."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(f"`{one}`" for one in inner)
    if origin in (Union, types.UnionType):
        return " or ".join(type_text(one) for one in inner)
    if origin in (tuple, list, frozenset, set):
        return f"list of {type_text(inner[0])}"
    if origin is dict:
        return f"mapping of {type_text(inner[0])} to {type_text(inner[1])}"
    if origin is not None:  # Annotated and the like
        return type_text(inner[0])
    words = {str: "text", int: "int", float: "float", bool: "bool", type(None): "null", Any: "any"}
    return words.get(annotation) or getattr(annotation, "__name__", str(annotation))


def records_page() -> str:
    """Every record and what stands in it."""
    shown: dict[str, type[BaseModel]] = {}
    for kind in ARTIFACTS.values():
        for one in _models(kind):
            shown.setdefault(one.__name__, one)
    places = {kind: path for kind, (_, path) in FILES.items()}
    lines = [
        HEAD,
        "# Records",
        "",
        "One JSON object a line, in UTF-8; unknown fields are an error. JSON Schemas: `data/schemas/`.",
        "",
    ]
    for name, kind in shown.items():
        lines += [f"## {name}", "", _cell(re.sub(r"\s+", " ", (kind.__doc__ or "").strip()))]
        lines += ["", f"In `{places[kind]}`."] if kind in places else []
        lines += ["", "| field | type | meaning |", "| --- | --- | --- |"]
        lines += [
            f"| `{key}` | {_linked(field.annotation, shown)} | {_cell(field.description or '')} |"
            for key, field in kind.model_fields.items()
        ]
        lines.append("")
    return "\n".join(lines)


def _linked(annotation: Any, shown: dict[str, type[BaseModel]]) -> str:
    return " ".join(
        f"[{word}](#{word.lower()})" if word in shown else word for word in type_text(annotation).split(" ")
    )


def _models(kind: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A record and those that stand in it."""
    yield kind
    for field in kind.model_fields.values():
        for inner in _types(field.annotation):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                yield from _models(inner)


def _types(annotation: Any) -> Iterator[Any]:
    yield annotation
    for one in get_args(annotation):
        yield from _types(one)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def main() -> None:
    (ROOT / FOLDER).mkdir(parents=True, exist_ok=True)
    texts = pages()
    for stale in set((ROOT / FOLDER).glob("*.md")) - {ROOT / path for path in texts}:
        stale.unlink()
    for path, text in texts.items():
        (ROOT / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
