"""Small trees of the shape of two repositories that are not served here; every line of them is ours."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from textwrap import dedent
from typing import Any


def written(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(content).lstrip(), encoding="utf-8")
    return root


def lines(rows: list[dict[str, Any]]) -> str:
    return "\n".join(json.dumps(row) for row in rows)


ROLE = """
from openai import OpenAI


class {agent}:
    def __init__(self, model_name, time, functions, language="zh", involved_class=()):
        self.client, self.model_name, self.functions, self.language = OpenAI(api_key=None), model_name, functions, language

    def respond(self, history):
        asked = [{{"role": "system", "content": self.language}}, {{"role": "user", "content": f"{{self.functions}} {{history}}"}}]
        made = self.client.chat.completions.create(messages=asked, model=self.model_name, temperature=0.001, max_tokens=1000)
        said = made.choices[0].message.content
        return {{"sender": "agent", "recipient": "execution" if said.startswith("[") else "user", "message": said}}
"""

EXECUTOR = """
import ast
import copy
import json

INSTANCES = {{}}


class Phone:
    def __init__(self):
        self.notes = {{}}
        self.secret = 0

    def write(self, text, tags=None):
        self.notes[len(self.notes)] = text
        return {{"status": "written"}}


def execute_agent_func_call(func_call_list, initial_config, involved_classes, model_name, test_entry_id, language):
    phone = INSTANCES.setdefault(f"{{model_name}}_{{test_entry_id}}", Phone())
    results = []
    for call in func_call_list:
        try:
            results.append(json.dumps(eval("phone." + call)))
        except Exception as error:
            return f"Error during execution: {{error}}", involved_classes
    return results, {{"Phone": phone}}


class {name}:
    def __init__(self, agent_model_name, initial_config, involved_classes, test_id, language):
        self.about = (initial_config, involved_classes, agent_model_name, test_id, language)

    def decode_function_list(self, message):
        body = ast.parse(message.strip("[]'"), mode="eval").body
        calls = body.elts if isinstance(body, ast.Tuple) else [body]
        return [ast.unparse(one) for one in calls]

    def respond(self, history):
        said = {{"sender": "execution", "recipient": "agent"}}
        {guard}
        results, instances = execute_agent_func_call(calls, *self.about)
        return {{**said, "message": list(results)}}, instances
"""
GUARDED = """try:
            calls = self.decode_function_list(history[-1]["message"])
        except Exception:
            return {**said, "message": "Use what you know."}, {}"""
SCENE = """
class {name}:
    def __init__(self, {question}, initial_state, functions, agent_role, language, user_role=None):
        self.dialogue_history = [{{"sender": "user", "recipient": "agent", "message": {question}}}]
        self.told = ""

    def get_inference_message(self):
        last = self.dialogue_history[-1]
        self.told += f"{{last['sender']}}:{{last['message']}}\\n"
        return self.told

    def add_dialogue(self, message):
        self.dialogue_history.append(message)
"""
USER = """
from openai import OpenAI


class APIUSER:
    def __init__(self, model_name, involved_class, language):
        self.client, self.model_name, self.messages = OpenAI(), model_name, []

    def get_init_prompt(self, question):
        self.messages = [{"role": "system", "content": question}, {"role": "user", "content": "Anything?"}]
        return self.respond()["message"]

    def step(self, message):
        self.messages.append({"role": "user", "content": message})

    def respond(self):
        made = self.client.chat.completions.create(messages=self.messages, model=self.model_name, temperature=0.001)
        self.messages.append({"role": "system", "content": made.choices[0].message.content})
        return {"sender": "user", "recipient": "agent", "message": made.choices[0].message.content}
"""
CHECKER = """
import no_such_package_that_makes_tables


def agent_checker(model_output, possible_answer):
    [found], [wanted] = model_output.values(), possible_answer.values()
    return {"valid": found == wanted}
