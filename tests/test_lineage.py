"""Lineage: every link of a run leads somewhere, both ways; what does not is said; unknown names get the nearest ones."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pandas as pd
import pytest
import yaml

from astra.lineage.__main__ import main
from astra.lineage.addresses import rollout_address, sample_address
from astra.lineage.ancestors import Ancestors
from astra.lineage.descendants import Descendants
from astra.lineage.files import FILES, Files
from astra.lineage.nodes import Level, Node
from astra.lineage.starts import Unknown, nodes, start
from astra.records import (
    Answer,
    Arena,
    Binding,
    Certificate,
    Chain,
    CodeTool,
    Decomposition,
    Edge,
    Environment,
    KeptReply,
    Link,
    Message,
    Probe,
    Quote,
    Record,
    Reject,
    Rollout,
    Sample,
    Scorecard,
    Server,
    Source,
    Step,
    Task,
    ToolGraph,
    ToolSpec,
    ToolTry,
    Trajectory,
    Usage,
    Verdict,
    content_id,
)
from astra.stage import read_records, write_records

ENDS = {"document", "live server", "fact", "computed", "sub-answer", "given question", "model", "edge", "scorecard"}
QUESTION = "Which gate of the lock opens at low tide on Friday?"
DOCUMENT = json.dumps({"tools": []})
TOOLS = ("find_gate", "open_gate", "shut_gate")


def spec(name: str) -> ToolSpec:
    return ToolSpec(name=name, description=f"{name}.", parameters={"type": "object", "properties": {}})


def walk_id(*tools: str) -> str:
    return content_id("chain", "server-0000000000aa", tools)


def verdict(reason: str) -> dict[str, Verdict]:
    return {"clear": Verdict(score=0.9, reason=reason)}


def save(root: Path, kind: type[Record], *records: Record) -> None:
    write_records(root / FILES[kind][1], records)


def save_imitation(root: Path) -> None:
    """One server of which one chain, one rewritten task and one trajectory came, and rejects at each stage."""
    (root / "data/raw/tools").mkdir(parents=True)
    (root / "data/raw/tools/lock.mcp.json").write_text(DOCUMENT)
    source = Source(format="mcp", uri="data/raw/tools/lock.mcp.json", licence="MIT",
                    revision=f"sha256:{hashlib.sha256(DOCUMENT.encode()).hexdigest()}")  # fmt: skip
    tools = tuple(map(spec, TOOLS))
    server = Server(
        id="server-0000000000aa", name="lock", title="Lock", description="", domain="ports", tools=tools, source=source
    )
    save(root, Server, server)
    link = Link(output="gate", parameter="gate", evidence={"name": 0.6})
    edges = [Edge(source=a, target=b, via=(link,), votes_for=2, votes=3) for a, b in (TOOLS[:2], TOOLS[1:])]
    save(root, ToolGraph, ToolGraph(id="graph-0000000000aa", server_id=server.id, edges=tuple(edges)))
    binding = Binding(step=1, parameter="gate", origin="result", from_step=0, output="gate")
    chain = Chain(
        id=walk_id(*TOOLS[:2]),
        server_ids=(server.id,),
        tools=TOOLS[:2],
        bindings=(binding,),
        support=0.5,
        checks={"vote": "2 of 2"},
    )
    save(root, Chain, chain)
    first = Task(id="task-0000000000aa", server_ids=(server.id,), chain_id=chain.id, question=QUESTION, target_tools=TOOLS[:2],
                 origin="chain", augmentation="none", quality=verdict("it is clear"))  # fmt: skip
    second = first.model_copy(
        update={"id": "task-0000000000bb", "parent": first.id, "augmentation": "persona", "question": "Well?"}
    )
    save(root, Task, second, first)  # the rewriting before what it was made from
    said = (
        Message(role="user", content=QUESTION),
        Message(role="assistant", content="The northern gate, as the table says."),
    )
    talk = Trajectory(id="trajectory-0000000000aa", task_id=second.id, server_ids=(server.id,), attempt=0, tools=tools, messages=said,
                      stop="answered", model="m", usage=Usage(calls=1, prompt_tokens=1, completion_tokens=1))  # fmt: skip
    save(
        root,
        Trajectory,
        talk,
        talk.model_copy(update={"id": "trajectory-0000000000bb", "task_id": "task-00000000dead"}),
    )
    save(
        root,
        Scorecard,
        Scorecard(id="scorecard-0000000000aa", trajectory_id=talk.id, dimensions=verdict("honest"), overall=0.9),
    )
    for stage, record_id, reason in (
        ("normalize", "data/raw/tools/lock.mcp.json/wind", "poor_description"),
        ("chains", walk_id(*TOOLS[1:]), "voted_down"),
        ("tasks", "task-0000000000aa:diversity", "unchanged"),
        ("trajectories", "task-0000000000aa:0", "tool_infra_error"),
        ("sft", "trajectory-0000000000aa", "too_long"),
    ):
        write_records(root / f"data/{stage}/rejects.jsonl", [Reject(id=record_id, reason=reason, detail="so it is")])


def step(number: int, value: object, **more: object) -> Step:
    return Step.model_validate(
        {"id": number, "question": f"q{number}?", "answer": Answer(kind="text", value=value), "needs_tool": True} | more
    )


def save_arenas(root: Path) -> None:
    """One question over a CSV row and a quotation, its environment, arena and variant, what was tried and measured."""
    folder = root / "data/raw/knowledge"
    folder.mkdir(parents=True)
    (folder / "rivers.csv").write_text("name,mouth\nRhine,Hoek\nElbe,Cuxhaven\n")
    relations = {"river_mouth": {"column": "mouth", "label": "mouth"}}
    table = {"source": "csv", "options": {"file": "rivers.csv"}, "key": "name", "relations": relations}
    (folder / "own.yaml").write_text(yaml.safe_dump({"tables": {"river": table}}))
    (folder / "tides.txt").write_text("Low tide is at noon.")
    quote = Quote(document="data/raw/knowledge/tides.txt", start=15, end=19, text="noon")
    common = {
        "domain": "ports",
        "shape": "parallel_single_hop",
        "question": "Where?",
        "answer": Answer(kind="text", value="Cuxhaven"),
    }
    fact = step(1, "Cuxhaven", relation="river_mouth", subject="Elbe")
    one = Decomposition(
        id="decomposition-0000000000aa",
        language="en",
        steps=(fact,),
        checks={"DC": 1.0},
        quality=1.0,
        split="train",
        **common,
    )
    read = one.model_copy(
        update={"id": "decomposition-0000000000bb", "steps": (step(1, "noon", evidence=(quote,)),), "origin": "texts"}
    )
    save(root, Decomposition, one, read)
    tool = CodeTool(spec=spec("river_mouth"), code="def river_mouth(): ...", serves=(1,))
    probe = Probe(step=1, tool="river_mouth", arguments={"river": "Elbe"}, expected=fact.answer)
    world = Environment(
        id="environment-0000000000aa",
        decomposition_id=one.id,
        steps=(fact,),
        tools=(tool,),
        probes=(probe,),
        split="train",
        **common,
    )
    save(root, Environment, world)
    shown = Certificate(
        artifact="a" * 64, checks={"golden": True, "no_leak": True}, backend="landlock", payments={"golden": 1.0}
    )
    save(root, Arena, Arena(**world.model_dump(), certificate=shown))
    bad = ToolTry(about="river_mouth", part="code", number=1, trouble="NameError: TABEL", reply="...")
    write_records(root / "data/envsynth/tries.jsonl", [bad])
    played = Rollout(arena_id=world.id, update=2, sample=1, messages=(), solved=1, n_required=1, n_calls=1, reward=1.0, recall=1.0,
                     precision=1.0, answer_correct=True, stop="answered")  # fmt: skip
    save(root, Rollout, played)
    samples = [Sample(model=model, benchmark="heldout", case=world.id, trial=0, mode="greedy", scores={"f1": score}, messages=())
               for model, score in (("rl", 1.0), ("sft", 0.5))]  # fmt: skip
    save(root, Sample, *samples)
    (root / "data/sft").mkdir(exist_ok=True)
    rows = [
        ("environment-0000000000aa:3", "demonstration", [1, 2, 3], "", 0),
        ("trajectory-0000000000bb:turn4", "imitation", [1], "trajectory-0000000000bb", 4),
    ]
    pd.DataFrame(rows, columns=["id", "origin", "input_ids", "parent", "turn"]).to_parquet(
        root / "data/sft/train.parquet"
    )


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A run of a handful of records, written by hand."""
    save_imitation(tmp_path)
    save_arenas(tmp_path)
    return tmp_path


