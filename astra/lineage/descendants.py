"""What became of a record: stage by stage what was made from it, and what went no further and why."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from statistics import fmean
from typing import TypeVar

from astra.lineage.files import FILES, Files, Found, quoted
from astra.lineage.nodes import Item, Level
from astra.lineage.starts import Fact, Start
from astra.lineage.walked import walked_chains
from astra.records import (
    Arena,
    Chain,
    Decomposition,
    Difficulty,
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
)

R = TypeVar("R", bound=Record)
HEAD = re.compile(r"[a-z]+-[0-9a-f]{12}")


@dataclass
class Descendants:
    """Lineages downwards over the files of a run; ``levels`` fills as the line is followed."""

    files: Files
    levels: list[Level] = field(default_factory=list)

    def of(self, start: Start) -> list[Level]:
        """All that was made from what the text means, in the order of the stages."""
        ids: dict[type[Record], set[str]] = defaultdict(set)
        for found in start.records:
            ids[type(found.record)].add(getattr(found.record, "id", ""))
        tools = {(found.record.id, name) for found, name in start.tools}
        tools |= {(one.record.server_id, tool) for one in start.edges for tool in _ends(start.text)}
        pair = _ends(start.text) if start.edges else ()
        self._documents(start, ids)
        self._imitation(ids, tools, pair)
        self._arenas(ids, start)
        self._measured(ids)
        return self.levels

    # the imitation line

    def _documents(self, start: Start, ids: dict[type[Record], set[str]]) -> None:
        """The servers of a document, and what of it, or of a server or tool, is none."""
        servers = [found.record for found in start.records if isinstance(found.record, Server)]
        items = [Item(one.id, f"{one.name}: {len(one.tools)} tools") for one in servers if one.id != start.text]
        places = [*start.tool_documents, *(one.source.uri for one in servers)]
        names = {name for _, name in start.tools}
        rejects = [
            _reject(one, "normalize", "")
            for one in (found.record for found in self.files.rejects("normalize"))
            if any(_lies_in(one.id, place) for place in places) or one.id.rpartition("/")[2] in names
        ]
        if items or rejects:
            self._add("normalize", Server, items, rejects)

    def _imitation(self, ids: dict[type[Record], set[str]], tools: set[tuple[str, str]], pair: tuple[str, ...]) -> None:
        servers = ids[Server] | {server for server, _ in tools}
        names = {name for _, name in tools}
        whole = ids[Server]
        if servers:
            self._graphs(servers, whole, names, pair)
            self._chains(servers, whole, names, pair, ids)
        if servers or ids[Chain] or ids[Task]:
            self._tasks(ids, whole, set() if pair else names)
        if ids[Task] or ids[Trajectory]:
            self._trajectories(ids)
        if ids[Trajectory]:
            self._scores(ids[Trajectory])
            self._rows(ids[Trajectory])

    def _graphs(self, servers: set[str], whole: set[str], names: set[str], pair: tuple[str, ...]) -> None:
        items = []
        for found in self._linked(ToolGraph, "server_id", servers):
            graph = found.record
            edges = [
                one
                for one in graph.edges
                if (
                    (one.source, one.target) == pair
                    if pair
                    else graph.server_id in whole or names & {one.source, one.target}
                )
            ]
            into = [f"{one.source}>{one.target}" for one in edges]
            items.append(Item(graph.id, f"{len(edges)} edges: {', '.join(into)}", (graph.server_id,)))
        self._add("graph", ToolGraph, items, self._rejects("graph", servers))

    def _chains(
        self,
        servers: set[str],
        whole: set[str],
        names: set[str],
        pair: tuple[str, ...],
        ids: dict[type[Record], set[str]],
    ) -> None:
        def wanted(server_ids: Iterable[str], tools: tuple[str, ...]) -> bool:
            if pair:
                return any(pair == tools[at : at + 2] for at in range(len(tools) - 1))
            return bool(whole & set(server_ids)) or bool(names & set(tools) and servers & set(server_ids))

        items = [
            Item(one.id, f"{' -> '.join(one.tools)}; support {one.support:g}", tuple(servers & set(one.server_ids)))
            for found in self._naming(Chain, servers)
            if wanted((one := found.record).server_ids, one.tools)
        ]
        ids[Chain] |= {item.id for item in items}
        refused = {found.record.id: found.record for found in self.files.rejects("chains")}
        walks = [one for one in walked_chains(self.files, set(refused)) if wanted(one.server_ids, one.tools)]
        rejects = [_reject(refused[one.id], "chains", " -> ".join(one.tools)) for one in walks]
        self._add("chains", Chain, items, rejects)

    def _tasks(self, ids: dict[type[Record], set[str]], whole: set[str], names: set[str]) -> None:
        def wanted(one: Task) -> bool:
            of_server = one.chain_id is None and (
                bool(whole & set(one.server_ids)) or bool(names & {*one.target_tools, *one.missing})
            )
            return one.id in known or one.chain_id in ids[Chain] or one.parent in known or of_server

        known = set(ids[Task])
        everything = [found.record for found in self.files.find(Task, b"{")]
        count = -1
        while count != len(known):  # a rewriting may stand before what it was made from
            count = len(known)
            known |= {one.id for one in everything if wanted(one)}
        new = [one for one in everything if one.id in known - ids[Task]]
        items = [
            Item(one.id, f"({one.augmentation}, {one.kind}) {one.question}", _some(one.parent or one.chain_id))
            for one in new
        ]
        ids[Task] = known
        self._add("tasks", Task, items, self._rejects("tasks", known), self._unlinked("tasks"))

    def _trajectories(self, ids: dict[type[Record], set[str]]) -> None:
        items = [
            Item(one.id, f"attempt {one.attempt}, ended: {one.stop}, {len(one.messages)} messages", (one.task_id,))
            for found in self._linked(Trajectory, "task_id", ids[Task])
            if (one := found.record).id not in ids[Trajectory]
        ]
        ids[Trajectory] |= {item.id for item in items}
        if ids[Task]:
            self._add("trajectories", Trajectory, items, self._rejects("trajectories", ids[Task]))

    def _scores(self, trajectories: set[str]) -> None:
        items = [
            Item(one.id, f"overall {one.overall:.3f}", (one.trajectory_id,))
            for found in self._linked(Scorecard, "trajectory_id", trajectories)
            for one in [found.record]
        ]
        self._add("score", Scorecard, items, self._rejects("score", trajectories))

    def _rows(self, conversations: set[str]) -> None:
        """Training rows of trajectories, or of demonstrations in arenas."""
        items = [
            Item(row.id, f"{row.origin}, {row.tokens} tokens, {row.where}", (head,))
            for row in self.files.rows
            if (head := _head(row.parent or row.id)) in conversations
        ]
        rejects = self._rejects("sft", conversations)
        self.levels.append(Level("training row", "sft", tuple(items), tuple(rejects)))

    # the arena line

    def _arenas(self, ids: dict[type[Record], set[str]], start: Start) -> None:
        if start.facts or start.papers:
            self._decompositions(ids, set(start.facts), set(start.papers))
        if ids[Decomposition]:
            self._environments(ids)
        ids[Environment] |= {one for one in ids[Arena] if self.files.get(Environment, one)}
        if ids[Environment] or ids[Arena]:
            self._made_arenas(ids)
        if ids[Arena]:
            self._rows(ids[Arena])

    def _decompositions(self, ids: dict[type[Record], set[str]], facts: set[Fact], papers: set[str]) -> None:
        named = papers | {part for fact in facts if (part := fact.subject or fact.relation)}
        items = []
        for found in self._naming(Decomposition, named):
            one = found.record
            hit = [
                f"{step.relation}:{step.subject}"
                for step in one.steps
                if step.relation and any(fact.matches(step.relation, step.subject) for fact in facts)
            ]
            hit += [quote.document for step in one.steps for quote in step.evidence if quote.document in papers]
            if hit:
                items.append(Item(one.id, f"({one.shape}, {one.split}) {one.question}", tuple(dict.fromkeys(hit))))
        ids[Decomposition] |= {item.id for item in items}
        subjects = {fact.subject for fact in facts if fact.subject}
        rejects = [
            _reject(found.record, "decompose", "names it")
            for subject in sorted(subjects)
            for found in self.files.rejects("decompose", quoted(subject)[1:-1])
        ]
        self._add("decompose", Decomposition, items, rejects, "" if subjects else self._unlinked("decompose"))

    def _environments(self, ids: dict[type[Record], set[str]]) -> None:
        items = [
            Item(
                one.id,
                f"{len(one.tools)} tools: {', '.join(tool.spec.name for tool in one.tools)}",
                (one.decomposition_id,),
            )
            for found in self._linked(Environment, "decomposition_id", ids[Decomposition])
            for one in [found.record]
        ]
        ids[Environment] |= {item.id for item in items}
        self._add("envsynth", Environment, items, self._rejects("envsynth", ids[Decomposition]))

    def _made_arenas(self, ids: dict[type[Record], set[str]]) -> None:
        known = ids[Environment] | ids[Arena]
        items = [
            Item(
                one.id,
                f"split {one.split}" + (f", variant {one.variant.kind} of {base}" if one.variant else ""),
                (base,),
            )
            for found in self._naming(Arena, known)
            for one in [found.record]
            if (base := one.variant.base if one.variant else one.id) in known
        ]
        ids[Arena] |= {item.id for item in items}
        self._add("merge", Arena, items, self._rejects("merge", known))

    # training and measuring

    def _measured(self, ids: dict[type[Record], set[str]]) -> None:
        arenas = ids[Arena]
        if not arenas:
            return
        played: dict[str, list[float]] = defaultdict(list)
        for found in self._linked(Rollout, "arena_id", arenas):
            played[found.record.arena_id].append(found.record.reward)
        items = [
            Item(one, f"{len(paid)} kept rollouts, mean reward {fmean(paid):.3f}", (one,))
            for one, paid in played.items()
        ]
        self._add("rl", Rollout, items, self._rejects("rl", arenas))
        items = [
            Item(
                one.arena_id,
                f"update {one.update}: {one.n_passed} of {one.n} passed, mean reward {one.reward:.3f}",
                (one.arena_id,),
            )
            for found in self._linked(Difficulty, "arena_id", arenas)
            for one in [found.record]
        ]
        self._add("rl", Difficulty, items, ())
        self._samples(arenas)

    def _samples(self, arenas: set[str]) -> None:
        scored: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
        for found in self._linked(Sample, "case", arenas):
            one = found.record
            if one.error is None:
                scored[f"{one.model}, {one.mode}", one.benchmark].append(one.scores)
        items = []
        for (model, benchmark), scores in scored.items():
            names = sorted(set.intersection(*(set(one) for one in scores)))
            means = ", ".join(f"{name} {fmean(one[name] for one in scores):.3f}" for name in names)
            items.append(Item(f"{model} on {benchmark}", f"n {len(scores)}: {means}"))
        self._add("eval", Sample, items, self._rejects("eval", arenas))

    # finding

    def _linked(self, kind: type[R], name: str, ids: Collection[str]) -> Iterator[Found[R]]:
        """The records whose field names one of the ids; only those lines are parsed whole."""
        if len(ids) == 1:
            (only,) = ids
            yield from self.files.find(kind, quoted(only), lambda one: getattr(one, name) == only)
            return
        pattern = re.compile(rb'"%s":\s*"([^"\\]+)"' % name.encode())
        wanted = {one.encode() for one in ids}
        yield from self.files.find(
            kind,
            b"{",
            lambda one: getattr(one, name) in ids,
            lambda line: bool(wanted.intersection(pattern.findall(line))),
        )

    def _naming(self, kind: type[R], texts: Collection[str]) -> Iterator[Found[R]]:
        """The records whose line holds one of the texts."""
        needles = [quoted(text) for text in sorted(texts)]
        if len(needles) == 1:
            yield from self.files.find(kind, needles[0])
        elif needles:
            pattern = re.compile(b"|".join(map(re.escape, needles)))
            yield from self.files.find(kind, b"{", may_be=lambda line: pattern.search(line) is not None)

    def _rejects(self, stage: str, ids: Collection[str]) -> list[Item]:
        """Rejects that are about one of the ids: theirs, an attempt at them, or like them."""
        found = (one.record for one in self.files.rejects(stage))
        return [
            _reject(one, stage, "")
            for one in found
            if _head(one.id) in ids or any(name in ids for name in HEAD.findall(one.detail))
        ]

    def _unlinked(self, stage: str) -> str:
        """How many rejects of a stage name nothing that they were made from."""
        lost = [one for found in self.files.rejects(stage) if ":" not in (one := found.record).id]
        if not lost:
            return ""
        return f"{len(lost)} rejects in data/{stage}/rejects.jsonl do not say what they were made from"

    def _add(
        self, stage: str, kind: type[Record], items: Iterable[Item], rejects: Iterable[Item], note: str = ""
    ) -> None:
        assert FILES[kind][0] == stage
        self.levels.append(Level(_word(kind), stage, tuple(items), tuple(rejects), note))


def _word(kind: type[Record]) -> str:
    """The kind in words: ToolGraph -> tool graph."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind.__name__).lower()


def _head(record_id: str) -> str:
    """The id that an attempt, a rewriting, a turn or a demonstration belongs to."""
    return record_id.partition(":")[0]


def _lies_in(record_id: str, place: str) -> bool:
    """Whether a reject of normalize is about a document, or about a place in it."""
    return record_id == place or record_id.startswith((f"{place}/", f"{place}#"))


def _reject(one: Reject, stage: str, says: str) -> Item:
    return Item(one.id, f"{says}: {one.detail}" if says else one.detail, (_head(one.id),), one.reason, stage)


def _some(one: str | None) -> tuple[str, ...]:
    return () if one is None else (one,)


def _ends(address: str) -> tuple[str, ...]:
    """The two tools of an edge's address."""
    return tuple(address.partition(":")[2].split(">"))
