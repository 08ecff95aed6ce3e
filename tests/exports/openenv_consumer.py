"""Run in an environment that has openenv-core: serves an exported folder and plays every arena through its client.

    python openenv_consumer.py FOLDER [SITE]      # SITE: where astra-pipeline's own dependencies are, if not here

Prints a JSON line: rewards of the golden runs, and of doing nothing.
"""

import json
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def serve(app, port):
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error"))
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.05)
    return server


def main(folder, *site):
    sys.path.extend(site)
    with tempfile.TemporaryDirectory() as home:
        (Path(home) / "astra_arenas").symlink_to(Path(folder).resolve())
        sys.path.insert(0, home)
        from astra_arenas import ArenaAction, ArenaClient
        from astra_arenas.server.app import app

        from astra.exports.playing import golden, read_arenas
        from astra.records import Arena

        port = free_port()
        server = serve(app, port)
        arenas = [Arena.model_validate_json(text) for text in read_arenas(Path(folder) / "arenas.jsonl")]
        paid, idle = [], []
        with ArenaClient(base_url=f"http://127.0.0.1:{port}").sync() as client:
            for place, one in enumerate(arenas):
                begun = client.reset(arena=place)
                assert begun.observation.question == one.question
                assert len(begun.observation.tools) == len(one.tools)
                for name, arguments in golden(one):
                    step = client.step(ArenaAction(calls=[{"name": name, "arguments": arguments}]))
                    assert not step.done
                    assert len(step.observation.results) == 1
                assert client.state().arena_id == one.id
                paid.append(client.step(ArenaAction(answer="Done.")).reward)
                client.reset(arena=place)
                idle.append(client.step(ArenaAction(answer="I do not know.")).reward)
        server.should_exit = True
        print(json.dumps({"golden": paid, "idle": idle}))


if __name__ == "__main__":
    main(*sys.argv[1:])
