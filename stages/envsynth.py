"""data/decompose/decompositions.jsonl -> data/envsynth/environments.jsonl: a code tool for every step (section 3.3.2).

For each sub-question that needs a tool: a tool document, the data that it works on, the call that answers the
sub-question, and a Python function. The function is run in the sandbox and accepted when it returns the expected answer
under a typed comparison; else its writer is shown what happened and tries again, a bounded number of times.

Departures: complexity is scaled in the data, not in the parameters: the answer's row stands among decoy rows, and
whoever writes the function is not told which row matters. The paper accepts when the answer is a substring of stdout.
Decoys of training tools hold nothing that is held out, and no decoy's value is an answer of the same question.

    python -m stages.envsynth
"""

from __future__ import annotations

import ast
import json
import random
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from pydantic import Field

from astra.answers import folded, matches, result_value
from astra.knowledge import Knowledge, KnowledgeError, Relation, Value
from astra.llm import Completion, ModelParams, Models, Request, RequestRefused, Settings
from astra.llm.reply import ReplyInvalid, parse_json, validate
from astra.prompts import render
from astra.records import (
    CodeTool,
    Decomposition,
    Environment,
    Message,
    Probe,
    Record,
    Section,
    Step,
    ToolSpec,
    canonical,
    content_id,
)
from astra.sandbox import Job, Pool, Result, open_pool
from astra.splits import Heldout
from astra.stage import Contract, Run, StageError


class Params(Section):
    decoys: int = Field(ge=1, le=200, description="Rows beside the answer's in each tool's table.")
    max_tries: int = Field(ge=1, le=10, description="Times that a function may be written before its question is lost.")
    backend: str = Field(description="Sandbox: auto, or a key of BACKENDS.")
    workers: int = Field(ge=2, le=64, description="Sandbox workers; as many as cores.")


CONTRACT = Contract(
    name="envsynth",
    reads={
        "decompositions": "data/decompose/decompositions.jsonl",
        "knowledge": "data/raw/knowledge/knowledge.yaml",
    },
    writes={"environments": "data/envsynth/environments.jsonl"},
    params={"seed": int, "envsynth": Params, "models.teacher": ModelParams},
    settings={"llm": Settings},
)

Ask = Callable[[Sequence[Request]], Sequence[Completion | RequestRefused]]


class Lost(Exception):
    """A question whose tools did not work out, with the reason that goes into rejects."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


# ---------------------------------------------------------------- documents


class Document(Record):
    """A tool document as the model writes it."""

    name: str
    description: str = Field(min_length=1)
    parameters: dict[str, Any]
    returns: dict[str, Any]


def document_prompt(relation: Relation) -> str:
    shown = {
        "name": relation.name,
        "label": relation.label,
        "entity": relation.table,
        "kind": relation.kind,
        "unit": relation.unit,
    }
    return render("envsynth/document", input=canonical({"relation": shown}))


def read_document(text: str, relation: Relation) -> Document:
    """The document in a reply. Raises Lost."""
    try:
        found = validate(Document, parse_json(text))
    except ReplyInvalid as error:
        raise Lost("document_invalid", str(error)) from None
    properties = found.parameters.get("properties", {})
    if found.name != relation.name or list(properties) != [relation.table]:
        raise Lost("document_invalid", f"{found.name}({', '.join(properties)}), not {relation.name}({relation.table})")
    if found.parameters.get("required") != [relation.table]:
        raise Lost("document_invalid", f"{relation.table} is not required")
    return found


# ---------------------------------------------------------------- data


def table_rows(
    step: Step, one: Decomposition, knowledge: Knowledge, heldout: Heldout, decoys: int, seed: int
) -> list[tuple[str, Value]]:
    """The step's fact among decoys, in an order that says nothing. Raises Lost where there are no decoys."""
    assert step.relation is not None
    assert step.subject is not None
    facts = knowledge.facts(step.relation)
    answers = {folded(str(other.answer.value)) for other in one.steps}

    def is_decoy(key: str, value: Value) -> bool:
        if folded(str(value)) in answers or key == step.subject:
            return False
        if one.split != "train":
            return True
        return (step.relation, key) not in heldout.facts and not {key, str(value)} & heldout.entities

    rng = random.Random(f"{seed}:{one.id}:{step.id}")
    options = [(key, value) for key, value in facts.items() if is_decoy(key, value)]
    if not options:
        raise Lost("no_decoys", f"step {step.id}: {step.relation} has no other value than the answers of the question")
    rows = [(step.subject, facts[step.subject]), *rng.sample(options, min(decoys, len(options)))]
    rng.shuffle(rows)
    return rows


