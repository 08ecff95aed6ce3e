"""Params and folders of knowledge for the tests of the sources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from astra.decomposition.params import Params

PARAMS: dict[str, Any] = {
    "questions": {"train": 6, "heldout": 0, "heldout_entities": 0, "heldout_tools": 0},
    "shapes": {"single_hop": 1, "parallel_single_hop": 1, "multi_hop": 1, "parallel_multi_hop": 1},
    "max_hops": 3,
    "same_relation": 0.5,
    "computed": 0,
    "languages": {"en": 1},
    "reserve": {"pairs": 0.3, "countries": 1, "elements": 0, "relations": 1},
    "texts": {"questions": 1, "joined": 0, "passage": 2000, "heldout": 0.3},
    "given": {"heldout": 0.3},
    "reasks": 1,
    "min_quality": 1.0,
}


def params(**changes: Any) -> Params:
    return Params.model_validate(PARAMS | changes)


def folder(root: Path, **files: Any) -> Path:
    """A folder with these files: text as it is, lists as JSONL, mappings as YAML; ``__`` in a name is a slash."""
    place = root / "knowledge"
    for name, content in files.items():
        stem, _, ending = name.rpartition("_")
        path = place / (stem.replace("__", "/") + "." + ending)
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, list):
            content = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in content)
        elif isinstance(content, dict):
            content = yaml.safe_dump(content)
        path.write_text(content, encoding="utf-8")
    return place


HOTPOT = {
    "_id": "5a8b", "question": "Are Ann Lee and Bo Hay of one country?", "answer": "yes", "type": "comparison",
    "supporting_facts": [["Ann Lee", 0], ["Bo Hay", 0]],
    "context": [["Ann Lee", ["Ann Lee is from Peru.", " She sings."]], ["Bo Hay", ["Bo Hay is from Peru."]],
                ["Other", ["Nothing here."]]],
}  # fmt: skip
HOTPOT_COLUMNS = {
    "id": "5a8c", "question": "Where was the singer of Blue born?", "answer": "Lima",
    "supporting_facts": {"title": ["Blue"], "sent_id": [0]},
    "context": {"title": ["Blue", "Red"], "sentences": [["Blue is sung by Ann Lee."], ["Red is a song."]]},
}  # fmt: skip
TWO_WIKI = {
    "_id": "2w1", "type": "bridge_comparison", "question": "Which film has the director born first, North or South?",
    "answer": "South",
    "supporting_facts": [["North", 0], ["Ann Lee", 0], ["South", 0], ["Bo Hay", 0]],
    "context": [["North", ["North is a film by Ann Lee."]], ["Ann Lee", ["Ann Lee (born 3 May 1960) sings."]],
                ["South", ["South is a film by Bo Hay."]], ["Bo Hay", ["Bo Hay was born on 1 June 1950."]],
                ["Noise", ["Noise is a film."]]],
    "evidences": [["North", "director", "Ann Lee"], ["Ann Lee", "date of birth", "3 May 1960"],
                  ["South", "director", "Bo Hay"], ["Bo Hay", "date of birth", "1 June 1950"]],
}  # fmt: skip
MUSIQUE = {
    "id": "2hop__1", "question": "Who is the spouse of the performer of Green?", "answer": "Miquette Giraudy",
    "answer_aliases": [], "answerable": True,
    "paragraphs": [{"idx": 0, "title": "Noise", "paragraph_text": "Noise.", "is_supporting": False},
                   {"idx": 5, "title": "Green", "paragraph_text": "Green is an album by Steve Hillage.", "is_supporting": True},
                   {"idx": 7, "title": "Gong", "paragraph_text": "Hillage and his wife Miquette Giraudy played.", "is_supporting": True}],
    "question_decomposition": [
        {"id": 11, "question": "Green >> performer", "answer": "Steve Hillage", "paragraph_support_idx": 5},
        {"id": 12, "question": "Who is the spouse of #1?", "answer": "Miquette Giraudy", "paragraph_support_idx": 7}],
}  # fmt: skip
ASTRA = {
    "uuid": "a1", "main_question": "How much larger is Chad than Peru?", "final_answer": 7, "scenario_type": "x",
    "decomposition_trace": [
        {"_uuid": 10, "hop_level": 1, "sub_question": "What is the index of Peru?", "dependency": None, "sub_answer": 3},
        {"_uuid": 20, "hop_level": 1, "sub_question": "What is the index of Chad?", "dependency": None, "sub_answer": 10},
        {"_uuid": 30, "hop_level": 2, "sub_question": "How much larger is it?", "dependency": [10, 20], "sub_answer": 7}],
}  # fmt: skip
