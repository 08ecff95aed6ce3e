"""JSON Schema snapshots of the records: ``python -m astra.records.schemas`` writes data/schemas/."""

from __future__ import annotations

import json
from pathlib import Path

from astra.records import ARTIFACTS

FOLDER = Path("data/schemas")


def snapshots() -> dict[Path, str]:
    """The schema text of every record, by the file that it belongs in."""
    return {
        FOLDER / f"{name}.json": json.dumps(kind.model_json_schema(), indent=2, sort_keys=True) + "\n"
        for name, kind in ARTIFACTS.items()
    }


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path, text in snapshots().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