# ---------------------------------------------------------------- calls


class CallReply(Record):
    name: str
    arguments: dict[str, Any]


def call_prompt(document: Document, step: Step) -> str:
    tool = document.model_dump(include={"name", "description", "parameters"})
    return render("envsynth/call", input=canonical({"tool": tool, "question": step.question}))


def read_call(text: str, document: Document, step: Step) -> dict[str, Any]:
    """The arguments of the call in a reply: data, never executed. Raises Lost."""
    try:
        found = validate(CallReply, parse_json(text))
    except ReplyInvalid as error:
        raise Lost("call_invalid", str(error)) from None
    if found.name != document.name or found.arguments.keys() != document.parameters["properties"].keys():
        raise Lost("call_invalid", f"step {step.id}: {found.name} with {sorted(found.arguments)}")
    return found.arguments


# ---------------------------------------------------------------- code


class NoCode(Exception):
    """A reply without a usable function; the message can be shown to its writer."""


_FENCE = re.compile(r"^[ \t]*```[ \t]*(?:(?:python3?|py)\b)?[ \t]*", re.MULTILINE | re.IGNORECASE)


def extract_code(reply: str, function: str) -> str:
    """The last whole program in a reply that compiles and defines the function at top level. Raises NoCode.

    A program is what stands between two fence lines, or between a fence line and the beginning or end of the reply;
    a fence inside a string does not end it, since what is cut there does not compile.
    """
    marks = [0, *(place for fence in _FENCE.finditer(reply) for place in (fence.start(), fence.end())), len(reply)]
    starts = marks[0::2]
    ends = marks[1::2]
    for start in reversed(starts):
        for end in reversed([end for end in ends if end > start]):
            code = reply[start:end].strip("\n")
            if _defines(code, function):
                return code + "\n"
    raise NoCode(f"the reply holds no Python program that defines {function}")


def _defines(code: str, function: str) -> bool:
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(isinstance(node, ast.FunctionDef) and node.name == function for node in tree.body)


def code_prompt(spec: ToolSpec, rows: Sequence[tuple[str, Value]]) -> str:
    """What the writer of the function sees: the document and all rows; neither the question nor the answer."""
    tool = spec.model_dump(include={"name", "description", "parameters", "returns"})
    return render("envsynth/code", input=canonical({"tool": tool, "rows": rows}))


def complaint(result: Result, arguments: Mapping[str, Any]) -> str:
    """What went wrong with a call, for the writer of the code; the expected answer is not told."""
    call = json.dumps(arguments, ensure_ascii=False)
    if result.ok:
        return f"called with {call} the function returns another value than its table has for these arguments"
    return f"called with {call} the function fails: {result.status}: {result.error_type} {result.error}".rstrip()


# ---------------------------------------------------------------- one question's tools on their way


@dataclass
class Making:
    """One step's tool while it is made."""

    owner: str  # id of the question
    step: Step
    spec: ToolSpec
    arguments: dict[str, Any]
    messages: tuple[Message, ...]
    code: str | None = None
    trouble: str = ""
    tries: int = 0

    @property
    def tool(self) -> CodeTool:
        assert self.code is not None
        return CodeTool(spec=self.spec, code=self.code, serves=(self.step.id,))

    @property
    def probe(self) -> Probe:
        return Probe(step=self.step.id, tool=self.spec.name, arguments=self.arguments, expected=self.step.answer)