def above(root: Path, text: str) -> list[Node]:
    ancestors = Ancestors(Files(root))
    return nodes(start(text, ancestors), ancestors)


def below(root: Path, text: str) -> dict[str, Level]:
    files = Files(root)
    return {f"{one.stage} {one.kind}": one for one in Descendants(files).of(start(text, Ancestors(files)))}


def kinds(node: Node) -> list[str]:
    return [one.kind for one in node.walk()]


def test_a_scorecard_leads_through_both_tasks_chain_and_edge_to_the_document(made):
    (card,) = above(made, "scorecard-0000000000aa")
    assert kinds(card) == ["scorecard", "trajectory", "task", "task", "chain", "edge", "server", "document"]
    found = {one.kind: one for one in card.walk()}
    assert [gate.reason for gate in found["chain"].gates] == ["2 of 2"]
    assert "0.9: it is clear" in [gate.reason for gate in found["task"].gates]
    assert found["document"].gates[0].outcome == "passed"
    assert not any(one.missing for one in card.walk())


def test_a_document_that_was_changed_since_fails_its_gate_and_one_that_is_gone_is_missing(made):
    (made / "data/raw/tools/lock.mcp.json").write_text("{}")
    assert above(made, "lock")[0].parents[0].gates[0].outcome == "failed"
    (made / "data/raw/tools/lock.mcp.json").unlink()
    assert above(made, "lock")[0].parents[0].missing


