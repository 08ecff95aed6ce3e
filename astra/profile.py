"""Run dvc with the params of a profile: ``params.yaml`` is the default, a file of profiles/ says what differs from it.

    python -m astra.profile cluster -- exp run --queue -n big   # dvc exp run -S ... -S ... --queue -n big
    python -m astra.profile cluster 32b -- exp run              # later profiles go over earlier ones
    python -m astra.profile cluster -- repro                    # writes params.yaml, then dvc repro
    python -m astra.profile cluster                             # only shows what it would change, as -S flags

``dvc exp run`` gets the differences as ``--set-param`` flags, so that experiment, queue and dvc.lock hold them. ``dvc
repro`` has no such flags: params.yaml is changed the same way, comments kept; ``git checkout params.yaml`` goes back.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from astra.stage import PARAMS_FILE
from astra.yaml_files import YamlInvalid, read_yaml

FOLDER = Path("profiles")


class BadProfile(Exception):
    """A profile is not there or cannot be read; the message says which, and what there is."""


def target(default: Mapping[str, Any], names: Sequence[str], folder: Path = FOLDER) -> dict[str, Any]:
    """All params with these profiles, later ones over earlier ones. Raises BadProfile."""
    made = dict(default)
    for name in names:
        made = over(made, _read(folder / f"{name}.yaml"))
    return made


def _read(file: Path) -> dict[str, Any]:
    if not file.is_file():
        known = ", ".join(sorted(path.stem for path in file.parent.glob("*.yaml"))) or "none"
        raise BadProfile(f"{file}: no such profile. There are: {known}")
    try:
        tree = read_yaml(file)
    except YamlInvalid as error:
        raise BadProfile(str(error)) from None
    if not isinstance(tree, dict):
        raise BadProfile(f"{file}: expected sections of params.yaml, got {str(tree)[:80]!r}")
    return tree


def over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Two trees of params as one; ``key!`` puts a mapping in the place of the lower one's instead of adding to it."""
    made = dict(below)
    for key, value in above.items():
        name = key.removesuffix("!")
        both = name == key and isinstance(value, dict) and isinstance(made.get(key), dict)
        made[name] = over(made[key], value) if both else value
    return made


def flags(default: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """What turns one tree of params into the other, as dvc's ``--set-param`` takes it: ``+`` adds, ``~`` takes out."""
    return list(_flags(default, wanted, ()))


def _flags(default: Mapping[str, Any], wanted: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    yield from (f"~{'.'.join((*path, key))}" for key in default if key not in wanted)
    for key, value in wanted.items():
        place = ".".join((*path, key))
        before = default.get(key)
        if key not in default:
            yield f"+{place}={_text(value)}"
        elif isinstance(value, dict) and isinstance(before, dict) and all(map(_is_plain, {*value, *before})):
            yield from _flags(before, value, (*path, key))
        elif isinstance(value, dict) and before is not None and value != before:
            yield from (f"~{place}", f"+{place}={_text(value)}")
        elif value != before and isinstance(value, dict) and isinstance(before, dict):
            yield from [f"~{place}", f"+{place}={_text(value)}"]
        elif value != before:
            yield f"{place}={_text(value)}"


def _is_plain(key: str) -> bool:
    """Whether a key can stand in the path of a flag; one with a dot or a star cannot."""
    return key.isidentifier()


def _text(value: Any) -> str:
    """A value in Hydra's grammar, of which JSON is almost a part; keys of a mapping stand bare there."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_text(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def command(changes: Sequence[str], asked: Sequence[str]) -> list[str]:
    """The dvc command: with flags for ``exp run``, before those that were asked for, which so go over the profile's."""
    if list(asked[:2]) != ["exp", "run"]:
        return ["dvc", *asked]
    return ["dvc", "exp", "run", *(part for change in changes for part in ("-S", change)), *asked[2:]]


def main(arguments: Sequence[str]) -> int:
    at = list(arguments).index("--") if "--" in arguments else len(arguments)
    names, asked = arguments[:at], arguments[at + 1 :]
    if not names or names[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        default = read_yaml(PARAMS_FILE)
        changes = flags(default, target(default, names))
    except (BadProfile, YamlInvalid, OSError) as error:
        print(f"profile: {error}", file=sys.stderr)
        return 2
    if not asked:
        print("\n".join(f"-S {shlex.quote(change)}" for change in changes))
        return 0
    if asked[0] == "repro":
        from dvc.utils.hydra import apply_overrides  # what exp run -S does

        apply_overrides(PARAMS_FILE, changes)
        print(
            f"profile: {PARAMS_FILE} has {' '.join(names)} now; git checkout {PARAMS_FILE} goes back", file=sys.stderr
        )
    return subprocess.run(command(changes, asked), env=os.environ).returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
