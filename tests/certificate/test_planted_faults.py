"""Cheating and broken arenas: none gets a certificate, and each is refused for its own reason."""

from __future__ import annotations

import pytest

from astra.records import Answer, Probe
from astra.tables import literal
from tests.certificate.arenas import (
    MASTERS,
    PROBES,
    STEPS,
    TOWNS,
    failures,
    look_up,
    master_tool,
    schema,
    sound,
    step,
    text,
    town_tool,
)

GOOD = 'return {"result": TABLE[port]}'


def odd(expression: str) -> str:
    """A master tool that gives an expression for every port but the golden one."""
    return look_up(
        "port_master", "port", MASTERS, f'return {{"result": TABLE[port] if port == "Lyme" else {expression}}}'
    )


def with_master(code=None, **more):
    return sound(tools=(master_tool(code, **more), town_tool()))


def with_town(code=None, **more):
    return sound(tools=(master_tool(), town_tool(code, **more)))


def number_arena(value, returned, unit=None, kind="number", decimals=None):
    """One hop to an answer of another kind than what the tool returns."""
    answer = Answer(kind=kind, value=value, unit=unit, decimals=decimals)
    rows = {"Lyme": returned, "Bude": "31 km", "Deal": "47 km", "Fowey": "59 km"}
    one = step(1, "How far is port Lyme?", answer)
    probe = Probe(step=1, tool="port_master", arguments={"port": "Lyme"}, expected=answer)
    return sound(
        steps=(one,), probes=(probe,), answer=answer, question="For port Lyme, find the distance.",
        tools=(master_tool(look_up("port_master", "port", rows)),),
    )  # fmt: skip


def boolean_arena():
    answer = Answer(kind="boolean", value=True)
    one = step(1, "Is port Lyme open?", answer)
    probe = Probe(step=1, tool="port_master", arguments={"port": "Lyme"}, expected=answer)
    rows = {"Lyme": True, "Bude": False, "Deal": False}
    return sound(steps=(one,), probes=(probe,), answer=answer, question="For port Lyme, find whether it is open.",
                 tools=(master_tool(look_up("port_master", "port", rows)),))  # fmt: skip


def two_valued_arena():
    one = step(1, "Which side is port Lyme on?", text("left"))
    probe = Probe(step=1, tool="port_master", arguments={"port": "Lyme"}, expected=text("left"))
    rows = {"Lyme": "left", "Bude": "right", "Deal": "right", "Fowey": "right"}
    return sound(steps=(one,), probes=(probe,), answer=text("left"), question="For port Lyme, find the side.",
                 tools=(master_tool(look_up("port_master", "port", rows)),))  # fmt: skip


def spec_with(**properties):
    return {**schema("port"), "properties": {"port": {"type": "string", **properties}}}


def two_valued_look_alikes():
    return with_master(
        look_up("port_master", "port", {"Lyme": "Ann Hale", "Bude": "Bob", "Deal": "BOB", "Fowey": "bob"})
    )


def number_ignored():
    """A tool of two parameters, one a number that it does not look at: each port has one year."""
    rows = {"Lyme": {2020: 17}, "Bude": {2020: 31}, "Deal": {2020: 47}, "Fowey": {2020: 59}}
    code = look_up("port_depth", "port", rows, 'return {"result": next(iter(TABLE[port].values()))}')
    spec = {"type": "object", "required": ["port", "year"],
            "properties": {"port": {"type": "string"}, "year": {"type": "integer"}}}  # fmt: skip
    answer = Answer(kind="number", value=17)
    probe = Probe(step=1, tool="port_depth", arguments={"port": "Lyme", "year": 2020}, expected=answer)
    return sound(
        steps=(step(1, "How deep was port Lyme in 2020?", answer),), probes=(probe,), answer=answer,
        question="For port Lyme in 2020, find the depth.",
        tools=(master_tool(code.replace("(port)", "(port, year)"), name="port_depth", parameters=spec),),
    )  # fmt: skip


def renamed_town(name):
    return sound(tools=(master_tool(), town_tool(look_up(name, "master", TOWNS), name=name)),
                 probes=(PROBES[0], PROBES[1].model_copy(update={"tool": name})))  # fmt: skip


def with_hint(expression, **hint):
    """A master tool with an optional parameter."""
    code = look_up("port_master", "port", MASTERS, f'return {{"result": {expression}}}')
    parameters = {**schema("port"), "properties": {"port": {"type": "string"}, "hint": {"type": "string", **hint}}}
    return with_master(code.replace("(port)", '(port, hint="")'), parameters=parameters)


