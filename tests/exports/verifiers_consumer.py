"""Run in an environment that has verifiers: loads an exported folder and rolls every arena out.

    python verifiers_consumer.py FOLDER [SITE]      # SITE: where astra-pipeline's own dependencies are, if not here

Prints a JSON line: rewards of the golden runs, and of doing nothing.
"""

import asyncio
import json
import sys


def scripted(said):
    """A model that says these messages, each a list of calls or a text."""
    from verifiers.types import Response, ResponseMessage, ToolCall

    left = list(said)

    async def get_model_response(state, prompt, **_):
        next_ = left.pop(0)
        calls = None if isinstance(next_, str) else [
            ToolCall(id=f"call_{len(left)}_{n}", name=name, arguments=text) for n, (name, text) in enumerate(next_)
        ]  # fmt: skip
        message = ResponseMessage(
            role="assistant", content=next_ if isinstance(next_, str) else None, tool_calls=calls,
            finish_reason="tool_calls" if calls else "stop", is_truncated=False,
        )  # fmt: skip
        return Response(id="r", created=0, model="m", message=message)

    return get_model_response


def nobody():
    """A client that is never asked: the script answers."""
    from verifiers.clients import Client

    names = sorted(Client.__abstractmethods__)
    return type("Nobody", (Client,), dict.fromkeys(names, None))(object())


async def play(environment, row, said):
    environment.get_model_response = scripted(said)
    state = await environment.rollout({**row, "example_id": 0}, nobody(), "m", {})
    assert state.get("error") is None, state["error"]
    await environment.rubric.score_rollout(state)
    return state["reward"], state


async def run(folder):
    import astra_arenas

    from astra.exports.playing import golden
    from astra.records import Arena

    environment = astra_arenas.load_environment()
    paid, idle = [], []
    for row in environment.get_dataset():
        info = json.loads(row["info"]) if isinstance(row["info"], str) else row["info"]
        one = Arena.model_validate_json(info["arena"])
        reward, state = await play(environment, row, [*([call] for call in golden(one)), "Done."])
        assert len(state["tool_defs"]) == len(one.tools)
        paid.append(reward)
        idle.append((await play(environment, row, ["I do not know."]))[0])
    print(json.dumps({"golden": paid, "idle": idle}))


def main(folder, *site):
    sys.path.extend(site)
    sys.path.insert(0, folder)
    asyncio.run(run(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