"""


def acebench(root: Path) -> Path:
    """Three cases a kind: one note, two notes, and an answer with a misspelt class."""

    def entry(kind: str, number: int) -> dict[str, Any]:
        about = {"function": [{"name": "write"}], "initial_config": {}, "involved_classes": ["Phone"], "path": []}
        return {"id": f"agent_{kind}_{number}", "question": f"Write {number + 1} notes.", **about}

    def answer(kind: str, number: int) -> dict[str, Any]:
        notes = {str(one): f"note {one}" for one in range(number + 1)}
        truth: Any = [{"Phone" if number < 2 else "Fone": {"notes": notes}}]
        return {"id": f"agent_{kind}_{number}", "ground_truth": truth if number else truth[0], "mile_stone": []}

    data = {}
    for kind in ("multi_step", "multi_turn"):
        data[f"data_all/data_en/data_agent_{kind}.json"] = lines([entry(kind, n) for n in range(3)])
        data[f"data_all/data_en/possible_answer/data_agent_{kind}.json"] = lines([answer(kind, n) for n in range(3)])
    code = "model_inference/"
    return written(
        root,
        {
            **data,
            f"{code}apimodel_inference.py": 'import no_such_package\n\nSAVED_CLASS = {"Phone": ["notes"]}\n',
            f"{code}multi_step/APIModel_agent.py": ROLE.format(agent="APIAgent_step"),
            f"{code}multi_step/execution_role_step.py": EXECUTOR.format(name="EXECUTION_STEP", guard=GUARDED),
            f"{code}multi_step/multi_step_scene.py": SCENE.format(name="Mulit_Step_Scene", question="question"),
            f"{code}multi_turn/APIModel_agent.py": ROLE.format(agent="APIAgent_turn"),
            f"{code}multi_turn/APIModel_user.py": USER,
            f"{code}multi_turn/execution_role.py": EXECUTOR.format(
                name="EXECUTION", guard='calls = self.decode_function_list(history[-1]["message"])'
            ),
            f"{code}multi_turn/multi_turn_scene.py": SCENE.format(name="Scene", question="init_message"),
            "model_eval/checker.py": CHECKER,
        },
    )


MAIL = '''
import pandas as pd
from langchain.tools import tool

from src.data_generation.data_generation_utils import HARDCODED_CURRENT_TIME

EMAILS = pd.read_csv("data/processed/emails.csv", dtype=str)


def reset_state():
    global EMAILS
    EMAILS = pd.read_csv("data/processed/emails.csv", dtype=str)


@tool("email.send_email", return_direct=False)
def send_email(recipient=None, body=None):
    """
    Sends an email.

    Examples
    --------
    {{"sent": True}}
    """
    EMAILS.loc[len(EMAILS)] = [recipient, body, HARDCODED_CURRENT_TIME]
    return "Email sent successfully."


@tool("email.count_emails", return_direct=False)
def count_emails(sender=None):
    """Counts the emails of a sender."""
    return int((EMAILS["recipient"] == sender).sum())
'''
EVALS = """
from langchain_openai import ChatOpenAI
from langchain.agents import initialize_agent, AgentType
from src.tools import email

KEY = open("openai_key.txt", "r").read()
DOMAINS = [email]


def executed(actions):
    email.reset_state()
    for action in actions:
        try:
            eval(action)
        except Exception:
            continue
    state = email.EMAILS.copy()
    email.reset_state()
    return state


def is_correct(predicted, truth, error):
    assert KEY == ""
    return not error and executed(predicted).equals(executed(truth))
"""


def workbench(root: Path) -> Path:
    """Two requests that need an email and one that needs none."""
    send = "email.send_email.func(recipient='{}', body='{}')"
    rows = [
        {"query": "Write hello to ann", "answer": str([send.format("ann", "hello")])},
        {
            "query": "Write hello to ann and bob",
            "answer": str([send.format("ann", "hello"), send.format("bob", "hello")]),
        },
        {"query": "Write to eve if she has written", "answer": "[]"},
    ]
    written(
        root,
        {
            "data/processed/emails.csv": "recipient,body,sent\nme,first,2023-01-01\n",
            "openai_key.txt": "a-key-that-nobody-may-read",
            "src/tools/email.py": MAIL,
            "src/tools/toolkits.py": """
                from src.tools import email

                all_tools = [email.send_email, email.count_emails]
            """,
            "src/data_generation/data_generation_utils.py": """
                import pandas as pd

                HARDCODED_CURRENT_TIME = pd.to_datetime("2023-11-30T00:00:00")
            """,
            "src/evals/utils.py": EVALS,
        },
    )
    folder = root / "data/processed/queries_and_answers"
    folder.mkdir(parents=True)
    with (folder / "email_queries_and_answers.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, ["query", "answer"])
        table.writeheader()
        table.writerows(rows)
    return root