def test_a_link_that_leads_nowhere_is_shown_as_such(made):
    row = above(made, "trajectory-0000000000bb:turn4")[0]
    assert [one.id for one in row.walk() if one.missing] == ["task-00000000dead"]


def test_a_reject_stands_on_top_of_what_it_is_about(made):
    for text, top in (
        ("task-0000000000aa:0", "task"),
        ("task-0000000000aa:diversity", "task"),
        ("trajectory-0000000000aa", "trajectory"),
    ):
        (reject,) = above(made, text)
        assert kinds(reject)[:2] == ["reject", top]
        assert reject.gates[0].outcome == "failed"
        assert kinds(reject)[-1] == "document"


def test_a_refused_chain_of_which_only_the_id_is_left_is_found_among_the_walks(made):
    (reject,) = above(made, walk_id(*TOOLS[1:]))
    assert reject.parents[0].says.startswith("open_gate -> shut_gate")
    assert [one.id for one in below(made, "lock")["chains chain"].rejects] == [walk_id(*TOOLS[1:])]


def test_an_arena_leads_to_the_line_of_the_csv_and_shows_failed_tries(made):
    (arena,) = above(made, "environment-0000000000aa")
    assert kinds(arena) == ["arena", "environment", "decomposition", "fact"]
    found = {one.kind: one for one in arena.walk()}
    assert found["fact"].where == "data/raw/knowledge/rivers.csv:3"
    assert ("failed", "NameError: TABEL") in [(gate.outcome, gate.reason) for gate in found["environment"].gates]


def test_a_quotation_is_held_against_its_document(made):
    (one,) = above(made, "decomposition-0000000000bb")
    quote = one.parents[0].parents[0]
    assert (quote.kind, quote.gates[0].outcome) == ("document", "passed")


