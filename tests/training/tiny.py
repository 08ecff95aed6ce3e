"""A policy small enough for tests, and arenas whose tools are really run."""

from __future__ import annotations

from astra.chat import BUILTIN_PHRASES, Chat, Encoded, build_tokenizer
from astra.records import Answer, Arena, Certificate, CodeTool, Message, Probe, Step, ToolSpec
from astra.sandbox import Result
from astra.training.policy import Shape, new_policy

SHAPE = Shape(
    width=32, layers=2, heads=2, kv_heads=1, head_dim=16, feed_forward=32, pieces=260, positions=512, embedding_std=0.1
)
CAPITALS = {"Spain": "Madrid", "Ghana": "Accra", "Japan": "Tokyo", "Peru": "Lima"}
PEOPLE = {"Madrid": 3, "Accra": 2, "Tokyo": 14, "Lima": 10}


def spec(name: str, table: str, label: str) -> ToolSpec:
    return ToolSpec(
        name=name,
        description=f"{label.capitalize()} of a {table}.",
        parameters={"type": "object", "properties": {table: {"type": "string"}}, "required": [table]},
    )


def tool(name: str, table: str, label: str, rows: dict[str, object], serves: tuple[int, ...] = ()) -> CodeTool:
    code = (
        f"ROWS = {rows!r}\n\n\ndef {name}({table}):\n    if {table} not in ROWS:\n"
        f"        raise ValueError('unknown {table}: ' + {table})\n    return {{'result': ROWS[{table}]}}\n"
    )
    return CodeTool(spec=spec(name, table, label), code=code, serves=serves)


CAPITAL = tool("country_capital", "country", "capital", dict(CAPITALS), (1,))
POPULATION = tool("city_population", "city", "city population", dict(PEOPLE), (2,))
CURRENCY = tool("country_currency", "country", "currency", {"Spain": "EUR", "Ghana": "GHS"})
SYMBOL = tool("element_symbol", "element", "chemical symbol", {"iron": "Fe"})


def arena(country: str, split: str = "train") -> Arena:
    """Two hops: the population of the capital."""
    city = CAPITALS[country]
    capital = Answer(kind="text", value=city)
    people = Answer(kind="number", value=PEOPLE[city])
    return Arena(
        id=f"arena-{country.lower()}",
        decomposition_id=f"decomposition-{country.lower()}",
        domain="country",
        shape="multi_hop",
        question=f"For country {country}, find the capital, then its city population.",
        answer=people,
        steps=(
            Step(id=1, question="q1", answer=capital, needs_tool=True, relation="country_capital", subject=country),
            Step(
                id=2,
                question="q2",
                answer=people,
                depends_on=(1,),
                needs_tool=True,
                relation="city_population",
                subject=city,
            ),
        ),
        tools=(CAPITAL, POPULATION),
        probes=(
            Probe(step=1, tool="country_capital", arguments={"country": country}, expected=capital),
            Probe(step=2, tool="city_population", arguments={"city": city}, expected=people),
        ),
        split=split,  # type: ignore[arg-type]
        certificate=Certificate(artifact="0" * 64, checks={}, backend="landlock"),
    )


def new_chat() -> Chat:
    tools = [CAPITAL, POPULATION, CURRENCY, SYMBOL]
    names = {one.spec.name for one in tools} | {*CAPITALS, *PEOPLE, "capital", "city population"}
    texts = ["For country , find the , then its .", "What is the  of the  of country ?"] * 3
    return Chat(build_tokenizer(texts, names, BUILTIN_PHRASES, SHAPE.pieces))


def new_tiny(chat: Chat, seed: int = 0):
    return new_policy(SHAPE, chat, seed)


class InProcess:
    """A sandbox double for the tests' own code: runs it here."""

    backend = "in_process"

    def call(self, code: str, function: str, arguments, timeout_s: float = 2.0) -> Result:
        space: dict[str, object] = {}
        exec(code, space)
        try:
            return Result("ok", space[function](**arguments))  # type: ignore[operator]
        except ValueError as error:
            return Result("tool_error", error=str(error))

    def run(self, job):
        raise NotImplementedError

    def session(self, code: str):
        raise NotImplementedError

    def close(self) -> None:
        """Nothing to close."""


def conversations(chat: Chat, count: int, answers: dict[str, str] = CAPITALS) -> list[Encoded]:
    rows: list[Encoded] = []
    for number in range(count):
        country = list(CAPITALS)[number % 4]
        said = " and ".join([f"What is the capital of country {country}?"] * (1 + number % 3))
        reply = Message(role="assistant", content=f"The answer is {answers[country]}.")
        rows += chat.encode([[Message(role="user", content=said), reply]], [[CAPITAL.spec]])
    return rows


def trained_spans(ids: list[int], mask: list[int]) -> list[list[int]]:
    spans: list[list[int]] = []
    before = 0
    for token, flag in zip(ids, mask, strict=True):
        if flag and not before:
            spans.append([])
        if flag:
            spans[-1].append(token)
        before = flag
    return spans
