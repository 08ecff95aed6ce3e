"""What can be seen in a trajectory without a judge: where values come from, and which calls were made twice.

For each call: is its tool offered, do its values stand in what the agent had been told (the user's words, the system
message, earlier results), was it answered before. For what an assistant says: do its facts stand there, or in the
arguments of calls that succeeded. The rules look for what is certain and stay silent otherwise:

- *guessed*: a value that the user is known to have left out of the request.
- *invented*: a tool that is not offered, or an id, address, day or number for which nothing was found. A number that is
  the sum, difference, product or quotient of two known ones, a total, mean or length of a known list, or a known one in
  another unit was computed (not if it only names something); a day was worked out where the user spoke of one relative
  to today, or named its month.
- *unsourced*: words of a required argument, none of which was found, whole numbers up to 12, which may have been said
  in words, times of day, coordinates. They may be a translation, a paraphrase or common knowledge.
- Decisions are no inventions: true and false, values that the tool's document lists or sets as default, numbers and
  words of optional arguments.
- What an error merely says back is no source, and neither are the examples in a tool's document.
- *repeated*: the same call had been answered, with the same result. *asked_again*: with another result, as when a
  state is polled. *failed_before*: it had failed for a reason of its own; a failure that was injected is nobody's.
- *unheeded*: a wish of the user for the form of the answer which the answer does not have (``wishes``).
- *unfinished*: a tool that the task's writer meant, that is offered and of which the request states every value, was
  never tried, and no other tool in its place. Silent where the user left room: an *if*, or a wish to stop.
- *unsupported*: a fact of what an assistant says, found nowhere: an address, a day, a number (it may be rounded), an
  id; a name in running text of a language that does not capitalise its nouns.

Where more than ``known.MANY`` numbers are known, any other could have been computed from them: the judge has to tell.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from astra.evidence.known import Known
from astra.evidence.reading import PART, folded, leaves, parsed
from astra.evidence.sources import Facts, facts, given, source_fault
from astra.evidence.wishes import unheeded
from astra.records import Evidence, Message, ToolCall, ToolSpec, Trajectory, canonical

__all__ = ["Asked", "Facts", "Findings", "exchanges", "gather", "own_words"]

Kind = Literal[
    "invented", "guessed", "unsourced", "repeated", "asked_again", "failed_before", "unsupported", "unheeded",
    "unfinished",
]  # fmt: skip
_LEAVES_ROOM = re.compile(
    r"\b(if|unless|otherwise|whether|in case|only when|depending|stop|falls|wenn|sofern|sonst|si|sinon|se|als)\b",
    re.IGNORECASE,
)


@dataclass
class Findings:
    """The evidence of a trajectory, by the message and call that it is about, and the facts of what is said."""

    evidence: list[Evidence] = field(default_factory=list)
    said: dict[int, Facts] = field(default_factory=dict)
    part: dict[int, int] = field(default_factory=dict)  # message -> how often the user has spoken by then

    def add(self, kind: Kind, message: int, call: int | None, detail: str) -> None:
        self.evidence.append(Evidence(kind=kind, message=message, call=call, detail=detail))

    def at(self, message: int, call: int | None = None) -> list[Evidence]:
        """What is about a message, or about one of its calls."""
        return [one for one in self.evidence if one.message == message and (call is None or one.call == call)]

    def guesses(self, message: int) -> list[Evidence]:
        """What was guessed between the user's words before a message and the next ones."""
        return [one for one in self.evidence if one.kind == "guessed" and self.part[one.message] == self.part[message]]


class Exchange(NamedTuple):
    """A call, where it was made, and its answer; None where the conversation ends before it."""

    message: int
    number: int
    call: ToolCall
    answer: Message | None

    @property
    def name(self) -> str:
        return self.call.function.name

    @property
    def form(self) -> str:
        """The arguments in the one text that equal arguments share."""
        value = parsed(self.call.function.arguments)
        return canonical(value) if isinstance(value, Mapping) else self.call.function.arguments

    @property
    def succeeded(self) -> bool:
        return self.answer is not None and not self.answer.is_error


def exchanges(messages: Sequence[Message]) -> list[Exchange]:
    """All calls in order; answers are found among the tool messages after the turn: ids may come again later."""
    found: list[Exchange] = []
    for place, message in enumerate(messages):
        answers: dict[str | None, Message] = {}
        for answer in messages[place + 1 :] if message.tool_calls else ():
            if answer.role != "tool":
                break
            answers.setdefault(answer.tool_call_id, answer)
        for number, call in enumerate(message.tool_calls):
            found.append(Exchange(place, number, call, answers.get(call.id)))
    return found


class Asked(NamedTuple):
    """What the writer of a request says of it: the tools that it needs, and those whose every value it states."""

    targets: tuple[str, ...] = ()
    stated: tuple[str, ...] = ()


NOTHING_ASKED = Asked()