def unique_name(name: str, taken: set[str]) -> str:
    """The name, or with ``_2``, ``_3`` where a tool of the same question has it."""
    number = 1
    while (found := name if number == 1 else f"{name}_{number}") in taken:
        number += 1
    return found


class Reply(NamedTuple):
    """What a request gave, by its prompt."""

    texts: dict[str, str]
    refused: dict[str, RequestRefused]

    def text(self, prompt: str) -> str:
        """The reply. Raises Lost where the request was refused."""
        if prompt in self.refused:
            raise Lost(self.refused[prompt].reason, self.refused[prompt].detail)
        return self.texts[prompt]


@dataclass
class Synthesis:
    """Makes the tools of all questions, step by step for all of them together."""

    knowledge: Knowledge
    heldout: Heldout
    params: Params
    model: ModelParams
    seed: int
    ask: Ask
    pool: Pool
    lost: dict[str, Lost] = field(default_factory=dict)
    n_written: int = 0
    n_retried: int = 0

    def environments(self, questions: Sequence[Decomposition]) -> list[Environment]:
        """One environment for every question that worked out, in their order; the others are in ``lost``."""
        makings = self._begin(questions)
        open_ = [one for many in makings.values() for one in many]
        for _ in range(self.params.max_tries):
            open_ = [one for one in self._try(open_) if one.owner not in self.lost]
            if not open_:
                break
        for one in open_:
            self.lost.setdefault(one.owner, Lost("code_failed", f"step {one.step.id}: {one.trouble}"[:500]))
        return [_environment(one, makings[one.id]) for one in questions if one.id not in self.lost]

    def _begin(self, questions: Sequence[Decomposition]) -> dict[str, list[Making]]:
        """Documents, rows and calls of all steps that need a tool."""
        documents = self._documents(questions)
        prompts = list(dict.fromkeys(
            call_prompt(documents[step.relation or ""], step)
            for one in questions for step in one.steps if step.needs_tool and step.relation in documents
        ))  # fmt: skip
        calls = self._asked(prompts, CallReply.model_json_schema())
        makings: dict[str, list[Making]] = {}
        for one in questions:
            try:
                makings[one.id] = list(self._makings(one, documents, calls))
            except Lost as why:
                self.lost[one.id] = why
        return makings

    def _documents(self, questions: Sequence[Decomposition]) -> dict[str, Document]:
        """One document a relation: it must fit every subject, so it is written once."""
        names = sorted({step.relation for one in questions for step in one.steps if step.needs_tool and step.relation})
        prompts = {name: document_prompt(self.knowledge.relations[name]) for name in names}
        replies = self._asked(list(prompts.values()), Document.model_json_schema())
        found: dict[str, Document] = {}
        for name, prompt in prompts.items():
            try:
                found[name] = read_document(replies.text(prompt), self.knowledge.relations[name])
            except Lost as why:
                self.lost[name] = why
        return found

    def _makings(self, one: Decomposition, documents: Mapping[str, Document], calls: Reply) -> Iterator[Making]:
        taken: set[str] = set()
        for step in one.steps:
            if not step.needs_tool:
                continue
            if step.relation not in documents:
                why = self.lost.get(step.relation or "", Lost("no_relation", f"step {step.id} reads no table"))
                raise Lost(why.reason, why.detail)
            document = documents[step.relation or ""]
            name = unique_name(document.name, taken)
            taken.add(name)
            spec = ToolSpec.model_validate({**document.model_dump(), "name": name})
            rows = table_rows(step, one, self.knowledge, self.heldout, self.params.decoys, self.seed)
            arguments = read_call(calls.text(call_prompt(document, step)), document, step)
            yield Making(one.id, step, spec, arguments, (Message(role="user", content=code_prompt(spec, rows)),))

    def _asked(self, prompts: Sequence[str], schema: dict[str, Any]) -> Reply:
        requests = [
            replace(self._request((Message(role="user", content=prompt),), 0), json_schema=schema) for prompt in prompts
        ]
        texts: dict[str, str] = {}
        refused: dict[str, RequestRefused] = {}
        for prompt, reply in zip(prompts, self.ask(requests), strict=True):
            if isinstance(reply, RequestRefused):
                refused[prompt] = reply
            else:
                texts[prompt] = reply.content or ""
        return Reply(texts, refused)

    def _request(self, messages: tuple[Message, ...], sample: int) -> Request:
        return Request(model=self.model, messages=messages, seed=self.seed, sample=sample)

    def _try(self, open_: Sequence[Making]) -> list[Making]:
        """Write each function once more and run it; those that do not work yet."""
        replies = self.ask([self._request(one.messages, one.tries) for one in open_])
        for one, reply in zip(open_, replies, strict=True):
            one.code, one.tries = None, one.tries + 1
            if isinstance(reply, RequestRefused):
                self.lost.setdefault(one.owner, Lost(reply.reason, reply.detail))
                continue
            try:
                one.code = extract_code(reply.content or "", one.spec.name)
            except NoCode as why:
                self._again(one, reply.content or "", str(why))
        written = [one for one in open_ if one.code is not None]
        self.n_written += len(written)
        for one, (result,) in zip(written, self.pool.map([_golden(one) for one in written]), strict=True):
            if not (result.ok and matches(one.step.answer, result_value(result.value))):
                self._again(one, f"```python\n{one.code}```", complaint(result, one.arguments))
                one.code = None
        return [one for one in open_ if one.code is None]

    def _again(self, one: Making, said: str, trouble: str) -> None:
        self.n_retried += 1
        one.trouble = trouble
        one.messages = (
            one.messages[0],
            Message(role="assistant", content=said),
            Message(role="user", content=f"This does not work: {trouble}. Reply with the whole corrected program."),
        )


