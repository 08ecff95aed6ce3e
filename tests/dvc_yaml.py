"""Bring dvc.yaml up to date with the stages' contracts and imports: ``python -m tests.dvc_yaml``.

Deps, params, outs, metrics and plots of each stage are rewritten; descriptions and what follows the stages are kept.
"""

from __future__ import annotations

import re

from tests.import_closure import ROOT
from tests.test_pipeline import DVC, STAGES, code_deps, contract


def stage_text(name: str) -> str:
    """One stage of dvc.yaml."""
    one = contract(name)
    reads = list(dict.fromkeys(one.reads.values()))
    deps = reads + sorted(code_deps(name) - set(reads))
    outs = [path for path in (*one.writes.values(), one.replies, one.rejects) if path is not None]
    lines = [f"  {name}:", f"    desc: {DVC['stages'][name]['desc']}", f"    cmd: python -m stages.{name}"]
    for key, entries in (("deps", deps), ("params", list(one.params)), ("outs", outs)):
        lines += [f"    {key}:", *(f"      - {entry}" for entry in entries)] if entries else []
    for plot in one.plots:
        lines += [f"      - {plot}:", "          cache: false"]
    lines += ["    metrics:", f"      - {one.metrics}:", "          cache: false", ""]
    return "\n".join(lines)


def main() -> None:
    file = ROOT / "dvc.yaml"
    text = file.read_text()
    head, _, rest = text.partition("stages:\n")
    tail = re.search(r"^(?=[a-z]+:\n)", rest, re.MULTILINE)
    assert tail is not None
    after = rest[tail.start() :]
    file.write_text(head + "stages:\n" + "\n".join(map(stage_text, STAGES)) + "\n" + after)


if __name__ == "__main__":
    main()