def gather(trajectory: Trajectory, left_out: Mapping[str, str] | None = None, asked: Asked = NOTHING_ASKED) -> Findings:
    """The evidence of a trajectory; ``left_out`` names by tool the parameter that the first request leaves out."""
    found, known, made = Findings(), Known(), list[Exchange]()
    calls = exchanges(trajectory.messages)
    brought = {late.message: late.tools for late in trajectory.late}
    offered = {tool.name: tool for tool in trajectory.tools}
    n_user = 0
    for place, message in enumerate(trajectory.messages):
        if message.role == "tool":
            _take_result(known, message, next((one for one in reversed(made) if one.answer is message), None))
        elif message.role != "assistant":
            n_user += message.role == "user"
            offered |= {tool.name: tool for tool in brought.get(place, ())}
            known.say(own_words(message, place in brought))
        else:
            found.part[place] = n_user
            found.said[place] = _facts_said(message, known, offered.values(), made)
            for fact in found.said[place].unsupported:
                found.add("unsupported", place, None, f"{fact} stands in no result and not in the user's words")
            for one in calls:
                if one.message == place:
                    for kind, detail in _of_call(one, offered, known, made, left_out if n_user == 1 else None):
                        found.add(kind, place, one.number, detail)
                    made.append(one)
    _of_answers(trajectory, found, brought)
    _of_the_whole(trajectory, found, made, asked)
    return found


def _of_answers(trajectory: Trajectory, found: Findings, brought: Mapping[int, object]) -> None:
    """Which answers do not heed the wishes that the user had stated by then."""
    messages, heard = trajectory.messages, list[str]()
    for place, message in enumerate(messages):
        if message.role == "user":
            heard.append(own_words(message, place in brought))
        is_answer = message.role == "assistant" and not message.tool_calls
        for detail in unheeded(heard, message.content or "") if is_answer else ():
            found.add("unheeded", place, None, detail)


def _of_the_whole(trajectory: Trajectory, found: Findings, made: Sequence[Exchange], asked: Asked) -> None:
    """Which parts of the request were never tried, as far as that is certain; noted at the last answer."""
    messages = trajectory.messages
    called = {one.name for one in made}
    untried = [name for name in asked.stated if name not in called and name not in trajectory.withheld]
    instead = called - set(asked.targets)
    if not (untried and called and messages[-1].role == "assistant") or instead:
        return
    said = " ".join(message.content or "" for message in messages if message.role == "user")
    if (messages[-1].content or "").rstrip().endswith("?") or _LEAVES_ROOM.search(said):
        return
    for name in untried:
        found.add("unfinished", len(messages) - 1, None, f"{name} was never tried, and the request states all it needs")


def own_words(message: Message, brings_tools: bool) -> str:
    """A message without the tool documents that it may bring, which stand in its last paragraph."""
    text = message.content or ""
    return text.rpartition("\n\n")[0] if brings_tools and "\n\n" in text else text


def _take_result(known: Known, result: Message, exchange: Exchange | None) -> None:
    """A result is known from now on; of an error, what it does not merely say back."""
    text = result.content or ""
    if not result.is_error:
        known.take_value(parsed(text))
        return
    for value in leaves(parsed(exchange.call.function.arguments)) if exchange else ():
        echo = value if isinstance(value, str) else json.dumps(value)
        if echo and not known.has_text(folded(echo)):
            text = text.replace(echo, " ")
    known.take(text)


def _facts_said(message: Message, known: Known, tools: Iterable[ToolSpec], made: Sequence[Exchange]) -> Facts:
    """What an assistant says; it may also speak of what it did with success, and of what its tools are for."""
    said = facts(message.content or "", known)
    if not said.unsupported:
        return said
    more = known.copy()
    for tool in tools:
        more.parts.update(PART.findall(folded(f"{tool.name.replace('_', ' ')} {tool.description}")))
    for one in made:
        if one.succeeded:
            more.take_value(parsed(one.call.function.arguments))
    return facts(message.content or "", more)


def _of_call(one: Exchange, offered: Mapping[str, ToolSpec], known: Known, made: Sequence[Exchange],
             left_out: Mapping[str, str] | None) -> Iterator[tuple[Kind, str]]:  # fmt: skip
    """Kind and detail of what is found about one call."""
    tool = offered.get(one.name)
    if tool is None:
        yield "invented", f"no tool {one.name} is offered"
        return
    yield from _again(one, [other for other in made if (other.name, other.form) == (one.name, one.form)])
    arguments = parsed(one.call.function.arguments)
    if not isinstance(arguments, Mapping):
        return
    guessed = (left_out or {}).get(one.name)
    if guessed in arguments:
        yield "guessed", f"the user had not said the {guessed} for {one.name}"
    for value in given(arguments, tool):
        fault = source_fault(value, known) if value.name != guessed else None
        if fault is not None:
            shown = f"{value.name} {json.dumps(value.value, ensure_ascii=False)[:80]} of {one.name}"
            yield fault, f"{shown} stands neither in the user's words nor in an earlier result"


def _again(one: Exchange, same: Sequence[Exchange]) -> Iterator[tuple[Kind, str]]:
    """What is to say of a call that was made before; of turns in parallel too."""
    good = [other for other in same if other.succeeded]
    if good and one.succeeded:
        assert one.answer is not None
        if any(other.answer is not None and other.answer.content == one.answer.content for other in good):
            yield "repeated", f"{one.name} was called before with the same arguments and the same result"
        else:
            yield "asked_again", f"{one.name} was called before with the same arguments and another result"
    last = same[-1].answer if same else None
    if last is not None and last.is_error and last.fault is None:
        yield "failed_before", f"the same call of {one.name} had failed: {(last.content or '')[:80]}"
