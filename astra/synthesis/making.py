"""Makes the tools of all questions together: documents, calls, data, then the functions, tried and written again.

A function is written once for all questions that read the same relation, once for every other sub-question, and its
writer never sees their data. What fails goes back to its writer with what happened, a bounded number of times; each
try that failed is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from astra.knowledge import Knowledge
from astra.llm.reply import ReplyInvalid
from astra.records import Answer, CodeTool, Decomposition, Environment, Probe, Step, ToolSpec, content_id
from astra.splits import Heldout
from astra.synthesis import documents, tryout
from astra.synthesis.calls import Call, call_prompt, read_call
from astra.synthesis.code import code_prompt, renamed
from astra.synthesis.documents import Document
from astra.synthesis.lost import Lost
from astra.synthesis.rows import (
    Row,
    RowsReply,
    invented_rows,
    knowledge_examples,
    knowledge_rows,
    program,
    read_rows,
    rows_prompt,
)
from astra.synthesis.tryout import Case
from astra.synthesis.writing import Order, Wanted, Writer

N_EXAMPLES = 3  # rows that the writer of a function sees

Key = tuple[str, int]  # question and step
Needed = dict[Key, tuple[Decomposition, Step]]


class Sizes(NamedTuple):
    """How much is made for each tool."""

    decoys: int
    extra_parameters: int


@dataclass
class Making:
    """One step's tool while it is made."""

    question: Decomposition
    step: Step
    document: Document
    arguments: dict[str, str]
    rows: list[Row]
    function: str | None = None

    def tool(self, name: str) -> CodeTool:
        """The tool under a name that is free in its question."""
        assert self.function is not None
        spec = ToolSpec.model_validate({**self.document.model_dump(), "name": name})
        code = program(self.rows, renamed(self.function, self.document.name, name))
        return CodeTool(spec=spec, code=code, serves=(self.step.id,))


def unique_name(name: str, taken: set[str]) -> str:
    """The name, or with ``_2``, ``_3`` where a tool of the same question has it."""
    number = 1
    while (found := name if number == 1 else f"{name}_{number}") in taken:
        number += 1
    return found


