"""Small benchmarks of our own in the folders and files that the real packages have."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

DRIVE = {
    "name": "lock_drawer",
    "description": "This tool belongs to the cabinet system, which keeps drawers. Tool description: Lock one drawer of "
    "the filing cabinet with a numeric code until the given hour.",
    "parameters": {
        "type": "dict",
        "properties": {
            "drawer_label": {"type": "string", "description": "Label on the front of the drawer."},
            "numeric_code": {"type": "integer", "description": "Code of four digits that opens it again."},
            "until_hour": {"type": "string", "description": "Hour of the day up to which it stays locked."},
        },
        "required": ["drawer_label", "numeric_code"],
    },
}
CABINET = [
    DRIVE,
    *(
        {"name": name, "description": f"{name.replace('_', ' ')} of the cabinet.", "parameters": {"type": "dict", "properties": {}}}
        for name in ("open_drawer", "label_drawer", "empty_drawer", "list_folders")
    ),
]  # fmt: skip
BREAD = {
    "name": "bakery.estimate_rise",
    "description": "Estimate how many minutes a bread dough needs to rise in a warm kitchen.",
    "parameters": {
        "type": "dict",
        "properties": {
            "flour_grams": {"type": "integer", "description": "Flour in the dough, in grams."},
            "room_celsius": {"type": "float", "description": "Temperature of the kitchen."},
        },
    },
}
LOCKING = "Please lock the drawer labelled 'invoices 2031' with the code 4471 until seven in the evening."
RISING = "How long must a dough of 650 grams of rye flour rise in a kitchen of 24 degrees?"
PARCEL = "You want to send back the blue ceramic lamp from order #L90210, since it arrived with a crack in its foot."
MEETING = "Move my dentist appointment from Tuesday to Friday the 14th and tell Rosalind Achterberg about it."


def lines(path: Path, entries: Iterable[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")


def text(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")


def said(content: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": content}]


def bfcl(site: Path) -> Path:
    """``bfcl_eval`` with one multi-turn and one single-turn case."""
    data = site / "bfcl_eval" / "data"
    lines(data / "multi_turn_func_doc" / "cabinet_api.json", CABINET)
    turns = [said(LOCKING), [], said("Thanks a lot!"), said("And which folders are in the drawer below it?")]
    lines(data / "BFCL_v9_multi_turn_base.json", [{"id": "multi_turn_base_0", "question": turns}])
    lines(data / "BFCL_v9_simple.json", [{"id": "simple_0", "question": [said(RISING)], "function": [BREAD]}])
    lines(data / "memory_prereq_conversation" / "memory_shop.json", [{"id": "memory_0", "question": [said("I keep a shop of maritime antiques in Hoorn.")]}])  # fmt: skip
    lines(data / "possible_answer" / "BFCL_v9_simple.json", [{"id": "simple_0", "ground_truth": []}])
    text(site / "bfcl_eval-9.1.dist-info" / "RECORD", "bfcl_eval/data/BFCL_v9_simple.json,,\n")
    return site


def tau2(site: Path) -> Path:
    instructions = {"reason_for_call": PARCEL, "known_info": "You are Odile Ferreira.", "task_instructions": "You are in a hurry.", "domain": "shop"}  # fmt: skip
    task = {"id": "7", "user_scenario": {"persona": None, "instructions": instructions}, "ticket": None}
    text(site / "tau2/data/tau2/domains/shop/tasks.json", json.dumps([task]))
    text(
        site / "tau2/domains/shop/tools.py",
        "import nowhere\n\n\nclass ShopTools(nowhere.Base):\n    @is_tool(ToolType.WRITE)\n"
        "    def return_lamp(self, order_id: str, reason: str) -> str:\n"
        '        """Take back a delivered lamp and refund its price to the customer\'s account.\n\n        Args:\n'
        "            order_id: Number of the order, such as '#L00000'.\n            reason: Why it comes back.\n\n"
        '        Returns:\n            What happened.\n        """\n        raise SystemExit("never run")\n\n'
        "    def _hidden(self):\n        pass\n",
    )
    return site


def agentdojo(site: Path) -> Path:
    suites = site / "agentdojo/default_suites"
    text(
        suites / "v1/office/user_tasks.py",
        "import nowhere\n\n\n@suite.register\nclass UserTask0(Base):\n    _WHO = 'Rosalind Achterberg'\n    _DAY = nowhere.day()\n"
        f'    PROMPT = f"{MEETING.replace("Rosalind Achterberg", "{_WHO}")}"\n',
    )
    text(
        suites / "v1/tools/diary.py",
        "import nowhere\n\nMyDiary = Annotated[Diary, Depends('diary')]\n\n\n"
        "def move_appointment(diary: MyDiary, inbox: Annotated[Inbox, Depends('inbox')], appointment: str, new_day: str) -> str:\n"
        '    """Move an appointment of the diary to another day and tell those who take part.\n\n'
        '    :param appointment: What is moved.\n    :param new_day: The day it moves to.\n    """\n',
    )
    return site


def tooltalk(site: Path) -> Path:
    turns = [{"index": 0, "role": "user", "text": "Could you water the ferns in the winter garden at six?"}, {"index": 1, "role": "assistant", "text": "Done."}]  # fmt: skip
    text(site / "tooltalk/data/easy/Water-easy.json", json.dumps({"name": "Water-easy", "conversation": turns}))
    text(
        site / "tooltalk/apis/garden.py",
        'class WaterPlants(API):\n    description = "Waters the plants of one bed for some minutes."\n'
        "    parameters = {'bed': {'type': 'string', 'description': 'Name of the bed.', 'required': True}}\n\n"
        "    def call(self, bed):\n        raise SystemExit\n",
    )
    return site


def acebench(checkout: Path) -> Path:
    entry = {"id": "agent_multi_step_0", "question": "Order two portions of mushroom soup from the Harbour Kitchen and pay from my travel purse.", "function": [{"name": "order_food", "description": "Order food from a kitchen that delivers.", "parameters": {"type": "object", "properties": {"kitchen": {"type": "string"}}}}]}  # fmt: skip
    lines(checkout / "data_all/data_en/data_agent_multi_step.json", [entry])
    lines(checkout / "data_all/data_en/possible_answer/data_agent_multi_step.json", [{"id": "x", "ground_truth": []}])
    return checkout


def workbench(checkout: Path) -> Path:
    path = checkout / "data/processed/queries_and_answers/calendar_queries_and_answers.csv"
    path.parent.mkdir(parents=True)
    with path.open("w", newline="", encoding="utf-8") as out:
        rows = csv.writer(out)
        rows.writerows([["query", "answer"], ["Call off all my meetings with Theodora on the second of June", "[]"]])
    text(checkout / "data/processed/emails.csv", "email_id,body\n1,hello\n")
    text(
        checkout / "src/tools/calendar.py",
        'import nowhere\n\n\n@tool("calendar.drop_event", return_direct=False)\ndef drop_event(event_id=None):\n'
        '    """\n    Drops an event from the calendar for good.\n\n    Parameters\n    ----------\n    event_id : str\n        Id.\n    """\n',
    )
    return checkout


PACKAGES = {
    "bfcl": bfcl,
    "tau2": tau2,
    "agentdojo": agentdojo,
    "tooltalk": tooltalk,
    "acebench": acebench,
    "workbench": workbench,
}