def test_a_demonstration_a_rollout_and_a_sample_lead_to_their_arena(made):
    for text in (
        "environment-0000000000aa:3", "rollout:environment-0000000000aa:2:1", "sample:rl:heldout:environment-0000000000aa:0:greedy",
    ):  # fmt: skip
        (one,) = above(made, text)
        assert kinds(one)[1:5] == ["arena", "environment", "decomposition", "fact"], text


def test_what_became_of_a_server_and_of_one_tool(made):
    came = below(made, "lock")
    assert [one.id for one in came["tasks task"].items] == ["task-0000000000bb", "task-0000000000aa"]
    assert [one.reason for one in came["tasks task"].rejects] == ["unchanged"]
    assert [one.reason for one in came["trajectories trajectory"].rejects] == ["tool_infra_error"]
    assert [one.reason for one in came["sft training row"].rejects] == ["too_long"]
    assert [one.reason for one in came["normalize server"].rejects] == ["poor_description"]
    assert below(made, "lock/find_gate")["tasks task"].items == came["tasks task"].items
    assert "tasks task" not in below(made, "lock/shut_gate") or not below(made, "lock/shut_gate")["tasks task"].items


def test_what_became_of_a_row_of_knowledge(made):
    for text in ("river_mouth:Elbe", "Elbe", "river_mouth"):
        came = below(made, text)
        assert [one.id for one in came["merge arena"].items] == ["environment-0000000000aa"], text
        assert [one.id for one in came["sft training row"].items] == ["environment-0000000000aa:3"]
        assert "f1 1.000" in came["eval sample"].items[0].says
    assert [one.id for one in below(made, "data/raw/knowledge/tides.txt")["decompose decomposition"].items] == [
        "decomposition-0000000000bb"
    ]
    with pytest.raises(Unknown):
        below(made, "Rhine")  # nothing was asked about it


def test_the_reply_that_a_record_stands_in_is_named_by_the_hash_of_its_request(made):
    usage = Usage(calls=1, prompt_tokens=1, completion_tokens=1)
    told = [("a" * 64, json.dumps({"question": QUESTION})), ("b" * 64, "something else")]
    write_records(
        made / "data/tasks/replies.jsonl",
        [KeptReply(key=key, content=text, finish_reason="stop", usage=usage) for key, text in told],
    )
    (task,) = [one for one in above(made, "task-0000000000aa:0")[0].walk() if one.kind == "task"]
    assert task.made is not None
    assert task.made.replies == ("a" * 64,)


def test_seed_and_models_are_those_of_the_lock_and_only_while_the_file_is_the_one_it_names(made):
    path = made / "data/tasks/tasks.jsonl"
    out = {
        "path": "data/tasks/tasks.jsonl",
        "size": path.stat().st_size,
        "md5": hashlib.md5(path.read_bytes()).hexdigest(),
    }
    params = {"seed": 5, "models.judge": {"name": "j", "transport": "openai", "temperature": 0.0}}
    stage = {"deps": [{"path": "astra/prompts/tasks", "md5": "feed"}], "params": {"params.yaml": params}, "outs": [out]}
    (made / "dvc.lock").write_text(yaml.safe_dump({"schema": "2.0", "stages": {"tasks": stage}}))
    task = above(made, "scorecard-0000000000aa")[0].parents[0].parents[0]
    assert task.made is not None
    assert (task.made.seed, task.made.models["judge"][:1], task.made.prompts, task.made.current) == (
        5,
        "j",
        "feed",
        True,
    )
    path.write_bytes(path.read_bytes().replace(b"Well?", b"Hell?"))
    assert not above(made, "scorecard-0000000000aa")[0].parents[0].parents[0].made.current