def _golden(one: Making) -> Job:
    assert one.code is not None
    return Job(one.code, one.spec.name, (one.arguments,))


def _environment(one: Decomposition, makings: Sequence[Making]) -> Environment:
    tools, probes = tuple(making.tool for making in makings), tuple(making.probe for making in makings)
    return Environment(
        id=content_id("environment", one.id, [tool.code for tool in tools]),
        decomposition_id=one.id,
        domain=one.domain,
        shape=one.shape,
        question=one.question,
        answer=one.answer,
        steps=one.steps,
        tools=tools,
        probes=probes,
        split=one.split,
    )


def main(arguments: Sequence[str] = ()) -> None:
    with Run(CONTRACT, arguments) as run, Models(run) as models:
        params: Params = run.params["envsynth"]
        model: ModelParams = run.params["models.teacher"]
        try:
            knowledge = Knowledge.load(run.path("knowledge"))
        except KnowledgeError as error:
            raise StageError(str(error)) from None
        questions = run.read("decompositions", Decomposition)
        ask = models.client("teacher").ask_all
        with open_pool(params.backend, params.workers) as pool:
            synthesis = Synthesis(knowledge, Heldout.of(questions), params, model, run.params["seed"], ask, pool)
            found = synthesis.environments(questions)
        for one in questions:
            if one.id in synthesis.lost:
                run.reject(one.id, synthesis.lost[one.id].reason, synthesis.lost[one.id].detail)
        run.n_in, run.n_out = len(questions), run.write("environments", found)
        run.metrics |= {
            "backend": pool.backend,
            "tools": sum(len(one.tools) for one in found),
            "functions_written": synthesis.n_written,
            "retried": synthesis.n_retried,
        }


if __name__ == "__main__":
    main(sys.argv[1:])
