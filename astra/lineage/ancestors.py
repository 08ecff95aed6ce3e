"""What a record was made from, down to the tool document or the knowledge row, with the gates of every step."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

from astra.lineage.addresses import edge_address, rollout_address, sample_address
from astra.lineage.files import STAGES, Files, Found, RowPlace, quoted
from astra.lineage.nodes import Gate, Node
from astra.lineage.runs import Runs
from astra.lineage.sources import Sources
from astra.records import (
    Arena,
    Certificate,
    Chain,
    Decomposition,
    Edge,
    Environment,
    Record,
    Reject,
    Rollout,
    Sample,
    Scorecard,
    Server,
    Task,
    ToolGraph,
    Trajectory,
    Verdict,
)

MODELS = "models"


@dataclass
class Ancestors:
    """Lineages upwards over the files of a run."""

    files: Files
    runs: Runs = field(init=False)
    sources: Sources = field(init=False)

    def __post_init__(self) -> None:
        self.runs, self.sources = Runs(self.files), Sources(self.files)

    def of(self, found: Found[Any]) -> Node:
        """The node of a record, whatever its kind."""
        makers: dict[type[Record], Callable[[Any], Node]] = {
            Server: self.server, ToolGraph: self.graph, Chain: self.chain, Task: self.task,
            Trajectory: self.trajectory, Scorecard: self.scorecard, Decomposition: self.decomposition,
            Environment: self.environment, Arena: self.arena, Rollout: self.rollout, Sample: self.sample,
        }  # fmt: skip
        return makers[type(found.record)](found)

    def _by_id(self, kind: type[Any], record_id: str) -> Node:
        """The parent of that id; a link that leads nowhere is shown as such."""
        found = self.files.get(kind, record_id)
        if found is not None:
            return self.of(found)
        return Node(kind.__name__.lower(), record_id, "", "named here, but no file of the run has it", missing=True)

    # tools

    def server(self, found: Found[Server]) -> Node:
        one = found.record
        notes = sorted({note for tool in one.tools for note in tool.notes})
        gates = tuple(Gate("note of normalize", "noted", note) for note in notes)
        says = f"{one.name}: {one.title}; {len(one.tools)} tools, domain {one.domain}"
        parents = (self.sources.document(one),)
        return Node("server", one.id, found.where, says, self.runs.made(Server), gates, parents)

    def tool(self, found: Found[Server], name: str) -> Node:
        """One tool of a server."""
        tool = next(one for one in found.record.tools if one.name == name)
        gates = tuple(Gate("note of normalize", "noted", note) for note in tool.notes)
        node_id = f"{found.record.id}/{name}"
        return Node("tool", node_id, found.where, tool.description, gates=gates, parents=(self.server(found),))

    def graph(self, found: Found[ToolGraph]) -> Node:
        one = found.record
        parents = (self._by_id(Server, one.server_id),)
        return Node("graph", one.id, found.where, f"{len(one.edges)} edges", self.runs.made(ToolGraph), (), parents)

    def edge(self, found: Found[ToolGraph], edge: Edge, *, short: bool = False) -> Node:
        """One edge, and why it is there; ``short`` where its server stands beside it anyway."""
        votes = Gate("proposals of the model", "noted", f"{edge.votes_for} of {edge.votes} hold it")
        via = (
            Gate(
                f"{link.output} -> {link.parameter}", "noted", ", ".join(f"{k} {v:g}" for k, v in link.evidence.items())
            )
            for link in edge.via
        )
        node_id = edge_address(found.record, edge)
        servers = dict.fromkeys([found.record.server_id, edge.target_server_id or found.record.server_id])
        parents = () if short else tuple(self._by_id(Server, one) for one in servers)
        says = f"weight {edge.weight:g}"
        return Node("edge", node_id, found.where, says, self.runs.made(ToolGraph), (votes, *via), parents)

    def chain(self, found: Found[Chain]) -> Node:
        one = found.record
        gates = tuple(Gate(name, "passed", what) for name, what in one.checks.items())
        servers = tuple(self._by_id(Server, server_id) for server_id in one.server_ids)
        says = f"{' -> '.join(one.tools)}; support {one.support:g}"
        parents = (*self._edges(one), *servers)
        return Node("chain", one.id, found.where, says, self.runs.made(Chain), gates, parents)

    def _edges(self, chain: Chain) -> Iterator[Node]:
        """The edges that were walked."""
        graphs = [graph for one in chain.server_ids for graph in self._graphs if graph.record.server_id == one]
        for pair in pairwise(chain.tools):
            for graph in graphs:
                fitting = [edge for edge in graph.record.edges if (edge.source, edge.target) == pair]
                yield from (self.edge(graph, edge, short=True) for edge in fitting[:1])

    @cached_property
    def _graphs(self) -> list[Found[ToolGraph]]:
        return list(self.files.find(ToolGraph, b"{"))

    # the imitation line

    def task(self, found: Found[Task]) -> Node:
        one = found.record
        gates = tuple(_judged(one.quality))
        made = self.runs.made(Task, one.question)
        if one.parent is not None:
            parents: tuple[Node, ...] = (self._by_id(Task, one.parent),)
        elif one.chain_id is not None:
            parents = (self._by_id(Chain, one.chain_id),)
        else:
            parents = tuple(self._by_id(Server, server_id) for server_id in one.server_ids)
        how = f"{one.origin}, {one.augmentation}, {one.kind}"
        return Node("task", one.id, found.where, f"({how}) {one.question}", made, gates, parents)

    def trajectory(self, found: Found[Trajectory]) -> Node:
        one = found.record
        said = [message.content for message in one.messages if message.role == "assistant"]
        called = sorted({call.function.name for message in one.messages for call in message.tool_calls})
        by = sorted({message.executed_by for message in one.messages if message.executed_by})
        faults = [message.fault for message in one.messages if message.fault]
        gates = [Gate("ended", "passed" if one.stop == "answered" else "noted", one.stop)]
        gates += [Gate("injected fault", "noted", fault) for fault in faults]
        says = f"attempt {one.attempt} of {one.model}: {len(one.messages)} messages"
        says += f"; called {', '.join(called) or 'nothing'}" + (f"; answered by {', '.join(by)}" if by else "")
        says += f"; never offered: {', '.join(one.withheld)}" if one.withheld else ""
        made = self.runs.made(Trajectory, *said)
        parents = (self._by_id(Task, one.task_id),)
        return Node("trajectory", one.id, found.where, says, made, tuple(gates), parents)

    def scorecard(self, found: Found[Scorecard]) -> Node:
        return self._scorecard(found, (self._by_id(Trajectory, found.record.trajectory_id),))

    def _scorecard(self, found: Found[Scorecard], parents: tuple[Node, ...]) -> Node:
        one = found.record
        gates = list(_judged(one.dimensions))
        gates += [Gate(name, "noted", f"does not apply: {why}") for name, why in one.not_applicable.items()]
        gates += [
            Gate(f"rule: {fact.kind}", "noted", f"message {fact.message}: {fact.detail}") for fact in one.evidence
        ]
        made = self.runs.made(Scorecard, *(verdict.reason for verdict in one.dimensions.values()))
        return Node("scorecard", one.id, found.where, f"overall {one.overall:.3f}", made, tuple(gates), parents)

    def card_of(self, trajectory_id: str) -> Found[Scorecard] | None:
        wanted = self.files.find(Scorecard, quoted(trajectory_id), lambda one: one.trajectory_id == trajectory_id)
        return next(wanted, None)

    # the arena line

    def decomposition(self, found: Found[Decomposition]) -> Node:
        one = found.record
        gates = tuple(Gate(name, "passed", f"{score:g}") for name, score in one.checks.items())
        quality = Gate("QS", "passed", f"{one.quality:g}")
        made = self.runs.made(Decomposition, one.question)
        facts = [self.sources.of_step(one, step) for step in one.steps]
        if one.origin == "given":
            facts.append(self.sources.question(one))
        says = f"({one.shape}, split {one.split}) {one.question}"
        return Node("decomposition", one.id, found.where, says, made, (*gates, quality), tuple(facts))

    def environment(self, found: Found[Environment]) -> Node:
        one = found.record
        said = {one.question, *(step.relation for step in one.steps)}
        tries = self._tries("envsynth", {text for text in said if text})
        golden = (_golden(one) for _ in one.probes[:1])
        tools = ", ".join(tool.spec.name for tool in one.tools)
        made = self.runs.made(Environment, *(tool.code for tool in one.tools))
        parents = (self._by_id(Decomposition, one.decomposition_id),)
        says = f"{len(one.tools)} tools: {tools}"
        return Node("environment", one.id, found.where, says, made, (*golden, *tries), parents)

    def _tries(self, stage: str, about: set[str]) -> Iterator[Gate]:
        """Replies about its tools that were not taken, and why."""
        for text in sorted(about):
            for found in self.files.tries(stage, quoted(text)[1:-1]):
                one = found.record
                yield Gate(f"{one.part} try {one.number} of {one.about}", "failed", one.trouble)

    def arena(self, found: Found[Arena]) -> Node:
        one = found.record
        gates = tuple(_certified(one.certificate))
        made = self.runs.made(Arena, *(tool.code for tool in one.tools))
        tools = ", ".join(tool.spec.name for tool in one.tools)
        base = one.id if one.variant is None else one.variant.base
        says = f"({one.shape}, split {one.split}) tools {tools}; {one.question}"
        parents: tuple[Node, ...] = (self._by_id(Environment, base),)
        if one.variant is not None:
            says = f"variant {one.variant.kind} of {base}: without {', '.join(one.variant.names)}; {says}"
        return Node("arena", one.id, found.where, says, made, gates, parents)

    # training and measuring

    def row(self, row: RowPlace) -> Node:
        """A training row and the conversation that it is."""
        whole = row.parent or row.id
        made = self.runs.made_by("sft", row.path)
        turn = f", turn {row.turn} of {row.parent}" if row.parent else ""
        says = f"{row.origin}, {row.tokens} tokens{turn}"
        if row.origin == "imitation":
            card = self.card_of(whole)
            talk = self._by_id(Trajectory, whole)
            score = None if card is None else card.record.overall
            parents = (talk,) if card is None else (self._scorecard(card, ()), talk)
            return Node("training row", row.id, row.where, says, made, tuple(self._row_gates(row, score)), parents)
        arena_id, _, number = whole.rpartition(":")
        parents = (self._by_id(Arena, arena_id),)
        says += f"; demonstration {number} of the teacher in {arena_id}"
        return Node("training row", row.id, row.where, says, made, tuple(self._row_gates(row, None)), parents)

    def _row_gates(self, row: RowPlace, score: float | None) -> Iterator[Gate]:
        """What a row passed to be trained on: sft rejects what does not."""
        sft = self.runs.params("sft").get("sft", {})
        if row.origin == "imitation":
            least = sft.get("min_score")
            limit = "" if least is None else f", sft.min_score is {least}"
            yield Gate("min_score", "passed", f"{score if score is None else f'{score:.3f}'}{limit}")
        if "max_length" in sft:
            yield Gate("max_length", "passed", f"{row.tokens} tokens, sft.max_length is {sft['max_length']}")
        yield Gate("held out", "passed", "shares no question, fact, composition, entity or tool with a held-out arena")
        yield from self._decontaminated()

    def _decontaminated(self) -> Iterator[Gate]:
        report = self.files.root / "data/sft/decontamination.json"
        if not report.is_file():
            return
        held = json.loads(report.read_text("utf-8"))
        seen = [one if isinstance(one, str) else one["benchmark"] for one in held["fingerprinted"]]
        if seen:
            yield Gate("decontamination", "passed", f"like no case of {', '.join(seen)}")
        if absent := [one["benchmark"] for one in held["not_available"]]:
            yield Gate("decontamination", "noted", f"not compared with {', '.join(absent)}: waived by name")

    def rollout(self, found: Found[Rollout]) -> Node:
        one = found.record
        says = (
            f"solved {one.solved} of {one.n_required} in {one.n_calls} calls, reward {one.reward:g}, ended: {one.stop}"
        )
        parents = (self._by_id(Arena, one.arena_id), self._model("sft", "models/sft"))
        return Node("rollout", rollout_address(one), found.where, says, self.runs.made(Rollout), (), parents)

    def sample(self, found: Found[Sample]) -> Node:
        one = found.record
        scores = ", ".join(f"{name} {value:g}" for name, value in one.scores.items())
        gates = (Gate("machinery", "failed", one.error),) if one.error else ()
        case = (self._by_id(Arena, one.case),) if one.case.startswith("environment-") else ()
        parents = (*case, self._model(one.model, f"{MODELS}/{one.model}"))
        says = f"{one.model} on {one.benchmark}, case {one.case}, trial {one.trial}, {one.mode}: {scores}"
        return Node("sample", sample_address(one), found.where, says, self.runs.made(Sample), gates, parents)

    def _model(self, name: str, folder: str) -> Node:
        """A trained model, by what its provenance says."""
        file = self.files.root / folder / "provenance.json"
        if not file.is_file():
            return Node("model", name, folder, "no provenance.json there", missing=not file.parent.is_dir())
        held = json.loads(file.read_text("utf-8"))
        inputs = (Gate("input", "noted", f"{path} sha256 {digest[:12]}") for path, digest in held["inputs"].items())
        packages = ", ".join(f"{one} {release}" for one, release in held["packages"].items())
        seed = held["params"].get("seed")
        says = f"by {held['stage']} from {held['base']}, seed {seed}, code {held['code'][:12]}; {packages}"
        return Node("model", name, folder, says, gates=tuple(inputs))

    # what went no further

    def reject(self, stage: str, found: Found[Reject], parents: Sequence[Node]) -> Node:
        one = found.record
        made = self.runs.made_by(stage, found.path)
        gate = Gate(one.reason, "failed", one.detail)
        return Node("reject", one.id, found.where, f"rejected by {stage}", made, (gate,), tuple(parents))

    def rejects_of(self, record_id: str) -> list[tuple[str, Found[Reject]]]:
        """The rejects of exactly that id, with their stages."""
        return [
            (stage, found)
            for stage in STAGES
            for found in self.files.rejects(stage, quoted(record_id))
            if found.record.id == record_id
        ]


def _judged(verdicts: dict[str, Verdict]) -> Iterator[Gate]:
    for name, verdict in verdicts.items():
        yield Gate(
            name, "passed" if verdict.score is not None else "noted", f"{_number(verdict.score)}: {verdict.reason}"
        )


def _number(score: float | None) -> str:
    return "no verdict" if score is None else f"{score:.3g}"


def _golden(one: Environment) -> Gate:
    calls = "; ".join(
        f"step {probe.step} {probe.tool}({', '.join(f'{k}={v!r}' for k, v in probe.arguments.items())})"
        for probe in one.probes
    )
    return Gate("golden calls", "passed", calls)


def _certified(certificate: Certificate) -> Iterator[Gate]:
    shown = certificate.checks
    yield Gate("backend", "noted", f"{certificate.backend}, artifact {certificate.artifact[:12]}")
    for name, held in shown.items():
        yield Gate(name, "passed" if held else "failed", "shown on its final bytes" if held else "not shown")
    paid = ", ".join(f"{agent} {value:.3g}" for agent, value in certificate.payments.items())
    yield Gate("paid", "noted", paid)