@pytest.mark.parametrize(
    "text", ["task-0000000000ab", "lokc", "river_mouht", "sample:rl:heldout:environment-0000000000aa:7:greedy"]
)
def test_an_unknown_name_is_an_error_that_names_the_nearest(made, text, capsys):
    assert main(["--root", str(made), text]) == 2
    said = capsys.readouterr().err
    assert f"no record {text!r}" in said
    if not text.startswith(("river", "sample")):
        near = {"task-0000000000ab": "task-0000000000aa", "lokc": "lock"}[text]
        assert near in said


def test_without_a_run_it_says_how_to_get_one(tmp_path, capsys):
    assert main(["--root", str(tmp_path), "task-0000000000aa"]) == 2
    assert "dvc pull" in capsys.readouterr().err


def test_the_command_prints_a_tree_levels_and_json(made, capsys):
    assert main(["--root", str(made), "environment-0000000000aa"]) == 0
    assert "+ golden, no_leak: shown on its final bytes" in capsys.readouterr().out
    assert main(["--root", str(made), "--forward", "lock"]) == 0
    assert "tasks: 2 x task, 1 rejected (unchanged 1)" in capsys.readouterr().out
    assert main(["--root", str(made), "--json", "lock"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["parents"][0]["kind"] == "document"
    assert main(["--root", str(made), "--json", "--forward", "lock"]) == 0
    assert {one["stage"] for one in json.loads(capsys.readouterr().out)["became"]} >= {"chains", "tasks", "sft"}


# over a whole run


def check_complete(node: Node) -> None:
    """Every branch ends in what lies in data/raw, or in a model; nothing on the way is missing or unmade."""
    for one in node.walk():
        assert not one.missing, f"{node.id}: {one.kind} {one.id} is not there"
        assert one.parents or one.kind in ENDS, f"{node.id}: {one.kind} {one.id} comes from nowhere"
        if one.made is not None:
            assert one.made.current, f"{one.kind} {one.id}: {one.made}"
            assert one.made.stage == "normalize" or one.made.seed is not None


def check_links(root: Path, every: int) -> int:
    """Every so manieth record of each kind, by its id or address; how many were looked at."""
    ancestors = Ancestors(Files(root))
    texts = [row.id for row in ancestors.files.rows[::every]]
    for kind, (_, path) in FILES.items():
        if kind is Rollout:
            texts += [rollout_address(one) for one in list(read_records(root / path, Rollout))[::every]]
        elif kind is Sample:
            texts += [sample_address(one) for one in list(read_records(root / path, Sample))[::every]]
        else:
            texts += ancestors.files.ids(path)[::every]
    for text in texts:
        found = start(text, ancestors)
        assert found.records or found.rows, text
        for node in nodes(found, ancestors):
            check_complete(node)
    return len(texts)


def test_every_link_of_a_whole_run_leads_to_the_raw_data(small_run):
    assert check_links(small_run.folder, every=7) > 200


def test_every_reject_of_a_whole_run_is_found_and_those_with_a_parent_in_their_id_lead_to_it(small_run):
    ancestors = Ancestors(Files(small_run.folder))
    for file in sorted((small_run.folder / "data").glob("*/rejects.jsonl")):
        for one in list(read_records(file, Reject))[::5]:
            made = nodes(start(one.id, ancestors), ancestors)
            assert one.reason in [gate.name for node in made for gate in node.gates], one
            if one.id.startswith(("chain-", "trajectory-", "environment-", "server-")) or (
                one.id.startswith("task-") and ":" in one.id
            ):
                assert all(node.parents for node in made), one


def test_forward_from_every_server_comes_to_every_imitated_row_and_back(small_run):
    files = Files(small_run.folder)
    servers = list(read_records(small_run.folder / FILES[Server][1], Server))
    came = set()
    for server in servers:
        levels = below(small_run.folder, server.id)
        if "sft training row" in levels:
            level = levels["sft training row"]
            came |= {item.id for item in level.items}
            assert len(level.items) + len({one.id for one in level.rejects}) == len(
                levels["trajectories trajectory"].items
            )
    assert came == {row.id for row in files.rows if row.origin == "imitation"}
