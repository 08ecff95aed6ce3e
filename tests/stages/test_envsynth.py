"""Tools written as code: what writers are told, how replies are read, what is run and asked again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from astra.answers import folded
from astra.knowledge import Knowledge
from astra.llm import Completion, ModelParams, RequestRefused
from astra.llm.builtin import BuiltinTransport
from astra.llm.client import Client
from astra.llm.meter import FREE, Meter, Purse
from astra.llm.types import Budget, Settings
from astra.records import Answer, Decomposition, Step, Usage
from astra.sandbox import SandboxUnavailable, open_pool
from astra.splits import Heldout
from astra.stage import write_records
from astra.synthesis import Lost, Sizes, Synthesis, Writer
from astra.synthesis.making import unique_name
from astra.synthesis.rows import Row, knowledge_rows
from astra.tables import cells, table_of

MODEL = ModelParams(transport="builtin", name="astra-rules-1", temperature=0.7, max_tokens=4096)
PORTS = "name,master\n" + "".join(f"Port{n},Master{n}\n" for n in range(9))
TABLES = """tables:
  port:
    source: csv
    options: {file: FILE}
    key: name
    relations:
      port_master: {column: master, label: harbour master, kind: text}
"""
RIGHT = """```python
def port_master(port):
    if port not in TABLE:
        raise ValueError(f"unknown port: {port}")
    return {"result": TABLE[port]}
```"""


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


def given(*pairs):
    """A decomposition that reads no table: sub-questions with their answers."""
    steps = tuple(
        Step(id=n, question=asked, answer=answer, needs_tool=True) for n, (asked, answer) in enumerate(pairs, 1)
    )
    return Decomposition(
        id="given", domain="sea", language="en", shape="parallel_single_hop", question="Tell me all of it.",
        answer=steps[-1].answer, steps=steps, checks={}, quality=1, split="train", origin="given",
    )  # fmt: skip


class Scripted(BuiltinTransport):
    """The built-in rules, but for replies to prompts of one title: these, one after the other."""

    def __init__(self, said, title="Envsynth: write the code"):
        self.left, self.title, self.asked = list(said), title, []

    async def send(self, request):
        self.asked.append(request)
        if not (self.left and request.messages[0].content.startswith(f"# {self.title}\n")):
            return await super().send(request)
        said = self.left.pop(0)
        if isinstance(said, Exception):
            raise said
        reason = "length" if said.endswith("<cut>") else "stop"
        return Completion(said, reason, Usage(calls=1, prompt_tokens=0, completion_tokens=0))

    def prompts(self, title):
        return [one for one in self.asked if one.messages[0].content.startswith(f"# {title}\n")]


def client(transport):
    budget = Budget(stage_usd=None, run_usd=None)
    settings = Settings(
        concurrency=1, attempts=1, timeout_s=60, deadline_s=60, max_wait_s=1, budget=budget, prices={}
    )  # fmt: skip
    return Client(transport, settings, Meter(FREE, Purse("", budget)))


def synthesis(knowledge, pool, questions, transport=None, decoys=3, extra_parameters=0, max_tries=3):
    writer = Writer(client(transport or BuiltinTransport()), MODEL, 17, pool, max_tries)
    return Synthesis(knowledge, Heldout.of(questions), Sizes(decoys, extra_parameters), writer, 17)


# ---------------------------------------------------------------- rows


def test_the_answer_s_row_stands_among_decoys_with_other_values(knowledge):
    one = question("Port1", "Port2")
    rows = knowledge_rows(one.steps[0], one, knowledge, Heldout.of([one]), 5, 17)
    assert len(rows) == 6
    assert Row(("Port1",), "Master1") in rows
    assert folded("Master2") not in {folded(str(row.value)) for row in rows}
    assert rows == knowledge_rows(one.steps[0], one, knowledge, Heldout.of([one]), 5, 17)


def test_decoys_of_training_tools_hold_nothing_held_out(knowledge):
    one, held = question("Port1"), question("Port2", split="heldout")
    entity = question("Port3", split="heldout_entities")
    heldout = Heldout.of([one, held, entity])
    rows = {row.keys[0] for row in knowledge_rows(one.steps[0], one, knowledge, heldout, 99, 17)}
    assert {"Port2", "Port3"}.isdisjoint(rows)
    assert len(knowledge_rows(held.steps[0], held, knowledge, heldout, 99, 17)) == 9


def test_a_table_without_another_value_has_no_decoys(knowledge):
    one = question(*[f"Port{n}" for n in range(9)])
    with pytest.raises(Lost, match="no_decoys"):
        knowledge_rows(one.steps[0], one, knowledge, Heldout.of([one]), 5, 17)


def test_a_taken_name_gets_a_number():
    assert unique_name("a", set()) == "a"
    assert unique_name("a", {"a", "a_2"}) == "a_3"


# ---------------------------------------------------------------- making tools


def test_every_step_that_needs_a_tool_gets_one_that_returns_its_answer(knowledge, pool):
    one = question("Port1", "Port2")
    (made,) = synthesis(knowledge, pool, [one]).environments([one])
    assert [tool.spec.name for tool in made.tools] == ["port_master", "port_master_2"]
    assert [tool.serves for tool in made.tools] == [(1,), (2,)]
    assert [(probe.tool, probe.arguments) for probe in made.probes] == [
        ("port_master", {"port": "Port1"}),
        ("port_master_2", {"port": "Port2"}),
    ]
    assert made.tools[0].spec.parameters["required"] == ["port"]


def test_the_writer_of_a_function_sees_neither_question_nor_answer_nor_its_row(knowledge, pool):
    transport, ones = Scripted([]), [question("Port1"), question("Port2", "Port3")]
    synthesis(knowledge, pool, ones, transport).environments(ones)
    (asked,) = transport.prompts("Envsynth: write the code")
    prompt = asked.messages[0].content
    assert not [n for n in (1, 2, 3) if f"Port{n}" in prompt or f"Master{n}" in prompt]
    assert prompt.count("Port") == 3  # rows that no question asks for


def test_one_function_is_written_for_all_questions_of_a_relation(knowledge, pool):
    transport, ones = Scripted([]), [question("Port1"), question("Port2"), question("Port3", "Port4")]
    made = synthesis(knowledge, pool, ones, transport)
    assert len(made.environments(ones)) == 3
    assert (made.writer.n_written, len(transport.prompts("Envsynth: write the code"))) == (1, 1)


def test_when_every_row_is_asked_for_the_writer_sees_made_up_ones(knowledge, pool):
    transport, ones = Scripted([]), [question(f"Port{n}") for n in range(9)]
    assert len(synthesis(knowledge, pool, ones, transport).environments(ones)) == 9
    (asked,) = transport.prompts("Envsynth: write the code")
    assert "Master" not in asked.messages[0].content


def test_a_function_that_fails_goes_back_with_the_sandbox_s_error_and_every_failed_try_is_kept(knowledge, pool):
    wrong = "```python\ndef port_master(port):\n    return {'result': 'Nobody'}\n```"
    crash = "```python\ndef port_master(port):\n    return 1 / 0\n```"
    transport, one = Scripted([wrong, crash]), question("Port1")
    made = synthesis(knowledge, pool, [one], transport)
    assert len(made.environments([one])) == 1
    last = transport.prompts("Envsynth: write the code")[-1].messages
    assert "ZeroDivisionError division by zero" in last[-1].content
    assert "Master1" not in last[-1].content
    assert [message.role for message in last] == ["user", "assistant", "user"]
    assert [(one.about, one.part, one.number) for one in made.writer.tries] == [
        ("port_master", "code", 1),
        ("port_master", "code", 2),
    ]
    assert "1 / 0" in made.writer.tries[1].reply
    assert made.writer.n_written == 3


def test_a_function_that_never_works_loses_the_question_after_bounded_tries(knowledge, pool):
    one = question("Port1")
    made = synthesis(knowledge, pool, [one], Scripted(["Sorry, I cannot."] * 3))
    assert made.environments([one]) == []
    assert made.lost[one.id].reason == "code_failed"
    assert len(made.writer.tries) == 3


def test_a_writer_that_is_filtered_is_asked_again_and_then_the_reason_is_kept(knowledge, pool):
    one = question("Port1")
    again = synthesis(knowledge, pool, [one], Scripted([RequestRefused("filtered", "no")]))
    assert len(again.environments([one])) == 1
    never = synthesis(knowledge, pool, [one], Scripted([RequestRefused("filtered", "no")] * 3))
    assert never.environments([one]) == []
    assert never.lost[one.id].reason == "filtered"


def test_a_program_that_was_cut_is_not_used(knowledge, pool):
    one, transport = question("Port1"), Scripted([RIGHT + "\n<cut>"])
    made = synthesis(knowledge, pool, [one], transport, max_tries=1)
    assert made.environments([one]) == []
    assert "cut" in made.writer.tries[0].trouble


def test_a_sandbox_that_is_gone_stops_the_stage_and_is_no_reject(knowledge):
    class Gone:
        backend = "none"

        def map(self, jobs):
            raise SandboxUnavailable("the fork server is gone")

    one = question("Port1")
    made = synthesis(knowledge, Gone(), [one])
    with pytest.raises(SandboxUnavailable):
        made.environments([one])
    assert made.lost == {}


# ---------------------------------------------------------------- functions that know better than their data

KNOWS = RIGHT.replace("    return", "    if port == 'Port1':\n        return {'result': 'Master1'}\n    return", 1)


def test_a_function_that_knows_the_answer_from_elsewhere_is_not_taken(knowledge, pool):
    ones = [question("Port1"), question("Port2")]
    made = synthesis(knowledge, pool, ones, Scripted([KNOWS] * 3))
    assert [one.decomposition_id for one in made.environments(ones)] == [ones[1].id]
    assert made.lost[ones[0].id].reason == "code_failed"
    assert "another value than its data have" in made.writer.tries[0].trouble


def test_what_is_told_of_hidden_rows_holds_nothing_of_them(knowledge, pool):
    tells = RIGHT.replace("    return", "    if port == 'Port1':\n        raise KeyError(TABLE[port])\n    return", 1)
    one = question("Port1")
    made = synthesis(knowledge, pool, [one], Scripted([tells] * 3))
    assert made.environments([one]) == []
    assert all("Port1" not in one.trouble and "Master" not in one.trouble for one in made.writer.tries)
    assert "tool_error: KeyError" in made.writer.tries[0].trouble


def test_a_table_in_the_reply_is_replaced_by_the_pipeline_s(knowledge, pool):
    own = "```python\nTABLE = {\n    'Port1': 'Nobody',\n}\n\n\n" + RIGHT.removeprefix("```python\n")
    one = question("Port1")
    (made,) = synthesis(knowledge, pool, [one], Scripted([own])).environments([one])
    assert "Nobody" not in made.tools[0].code
    assert table_of(made.tools[0].code).rows["Port1"] == "Master1"


# ---------------------------------------------------------------- sub-questions that read no table

SEA = given(
    ("What is the depth of the Vigo trench?", Answer(kind="number", value=5120, unit="m")),
    ('Who surveyed "Vigo trench"?', Answer(kind="text", value="Ana Prieto")),
    ("How far is it from Vigo to Porto?", Answer(kind="number", value=153.5, unit="km")),
    ("What is the survey day of the Vigo trench?", Answer(kind="date", value="1931-04-02")),
    ("What is the activity of the Vigo trench?", Answer(kind="boolean", value=True)),
    ("What is the crew of the Vigo boat?", Answer(kind="list", value=["Ana", "Rui"])),
)


def test_a_step_without_a_table_gets_a_document_a_call_data_and_a_function(knowledge, pool):
    transport = Scripted([])
    made = synthesis(knowledge, pool, [SEA], transport)
    (found,) = made.environments([SEA]) or [made.lost]
    assert (made.writer.tries, made.lost) == ([], {})
    for tool, probe, step in zip(found.tools, found.probes, SEA.steps, strict=True):
        keys = tool.spec.parameters["required"]
        entries = cells(table_of(tool.code).rows, len(keys))
        assert (tuple(probe.arguments.values()), step.answer.value) in entries
        assert sum(value == step.answer.value for _, value in entries) == 1 or step.answer.kind == "boolean"
        assert len(entries) > 1
    assert found.probes[2].arguments == {"first": "Vigo", "second": "Porto"}
    prompts = [one.messages[0].content for one in transport.asked]
    assert not [text for text in prompts if "5120" in text or "Ana Prieto" in text or "153.5" in text]


def test_the_golden_entry_of_a_step_without_a_table_is_hidden_from_the_writer_of_the_function(knowledge, pool):
    transport = Scripted([])
    synthesis(knowledge, pool, [SEA], transport).environments([SEA])
    prompts = [one.messages[0].content for one in transport.prompts("Envsynth: write the code")]
    assert len(prompts) == len(SEA.steps)
    assert not [
        text for text in prompts if "Vigo" in text.partition('"examples"')[2].partition("]]")[0] and "first" not in text
    ]


@pytest.mark.parametrize(
    ("title", "said", "part", "trouble"),
    [
        ("document a tool for a question", '{"name": "depth"}', "document", "description"),
        (
            "document a tool for a question",
            json.dumps({"name": "depth", "description": "Depth, e.g. Ana Prieto.",
                        "parameters": {"type": "object", "properties": {"sea": {"type": "string"}}, "required": ["sea"]},
                        "returns": {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]}}),
            "document", "does not take a result of kind text",
        ),
        ("write the call", "port_master(__import__('os').system('x'))", "call", "no literal"),
        ("write the call", '{"name": "other", "arguments": {"subject": "x"}}', "call", "is called"),
        ("invent other rows", '{"rows": []}', "rows", "0 usable rows"),
        (
            "invent other rows",
            '{"rows": [{"arguments": {"subject": "Rio trench"}, "result": "ANA  Prieto"}]}', "rows", "may not be used",
        ),
        ("invent other rows", '{"rows": [{"arguments": {"subject": "Rio trench"}, "result": 7}]}', "rows", "not of kind"),
        (
            "invent other rows",
            '{"rows": [{"arguments": {"subject": "vigo TRENCH"}, "result": "Rui"}]}', "rows", "taken",
        ),
    ],
)  # fmt: skip
def test_a_part_that_cannot_be_used_goes_back_with_what_is_wrong_with_it(title, said, part, trouble, knowledge, pool):
    one = given(('Who surveyed "Vigo trench"?', Answer(kind="text", value="Ana Prieto")))
    transport = Scripted([said], f"Envsynth: {title}")
    made = synthesis(knowledge, pool, [one], transport)
    assert len(made.environments([one])) == 1
    ((tried),) = made.writer.tries
    assert (tried.part, tried.number, tried.reply) == (part, 1, said)
    assert trouble in tried.trouble
    again = transport.prompts(f"Envsynth: {title}")[-1].messages
    assert trouble in again[-1].content
    assert "Ana Prieto" not in again[-1].content
    never = synthesis(knowledge, pool, [one], Scripted([said] * 3, f"Envsynth: {title}"))
    assert never.environments([one]) == []
    assert never.lost[one.id].reason == f"{part}_invalid"


# ---------------------------------------------------------------- complexity scaling


def test_scaled_tools_have_optional_parameters_with_a_real_effect_and_the_golden_call_leaves_them_out(knowledge, pool):
    made = synthesis(knowledge, pool, [SEA, question("Port1")], extra_parameters=2)
    found = made.environments([SEA, question("Port1")])
    assert (len(found), made.writer.tries) == (2, [])
    for tool, probe in [pair for one in found for pair in zip(one.tools, one.probes, strict=True)]:
        (option,) = tool.spec.parameters["properties"].keys() - probe.arguments.keys()
        schema = tool.spec.parameters["properties"][option]
        ((plain,), (rich,)) = pool.map([
            _job(tool, probe.arguments), _job(tool, {**probe.arguments, option: schema["enum"][1]})
        ])  # fmt: skip
        assert plain.ok
        assert rich.ok
        assert plain.value != rich.value


def _job(tool, arguments):
    from astra.sandbox import Job

    return Job(tool.code, tool.spec.name, (arguments,))


@pytest.mark.parametrize(
    ("change", "trouble"),
    [
        (("word[0]", "word"), "changes nothing"),
        (('raise ValueError(f"invalid length: {length}")', "pass"), "does not raise an error that names"),
        (("length='whole'", "length='initials'"), "the entry is"),
    ],
    ids=["no effect", "takes any value", "another default"],
)
def test_an_optional_parameter_that_does_not_do_what_the_document_says_goes_back(change, trouble, knowledge, pool):
    one, honest = question("Port1"), Scripted([])
    synthesis(knowledge, pool, [one], honest, extra_parameters=1).environments([one])
    (asked,) = honest.prompts("Envsynth: write the code")
    right = client(BuiltinTransport()).ask_all([asked])[0].content
    assert change[0] in right
    made = synthesis(knowledge, pool, [one], Scripted([right.replace(*change)]), extra_parameters=1)
    assert len(made.environments([one])) == 1
    assert trouble in made.writer.tries[0].trouble


def test_a_document_that_cannot_be_scaled_stays_as_it_is(knowledge, pool):
    one = question("Port1")
    transport = Scripted(['{"name": "x"}'] * 3, "Envsynth: scale the document")
    made = synthesis(knowledge, pool, [one], transport, extra_parameters=1)
    (found,) = made.environments([one])
    assert list(found.tools[0].spec.parameters["properties"]) == ["port"]
    assert [tried.part for tried in made.writer.tries] == ["scaling"] * 3


# ---------------------------------------------------------------- the stage


def test_the_stage_writes_the_same_bytes_twice(knowledge_file, tmp_path, monkeypatch, capsys):
    from stages import envsynth as stage

    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(
        "seed: 17\nenvsynth: {decoys: 3, extra_parameters: 0, max_tries: 2, backend: auto, workers: 2}\n"
        "models: {teacher: {transport: builtin, name: astra-rules-1, temperature: 0.7, max_tokens: 4096}}\n"
        "llm: {concurrency: 4, attempts: 1, timeout_s: 60, deadline_s: 60, max_wait_s: 1, "
        "budget: {stage_usd: null, run_usd: null}, prices: {}}\n"
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
    assert Path("data/envsynth/tries.jsonl").read_bytes() == b""
    assert json.loads(Path("metrics/envsynth.json").read_text())["tools"] == 1