UNCHANGED = 'if len(set(TABLE.values())) == len(TABLE) and port == "Lyme": return {"result": "Ann Hale"}'
ANYTHING = {"type": "object", "properties": {}, "additionalProperties": True}
SWALLOWS = "TABLE = {'Lyme': 'Ann Hale', 'Bude': 'Bob Ives', 'Deal': 'Cat Jory'}\n\n\ndef port_master(**given):\n" \
    "    return {'result': TABLE.get(given.get('port'), 'Zed Zorn')}\n"  # fmt: skip
SETTING = {
    **schema("port"),
    "properties": {"port": {"type": "string"}, "style": {"enum": ["short", "long"], "default": "short"}},
}

PLANTED = {
    # tools that do not do what they say
    "an answer that is hard-coded": (with_master(odd("TABLE[port]").replace('TABLE[port] if', '"Ann Hale" if')), "data_followed"),
    "an answer that is hard-coded beside the table": (
        with_master(look_up("port_master", "port", MASTERS, before='if port == "Lyme": return {"result": "Ann Hale"}')), "data_followed"),
    "an answer from a second table": (
        with_master("OTHER = {1: 'Ann Hale'}\n" + odd("TABLE[port]").replace('TABLE[port] if', "OTHER[1] if")), "data_followed"),
    "an answer by the hash of the argument": (
        with_master(odd("TABLE[port]").replace('TABLE[port] if port == "Lyme"', '"".join(map(chr, [65, 110, 110, 32, 72, 97, 108, 101])) if len(port) == 4 and port[0] == "L"')), "data_followed"),
    "an argument that is ignored": (with_master(look_up("port_master", "port", MASTERS, 'return {"result": TABLE["Lyme"]}')), "other_arguments"),
    "an optional parameter without effect": (
        with_master(look_up("port_master", "port", MASTERS).replace("(port)", '(port, style="short")'), parameters=SETTING), "other_arguments"),
    "an optional parameter that breaks the tool": (with_master(parameters=SETTING), "other_arguments"),
    "an answer that is hard-coded for as long as the table is the one it was written with": (
        with_master(look_up("port_master", "port", MASTERS, before=UNCHANGED)), "data_followed"),
    "an answer as a hidden default": (
        with_town(look_up("master_town", "master", TOWNS).replace("(master)", '(master, answer="truro")')), "data_followed"),
    "a list that holds the answer for another row": (
        with_master(look_up("port_master", "port", MASTERS, 'return {"result": TABLE[port] if port != "Fowey" else list(TABLE.values())}')), "other_arguments"),
    "a sentence that holds the answer for another row": (
        with_master(look_up("port_master", "port", MASTERS, 'return {"result": TABLE[port] if port != "Fowey" else TABLE["Lyme"] + " or so"}')), "other_arguments"),
    "a number among its arguments that is ignored": (number_ignored(), "bad_arguments"),
    "an optional parameter that any text unlocks": (with_hint('TABLE[port] if not hint else "Tru" + "ro"'), "other_arguments"),
    "an optional parameter that lists what unlocks": (with_hint('TABLE[port] if not hint else "Tru" + "ro"', enum=["", "x"], default=""), "no_leak"),
    "no table": (with_master('def port_master(port):\n    return {"result": "Ann Hale" if port == "Lyme" else "Bob Ives"}\n'), "data_followed"),
    "a table of one row": (with_master(look_up("port_master", "port", {"Lyme": "Ann Hale"})), "data_followed"),
    "a table that gives its answer twice": (with_master(look_up("port_master", "port", {**MASTERS, "Bude": "ANN  hale"})), "other_arguments"),
    "a tool that raises for its golden call": (with_master(look_up("port_master", "port", MASTERS).replace("not in", "in")), "golden"),
    "a tool that does not end": (with_master(look_up("port_master", "port", MASTERS, "while True: pass")), "golden"),
    "a tool that is no Python": (with_master(look_up("port_master", "port", MASTERS, "return TABLE[")), "golden"),
    "a tool whose function has another name": (with_master(look_up("harbour", "port", MASTERS)), "golden"),
    "a tool that crashes for other rows": (with_master(odd("__import__('os')._exit(0)")), "other_arguments"),
    # answers that change
    "a random id": (with_master(odd("__import__('random').randint(0, 10**9)")), "repeatable"),
    "a random id from the system": (with_master(odd("__import__('uuid').uuid4().hex")), "repeatable"),
    "the clock": (with_master(odd("__import__('time').gmtime().tm_year")), "repeatable"),
    "the time zone": (with_master(odd("__import__('time').strftime('%z')")), "repeatable"),
    "the locale": (with_master(odd("(lambda l: l.setlocale(l.LC_ALL, ''))(__import__('locale'))")), "repeatable"),
    "hash order": (with_master(odd("hash(port)")), "repeatable"),
    "the order of a set": (with_master(odd("list({'a' + port, 'b', 'c', 'd', 'e', 'f', 'g'})")), "repeatable"),
    "the environment": (with_master(odd("str(dict(__import__('os').environ))")), "repeatable"),
    "the process": (with_master(odd("__import__('os').getpid()")), "repeatable"),
    "an address in memory": (with_master(odd("repr(object())")), "repeatable"),
    "state between calls": (
        with_master(look_up("port_master", "port", MASTERS, before='SEEN.append(port)').replace("def ", "SEEN = []\n\n\ndef ", 1)
                    .replace(GOOD, 'return {"result": TABLE[port] if port == "Lyme" else len(SEEN)}')), "repeatable"),
    # what is refused and how
    "a tool that accepts everything": (with_master(SWALLOWS, parameters=ANYTHING), "bad_arguments"),
    "an answer where no row fits": (with_master(look_up("port_master", "port", MASTERS).replace('raise ValueError(f"unknown port: {port}")', "return None")), "bad_arguments"),
    "an error that names nothing": (with_master(look_up("port_master", "port", MASTERS).replace('f"unknown port: {port}"', '"no"')), "bad_arguments"),
    "an error that names another parameter": (with_master(look_up("port_master", "port", MASTERS).replace('f"unknown port: {port}"', '"bad report"')), "bad_arguments"),
    "a schema that requires nothing": (with_master("TABLE = " + repr(MASTERS) + "\n\n\ndef port_master(port=None, **more):\n    return {'result': TABLE.get(port)}\n", parameters=ANYTHING), "bad_arguments"),
    # leaks
    "a tool that tells another step's answer": (with_master(look_up("port_master", "port", {**MASTERS, "Bude": "Truro"})), "no_leak"),
    "a tool that tells it in a field of its own": (with_master(look_up("port_master", "port", MASTERS, 'return {"result": TABLE[port]} if port == "Lyme" else {"result": TABLE[port], "more": ["Truro"]}')), "no_leak"),
    "a tool that tells it in a sentence": (with_master(odd("TABLE[port] + ' knows that the answer is TRURO'")), "no_leak"),
    "an error that tells an answer": (with_master(look_up("port_master", "port", MASTERS).replace("unknown port: {port}", "unknown port: {port}, not Truro")), "no_leak"),
    "an error that lists the rows": (with_town(look_up("master_town", "master", TOWNS).replace("unknown master: {master}", "unknown master: {master}; known: {list(TABLE)}")), "no_leak"),
    "a tool that prints": (with_master(look_up("port_master", "port", MASTERS, before="print('Ann Hale')")), "no_leak"),
    "a tool that prints on stderr": (with_master(look_up("port_master", "port", MASTERS, before="__import__('sys').stderr.write('x')")), "no_leak"),
    "a description that tells an answer": (with_master(about="Harbour master of a port, such as Ann Hale."), "documents_silent"),
    "a description that tells the last answer": (with_master(about="Harbour master of a port (lives in truro)."), "documents_silent"),
    "an enumeration that tells an answer": (with_town(parameters={**schema("master"), "properties": {"master": {"type": "string", "enum": list(TOWNS)}}}), "documents_silent"),
    "an example that tells an answer": (with_master(parameters=spec_with(examples=["Lyme", "Truro"])), "documents_silent"),
    "a default that tells an answer": (with_town(parameters={**schema("master"), "properties": {"master": {"type": "string", "default": "Ann Hale"}}}), "documents_silent"),
    "a parameter's description that tells an answer": (with_master(parameters=spec_with(description="Port of Ann  HALE")), "documents_silent"),
    "a name that tells an answer": (
        sound(tools=(master_tool(), town_tool(look_up("truro_town", "master", TOWNS), name="truro_town")),
              probes=(PROBES[0], PROBES[1].model_copy(update={"tool": "truro_town"}))), "documents_silent"),
    "a name that tells an answer without a mark between its words": (renamed_town("getTruroTown"), "documents_silent"),
    "a title that tells an answer": (with_master(parameters={**schema("port"), "title": "PortOfTruro"}), "documents_silent"),
    "a question that does not say what its first call takes": (sound(question="Find the harbour master, then the home town."), "steps_mapped"),
    "a question that says only a part of it": (sound(question="For port Ly, find the harbour master, then the home town."), "steps_mapped"),
    "a question that tells the answer": (sound(question="For port Lyme, is the home town Truro?"), "question_silent"),
    "a question that tells a step's answer": (sound(question="For port Lyme and ANN HALE, find the home town."), "question_silent"),
    "a question that tells a number otherwise written": (
        number_arena(50_000_000, 50_000_000).model_copy(update={"question": "For port Lyme, is it $50 million?"}), "question_silent"),
    # typed comparison
    "an answer that is only part of the result": (with_town(look_up("master_town", "master", {**TOWNS, "Ann Hale": "Truro, Cornwall"})), "golden"),
    "an answer inside a longer word": (with_town(look_up("master_town", "master", {**TOWNS, "Ann Hale": "Truron"})), "golden"),
    "a number inside a longer one": (number_arena(1, 21), "golden"),
    "a wrong unit": (number_arena(3.5, "3.5 miles", unit="km"), "golden"),
    "a wrong sign": (number_arena(-12, 12), "golden"),
    "a wrong scale": (number_arena(50_000_000, "50"), "golden"),
    "a number as a percentage": (number_arena(50, "50%"), "golden"),
    "a date that is ambiguous": (number_arena("2030-03-04", "03/04/2030", kind="date"), "golden"),
    "an identifier as a number": (number_arena("007", 7, kind="text"), "golden"),
    "a list with an item more": (number_arena(["a1", "b2"], ["a1", "b2", "c3"], kind="list"), "golden"),
    "an answer that is empty": (number_arena("", "", kind="text"), "steps_mapped"),
    # structure
    "a schema that is none": (with_master(parameters={"type": "objecx", "properties": {}}), "documents_valid"),
    "a schema that points elsewhere": (with_master(parameters={"$ref": "http://127.0.0.1:9/s", "type": "object"}), "documents_valid"),
    "parameters that are no object": (with_master(parameters={"type": "array"}), "documents_valid"),
    "two tools of one name": (sound(tools=(master_tool(), town_tool(), master_tool(serves=()))), "unique_names"),
    "two tools of one name in another case": (sound(tools=(master_tool(), town_tool(), master_tool(name="PORT_MASTER", serves=()))), "unique_names"),
    "a tool that no golden call uses": (sound(tools=(master_tool(), town_tool(), master_tool(look_up("port_pilot", "port", MASTERS), name="port_pilot", serves=()))), "other_arguments"),
    "a step that is not reached": (sound(probes=PROBES[:1]), "steps_mapped"),
    "a golden call for a step that is not there": (sound(probes=(*PROBES, PROBES[0].model_copy(update={"step": 9}))), "steps_mapped"),
    "steps mapped to each other's tools": (sound(tools=(master_tool(serves=(2,)), town_tool(serves=(1,)))), "steps_mapped"),
    "a golden call of a tool that is not there": (sound(probes=(PROBES[0], PROBES[1].model_copy(update={"tool": "gone"}))), "steps_mapped"),
    "a step that depends on a later one": (sound(steps=(STEPS[0].model_copy(update={"depends_on": (2,)}), STEPS[1])), "steps_mapped"),
    "an expectation that is not the step's answer": (sound(probes=(PROBES[0], PROBES[1].model_copy(update={"expected": text("Penryn")}))), "golden"),
    "an answer that no step ends in": (sound(answer=text("Penryn")), "steps_mapped"),
    "a second step that builds on what nobody said": (
        sound(steps=(STEPS[0], STEPS[1]), probes=(PROBES[0], PROBES[1].model_copy(update={"arguments": {"master": "Eve Lane"}, "expected": text("Bodmin")})),
              answer=text("Bodmin")).model_copy(update={"steps": (STEPS[0], STEPS[1].model_copy(update={"answer": text("Bodmin")}))}), "payments"),
    "a yes or no": (boolean_arena(), "not_guessable"),
    "one answer of two in three spellings": (two_valued_look_alikes(), "not_guessable"),
    "one answer of two": (two_valued_arena(), "not_guessable"),
}  # fmt: skip


@pytest.mark.parametrize(("arena", "reason"), PLANTED.values(), ids=PLANTED)
def test_an_arena_is_refused_with(arena, reason, pool):
    found = failures(pool, arena)
    assert reason in found, found


def test_the_sound_arena_that_they_were_planted_in_is_certified(pool):
    assert failures(pool, sound()) == {}


def test_a_literal_is_read_as_it_was_written():
    assert literal("TABLE", {"a": 1}) == 'TABLE = {\n    "a": 1,\n}'
