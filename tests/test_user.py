"""Who plays the user: the script, and a model that keeps to it."""

from __future__ import annotations

import asyncio
import json

import pytest

from astra.llm import Completion, ModelParams, Request, builtin_client
from astra.records import FunctionCall, Message, Task, ToolCall, ToolSpec, Usage, UserTurn
from astra.user import ModelUser, Said, ScriptedUser, UserReplyInvalid

MODEL = ModelParams(transport="builtin", name="r", temperature=0.0, max_tokens=256)
TIDE = ToolSpec(name="tide_now", description="Tide of a port.", parameters={"type": "object", "properties": {}})
ASKED = (Message(role="user", content="How high is it?"), Message(role="assistant", content="Which port?"))


def task(*turns: UserTurn, **more: object) -> Task:
    return Task.model_validate(
        {
            "id": "task-1", "server_ids": ("s",), "chain_id": None, "question": "How high is it?", "turns": turns,
            "target_tools": ("tide_now",), "origin": "server", "augmentation": "none", "quality": {}, **more,
        }
    )  # fmt: skip


def said(user: ScriptedUser, messages: tuple[Message, ...] = ASKED) -> Said | None:
    return asyncio.run(user.reply(messages))


def test_a_script_is_said_turn_by_turn_and_ends() -> None:
    user = ScriptedUser(task(UserTurn(says="And at noon?"), UserTurn(says="Thanks, and tomorrow?")), {})
    assert [said(user), said(user), said(user)] == [Said("And at noon?"), Said("Thanks, and tomorrow?"), None]


def test_a_turn_that_brings_a_tool_shows_its_document_in_its_second_paragraph() -> None:
    spoken = said(ScriptedUser(task(UserTurn(says="It is there.", brings=("tide_now",))), {"tide_now": TIDE}))
    assert spoken is not None
    assert spoken.tools == (TIDE,)
    first, second = spoken.content.split("\n\n")
    assert first == "It is there."
    assert json.loads(second.splitlines()[1]) == TIDE.openai()


def test_a_left_out_value_is_not_given_to_who_guessed_it() -> None:
    turn = UserTurn(says="Lyme.", gives="Lyme")
    missing = {"kind": "missing_value", "missing": ("tide_now.port",)}
    call = ToolCall(id="c", function=FunctionCall(name="tide_now", arguments='{"port": "Oban"}'))
    guessed = (ASKED[0], Message(role="assistant", content="Next.", tool_calls=(call,)))
    assert said(ScriptedUser(task(turn, **missing), {})) == Said("Lyme.")
    assert said(ScriptedUser(task(turn, **missing), {}), guessed) is None


class Says:
    """A model that gives what stands next, and remembers what it was asked."""

    def __init__(self, *replies: str) -> None:
        self.replies = list(replies)
        self.asked: list[Request] = []

    async def ask(self, request: Request) -> Completion:
        self.asked.append(request)
        return Completion(self.replies.pop(0), "stop", Usage(calls=1, prompt_tokens=1, completion_tokens=1))


def model_user(client: Says, turn: UserTurn, reasks: int = 1) -> ModelUser:
    return ModelUser(task(turn, kind="missing_value", missing=("tide_now.port",)), {}, client, MODEL, 1, 0, reasks)


def test_a_model_in_the_user_s_place_hears_the_assistant_and_is_told_what_to_say() -> None:
    client = Says('{"says": "Oh, at Lyme of course."}')
    assert said(model_user(client, UserTurn(says="Lyme.", gives="Lyme"))) == Said("Oh, at Lyme of course.")
    prompt = client.asked[0].messages[0].content or ""
    assert "Which port?" in prompt
    assert '"next": "Lyme."' in prompt


def test_a_model_that_does_not_state_the_value_is_asked_again_and_then_a_reject() -> None:
    turn = UserTurn(says="Lyme.", gives="Lyme")
    assert said(model_user(Says('{"says": "Guess!"}', '{"says": "Lyme"}'), turn)) == Said("Lyme")
    with pytest.raises(UserReplyInvalid, match="does not state the value 'Lyme'"):
        said(model_user(Says('{"says": "Guess!"}', '{"says": "Oban"}'), turn))


def test_the_built_in_user_says_the_script() -> None:
    user = ModelUser(task(UserTurn(says="And at noon?")), {}, builtin_client(), MODEL, 1, 0, 1)
    assert said(user) == Said("And at noon?")
