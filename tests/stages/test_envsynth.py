"""Tools written as code: what the writer is told, how replies are read, what is run and asked again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from astra.answers import folded
from astra.knowledge import Knowledge
from astra.llm import Completion, ModelParams, RequestRefused, builtin_client
from astra.records import Answer, Decomposition, Step, Usage
from astra.sandbox import Result, open_pool
from astra.splits import Heldout
from astra.stage import write_records
from stages.envsynth import Lost, NoCode, Params, Synthesis, complaint, extract_code, table_rows, unique_name

MODEL = ModelParams(transport="builtin", name="astra-rules-1", temperature=0.7, max_tokens=4096)
PARAMS = Params(decoys=3, max_tries=3, backend="auto", workers=2)
PORTS = "name,master\n" + "".join(f"Port{n},Master{n}\n" for n in range(9))
TABLES = """tables:
  port:
    source: csv
    options: {file: FILE}
    key: name
    relations:
      port_master: {column: master, label: harbour master, kind: text}
"""


@pytest.fixture(scope="module")
def knowledge_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("knowledge")
    (folder / "ports.csv").write_text(PORTS)
    (folder / "knowledge.yaml").write_text(TABLES.replace("FILE", str(folder / "ports.csv")))
    return folder / "knowledge.yaml"


@pytest.fixture(scope="module")
def knowledge(knowledge_file):
    return Knowledge.load(knowledge_file)


@pytest.fixture(scope="module")
def pool():
    with open_pool() as open_:
        yield open_


def question(*ports, split="train"):
    steps = tuple(
        Step(
            id=n, question=f"What is the harbour master of port {port}?", needs_tool=True, relation="port_master",
            answer=Answer(kind="text", value=port.replace("Port", "Master")), subject=port,
        )
        for n, port in enumerate(ports, 1)
    )  # fmt: skip
    return Decomposition(
        id=f"d-{'-'.join(ports)}", domain="port", language="en", shape="single_hop", question=f"Who? {ports}",
        answer=steps[-1].answer, steps=steps, checks={}, quality=1, split=split,
    )  # fmt: skip


def replying(*texts):
    """A teacher that answers documents and calls by rule, and code with these texts in turn."""
    client, left = builtin_client(), list(texts)

    def ask(requests):
        replies = list(client.ask_all(requests))
        asked.extend(requests)
        for n, request in enumerate(requests):
            if "write the code" in request.messages[0].content and left:
                said = left.pop(0)
                usage = Usage(calls=1, prompt_tokens=0, completion_tokens=0)
                replies[n] = said if isinstance(said, RequestRefused) else Completion(said, "stop", usage)
        return replies

    asked = []
    ask.asked = asked
    return ask


def synthesis(knowledge, pool, ask, questions):
    return Synthesis(knowledge, Heldout.of(questions), PARAMS, MODEL, 17, ask, pool)


# ---------------------------------------------------------------- code in replies (HC-049)

TIDE = "def tide(port):\n    return 3\n"


@pytest.mark.parametrize(
    "reply",
    [
        "def tide(port):\n    return 3\n```",
        "```def tide(port):\n    return 3\n```",
        "```python\ndef tide(port):\n    return 3",
        "First try:\n```python\ndef tide(port):\n    return 1\n```\nThat ignores the port. Final:\n```py\n"
        + TIDE
        + "```",
        "Here:\n\n```python\n" + TIDE + "```\n\nIt is called as\n\n```python\ntide('Lyme')\n```",
    ],
)
def test_the_last_program_that_defines_the_function_is_taken(reply):
    assert extract_code(reply, "tide") == TIDE


def test_a_fence_within_a_string_does_not_end_a_program():
    code = "def tide(port):\n    s = '''\n```\n'''\n    return 3\n"
    assert extract_code(f"```python\n{code}```", "tide") == code
    one_line = "def tide(port):\n    s = '```'\n    return 3\n"
    assert extract_code(f"```python\n{one_line}```", "tide") == one_line


@pytest.mark.parametrize(
    "reply", ["Sorry, I cannot.", "", "```python\ndef other():\n    pass\n```", "```\ndef tide(:\n```"]
)
def test_a_reply_without_the_function_is_no_code(reply):
    with pytest.raises(NoCode, match="tide"):
        extract_code(reply, "tide")


# ---------------------------------------------------------------- rows


def test_the_answer_s_row_stands_among_decoys_with_other_values(knowledge):
    one = question("Port1", "Port2")
    rows = table_rows(one.steps[0], one, knowledge, Heldout.of([one]), 5, 17)
    assert len(rows) == 6
    assert ("Port1", "Master1") in rows
    assert folded("Master2") not in {folded(str(value)) for _, value in rows}
    assert rows == table_rows(one.steps[0], one, knowledge, Heldout.of([one]), 5, 17)


def test_decoys_of_training_tools_hold_nothing_held_out(knowledge):
    one, held = question("Port1"), question("Port2", split="heldout")
    entity = question("Port3", split="heldout_entities")
    rows = dict(table_rows(one.steps[0], one, knowledge, Heldout.of([one, held, entity]), 99, 17))
    assert {"Port2", "Port3"}.isdisjoint(rows)
    assert len(dict(table_rows(held.steps[0], held, knowledge, Heldout.of([one, held, entity]), 99, 17))) == 9


def test_a_table_without_another_value_has_no_decoys(knowledge):
    one = question(*[f"Port{n}" for n in range(9)])
    with pytest.raises(Lost, match="no_decoys"):
        table_rows(one.steps[0], one, knowledge, Heldout.of([one]), 5, 17)


def test_a_taken_name_gets_a_number():
    assert unique_name("a", set()) == "a"
    assert unique_name("a", {"a", "a_2"}) == "a_3"


# ---------------------------------------------------------------- making tools


def test_every_step_that_needs_a_tool_gets_one_that_returns_its_answer(knowledge, pool):
    ask = replying()
    (made,) = synthesis(knowledge, pool, ask, [question("Port1", "Port2")]).environments([question("Port1", "Port2")])
    assert [one.spec.name for one in made.tools] == ["port_master", "port_master_2"]
    assert [one.serves for one in made.tools] == [(1,), (2,)]
    assert [(one.tool, one.arguments) for one in made.probes] == [
        ("port_master", {"port": "Port1"}),
        ("port_master_2", {"port": "Port2"}),
    ]
    assert made.tools[0].spec.parameters["required"] == ["port"]


def test_the_writer_of_the_code_sees_neither_question_nor_which_row_matters(knowledge, pool):
    ask, one = replying(), question("Port1")
    synthesis(knowledge, pool, ask, [one]).environments([one])
    (prompt,) = [r.messages[0].content for r in ask.asked if "write the code" in r.messages[0].content]
    assert one.question not in prompt
    assert one.steps[0].question not in prompt
    assert prompt.count("Port1") == prompt.count("Master1") == 1


def test_a_function_that_fails_goes_back_with_what_happened_and_not_with_the_answer(knowledge, pool):
    wrong = "```python\ndef port_master(port):\n    return {'result': 'Nobody'}\n```"
    crash = "```python\ndef port_master(port):\n    return 1 / 0\n```"
    ask, one = replying(wrong, crash), question("Port1")
    made = synthesis(knowledge, pool, ask, [one])
    assert len(made.environments([one])) == 1
    last = ask.asked[-1].messages
    assert "ZeroDivisionError division by zero" in last[-1].content
    assert "Master1" not in last[-1].content
    assert [message.role for message in last] == ["user", "assistant", "user"]
    assert (made.n_written, made.n_retried) == (3, 2)


def test_a_function_that_never_works_loses_the_question_after_bounded_tries(knowledge, pool):
    ask, ones = replying(*["Sorry, I cannot."] * 3), [question("Port1"), question("Port2")]
    bad = synthesis(knowledge, pool, ask, ones[:1])
    assert bad.environments(ones[:1]) == []
    assert bad.lost[ones[0].id].reason == "code_failed"
    refused = synthesis(knowledge, pool, replying(RequestRefused("filtered", "no")), ones)
    assert [one.decomposition_id for one in refused.environments(ones)] == [ones[1].id]
    assert refused.lost[ones[0].id].reason == "filtered"


def test_a_complaint_never_tells_the_expected_answer():
    assert "another value" in complaint(Result("ok", {"result": 5}), {"port": "Lyme"})
    assert "timeout" in complaint(Result("timeout", error="timeout"), {"port": "Lyme"})


def test_the_stage_writes_the_same_bytes_twice(knowledge_file, tmp_path, monkeypatch, capsys):
    from stages import envsynth as stage

    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(
        "seed: 17\nenvsynth: {decoys: 3, max_tries: 2, backend: auto, workers: 2}\n"
        "models: {teacher: {transport: builtin, name: astra-rules-1, temperature: 0.7, max_tokens: 4096}}\n"
        "llm: {concurrency: 4, attempts: 1, timeout_s: 60, deadline_s: 60, max_wait_s: 1, budget: {stage_usd: null, run_usd: null}, prices: {}}\n"
    )
    Path("data/raw/knowledge").mkdir(parents=True)
    Path("data/raw/knowledge/knowledge.yaml").write_text(knowledge_file.read_text())
    lonely = question(*[f"Port{n}" for n in range(9)])
    write_records("data/decompose/decompositions.jsonl", [question("Port1"), lonely])
    stage.main()
    assert "2 in, 1 out, 1 rejected (no_decoys 1)" in capsys.readouterr().err
    first = Path("data/envsynth/environments.jsonl").read_bytes()
    stage.main()
    assert Path("data/envsynth/environments.jsonl").read_bytes() == first
    assert json.loads(Path("metrics/envsynth.json").read_text())["tools"] == 1