@dataclass
class Synthesis:
    """Makes environments; what did not work out is in ``lost``, by question."""

    knowledge: Knowledge
    heldout: Heldout
    sizes: Sizes
    writer: Writer
    seed: int
    lost: dict[str, Lost] = field(default_factory=dict)

    def environments(self, questions: Sequence[Decomposition]) -> list[Environment]:
        """One environment for every question that worked out, in their order."""
        needed = {(one.id, step.id): (one, step) for one in questions for step in one.steps if step.needs_tool}
        made = self._makings(needed, self._documents(needed))
        groups = self._groups([made[key] for key in needed if key in made])
        asked = frozenset((step.relation or "", step.subject or "") for _, step in needed.values())
        orders = [self._order(about, some, asked | self.heldout.facts) for about, some in groups.items()]
        self.writer.write(orders)
        self._conclude(orders, groups)
        return [
            environment(one, [made[one.id, step.id] for step in one.steps if step.needs_tool])
            for one in questions
            if one.id not in self.lost
        ]

    # ------------------------------------------------------------ documents

    def _documents(self, needed: Needed) -> dict[Key, Document]:
        """The document of every step's tool: one for all steps of a relation, else one for each sub-question."""
        wanted: dict[Key, Wanted] = {key: self._document_wanted(*pair) for key, pair in needed.items()}
        found = self.writer.asked("document", wanted.values(), Document.model_json_schema())
        if self.sizes.extra_parameters:
            found = self._scaled(wanted, needed, found)
        kept: dict[Key, Document] = {}
        for key, one in wanted.items():
            document = found[one.about]
            if isinstance(document, Lost):
                self._lose(key, document)
            else:
                kept[key] = document
        return kept

    def _document_wanted(self, one: Decomposition, step: Step) -> Wanted:
        if self._is_tabled(one, step):
            relation = self.knowledge.relations[step.relation or ""]
            return Wanted(
                relation.name, documents.relation_prompt(relation),
                lambda text: documents.read_relation_document(text, relation),
            )  # fmt: skip
        prompt = documents.question_prompt(step, one.language)
        return Wanted(_about(one, step), prompt, lambda text: documents.read_question_document(text, step))

    def _scaled(
        self, wanted: dict[Key, Wanted], needed: Needed, found: dict[str, Document | Lost]
    ) -> dict[str, Document | Lost]:
        """The documents with optional parameters; one that cannot be scaled stays as it is."""
        most = self.sizes.extra_parameters
        scaling: dict[str, Wanted] = {}
        for key, one in wanted.items():
            before, answer = found[one.about], needed[key][1].answer
            if not isinstance(before, Lost) and one.about not in scaling:
                prompt = documents.scaling_prompt(before, answer, most)
                scaling[one.about] = Wanted(one.about, prompt, _scaled_reader(before, answer, most))
        scaled = self.writer.asked("scaling", scaling.values(), Document.model_json_schema())
        return {about: _either(scaled.get(about), before) for about, before in found.items()}

    # ------------------------------------------------------------ calls and data

    def _makings(self, needed: Needed, found: dict[Key, Document]) -> dict[Key, Making]:
        open_ = {key: needed[key] for key in found if key[0] not in self.lost}
        calls = self._calls(open_, found)
        decoys = self._invented(open_, found, calls)
        makings: dict[Key, Making] = {}
        for key, (one, step) in open_.items():
            arguments = calls[key]
            try:
                if isinstance(arguments, Lost):
                    raise arguments
                makings[key] = Making(one, step, found[key], arguments, self._rows(one, step, arguments, decoys))
            except Lost as why:
                self._lose(key, why)
        return {key: making for key, making in makings.items() if key[0] not in self.lost}

    def _calls(self, open_: Needed, found: dict[Key, Document]) -> dict[Key, dict[str, str] | Lost]:
        wanted = {key: self._call_wanted(*pair, found[key]) for key, pair in open_.items()}
        replies = self.writer.asked("call", wanted.values(), Call.model_json_schema())
        return {key: replies[one.about] for key, one in wanted.items()}

    def _call_wanted(self, one: Decomposition, step: Step, document: Document) -> Wanted:
        is_tabled = self._is_tabled(one, step)

        def read(text: str) -> dict[str, str]:
            arguments = read_call(text, document, step)
            if is_tabled and list(arguments.values()) != [step.subject]:
                raise ReplyInvalid(f"no entry is for {arguments}; take the value as it stands in the question")
            return arguments

        about = f"{document.name}: {step.question}" if is_tabled else _about(one, step)
        return Wanted(about, call_prompt(document, step), read)

    def _invented(
        self, open_: Needed, found: dict[Key, Document], calls: dict[Key, Any]
    ) -> dict[str, list[Row] | Lost]:
        """Decoys for the steps that read no table of the knowledge."""
        wanted = [
            Wanted(
                _about(one, step), rows_prompt(found[key], step, calls[key], self.sizes.decoys),
                _rows_reader(found[key], step, one, calls[key], self.sizes.decoys),
            )
            for key, (one, step) in open_.items()
            if not self._is_tabled(one, step) and not isinstance(calls[key], Lost)
        ]  # fmt: skip
        return self.writer.asked("rows", wanted, RowsReply.model_json_schema())

    def _rows(
        self, one: Decomposition, step: Step, arguments: dict[str, str], decoys: dict[str, list[Row] | Lost]
    ) -> list[Row]:
        """The step's data. Raises Lost."""
        if self._is_tabled(one, step):
            return knowledge_rows(step, one, self.knowledge, self.heldout, self.sizes.decoys, self.seed)
        found = decoys[_about(one, step)]
        if isinstance(found, Lost):
            raise found
        return invented_rows(step, one, arguments, found, self.seed)

    # ------------------------------------------------------------ functions

    def _groups(self, makings: Sequence[Making]) -> dict[str, list[Making]]:
        """The makings that one function is to serve."""
        groups: dict[str, list[Making]] = {}
        for one in makings:
            is_tabled = self._is_tabled(one.question, one.step)
            about = one.step.relation or "" if is_tabled else _about(one.question, one.step)
            groups.setdefault(about, []).append(one)
        return groups

    def _order(self, about: str, makings: Sequence[Making], asked: frozenset[tuple[str, str]]) -> Order:
        first = makings[0]
        if self._is_tabled(first.question, first.step):
            rows = knowledge_examples(about, self.knowledge, asked, N_EXAMPLES)
        else:
            golden = tuple(first.arguments.values())
            rows = [row for row in first.rows if row.keys != golden][:N_EXAMPLES]
        examples = tryout.examples_or_placeholders(rows, first.document.keys, first.step.answer)
        prompt = code_prompt(first.document, first.step.answer, examples)
        cases = [Case(one.rows, one.arguments, one.step.answer) for one in makings]
        return Order(about, "code", first.document, first.step.answer, examples, cases, prompt)

    def _conclude(self, orders: Sequence[Order], groups: dict[str, list[Making]]) -> None:
        """Give the makings their functions; a question with one that has none is lost."""
        for order in orders:
            functions = order.functions or [None] * len(order.cases)
            for one, function in zip(groups[order.about], functions, strict=True):
                one.function = function
                if function is None:
                    self._lose((one.question.id, one.step.id), Lost(order.reason, order.trouble))

    def _is_tabled(self, one: Decomposition, step: Step) -> bool:
        """Whether the step reads a table of the knowledge; elsewhere relation and subject are free words."""
        relation = step.relation or ""
        known = one.origin == "tables" and relation in self.knowledge.relations
        return known and step.subject in self.knowledge.facts(relation)

    def _lose(self, key: Key, why: Lost) -> None:
        self.lost.setdefault(key[0], Lost(why.reason, f"step {key[1]}: {why.detail}"[:500]))


def _about(one: Decomposition, step: Step) -> str:
    return f"{one.id}:{step.id}"


def _either(scaled: Document | Lost | None, before: Document | Lost) -> Document | Lost:
    return before if scaled is None or isinstance(scaled, Lost) else scaled


def _scaled_reader(before: Document, answer: Answer, most: int) -> Callable[[str], Document]:
    return lambda text: documents.read_scaled(text, before, answer, most)


def _rows_reader(
    document: Document, step: Step, one: Decomposition, arguments: dict[str, str], decoys: int
) -> Callable[[str], list[Row]]:  # fmt: skip
    return lambda text: read_rows(text, document, step, one, arguments, decoys)


def environment(one: Decomposition, makings: Sequence[Making]) -> Environment:
    """The question with its tools, each under a name of its own."""
    tools: list[CodeTool] = []
    for making in makings:
        tools.append(making.tool(unique_name(making.document.name, {tool.spec.name for tool in tools})))
    probes = tuple(
        Probe(step=making.step.id, tool=tool.spec.name, arguments=making.arguments, expected=making.step.answer)
        for making, tool in zip(makings, tools, strict=True)
    )
    return Environment(
        id=content_id("environment", one.id, [tool.code for tool in tools]),
        decomposition_id=one.id,
        domain=one.domain,
        shape=one.shape,
        question=one.question,
        answer=one.answer,
        steps=one.steps,
        tools=tuple(tools),
        probes=probes,
        split=one.split,
        origin=one.origin,
    )
