"""Programs as a careless or a cheating model writes them: each a right one's text, made wrong in a way of its own."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

Wrong = Callable[[str, str, str, list[list[Any]]], str]  # program, function, first parameter, example rows


def _before_return(line: str) -> Wrong:
    return lambda code, name, key, rows: code.replace("    return ", f"    {line.replace('KEY', key)}\n    return ", 1)


def _returning(value: str) -> Wrong:
    return lambda code, name, key, rows: re.sub(r"return .*", f"return {value.replace('KEY', key)}", code, count=1)


def _only_examples(instead: str) -> Wrong:
    """Right for the rows that the writer was shown, and only for them."""

    def wrong(code: str, name: str, key: str, rows: list[list[Any]]) -> str:
        known = [row[0] for row in rows]
        line = f"if {key} in TABLE and {key} not in {known!r}:\n        {instead}"
        return code.replace("    return ", f"    {line}\n    return ", 1)

    return wrong


WRONG: dict[str, Wrong] = {
    "syntax": lambda code, name, key, rows: code.replace("):", ")", 1),
    "cut": lambda code, name, key, rows: code[: len(code) // 2],
    "prose": lambda code, name, key, rows: "I am sorry, I cannot write this tool.",
    "other_name": lambda code, name, key, rows: code.replace(f"def {name}", f"def {name}_tool"),
    "other_parameter": lambda code, name, key, rows: re.sub(rf"\b{key}\b", f"{key}_key", code),
    "positional_only": lambda code, name, key, rows: code.replace("):", ", /):", 1),
    "coroutine": lambda code, name, key, rows: code.replace("def ", "async def ", 1),
    "hard_coded": lambda code, name, key, rows: re.sub(r"return .*", f"return {{'result': {rows[0][-1]!r}}}", code),
    "own_rows": lambda code, name, key, rows: code.replace("TABLE", "ROWS") + f"\n\nROWS = {dict(rows)!r}\n",
    "ignores": _returning('{"result": list(TABLE.values())[0]}'),
    "bare": _returning("TABLE[KEY]"),
    "wrapped": _returning('{"answer": TABLE[KEY]}'),
    "as_text": _returning('{"result": f"<{TABLE[KEY]}>"}'),
    "everything": _returning('{"result": list(TABLE.items())}'),
    "no_error": lambda code, name, key, rows: re.sub(r"raise .*", "return {'result': None}", code),
    "first_for_unknown": lambda code, name, key, rows: re.sub(
        r"raise .*", "return {'result': list(TABLE.values())[0]}", code
    ),
    "dumb_error": lambda code, name, key, rows: re.sub(r"raise .*", "raise ValueError('no')", code),
    "loops": _before_return("while True: pass"),
    "loops_on_others": _only_examples("while True: pass"),
    "first_on_others": _only_examples('return {"result": list(TABLE.values())[0]}'),
    "error_tells": _only_examples("raise ValueError(str(TABLE))"),
    "prints": _before_return("print(TABLE[KEY])"),
    "prints_on_others": _only_examples("print(TABLE)"),
    "floods": _before_return("print('x' * 10_000_000)"),
    "reads_files": _before_return("open('/etc/passwd').read()"),
    "writes_files": _before_return("open('/tmp/astra-was-here', 'w').write('x')"),
    "network": _before_return("__import__('socket').create_connection(('127.0.0.1', 9))"),
    "processes": _before_return("__import__('os').fork()"),
    "exits": _before_return("__import__('os')._exit(0)"),
    "raises": _before_return("raise SystemExit(0)"),
    "recursion": _before_return("(lambda f: f(f))(lambda f: f(f))"),
    "memory": _before_return("bytearray(1 << 40)"),
    "random": _returning('{"result": __import__("random").choice(list(TABLE.values()))}'),
    "clock": _returning('{"result": __import__("time").time()}'),
    "forgets": _before_return("TABLE.pop(KEY, None); TABLE.setdefault(KEY, 'gone')"),
    "imports": lambda code, name, key, rows: "import numpy_of_nowhere\n\n" + code,
    "not_finite": _returning('{"result": float("nan")}'),
    "prints_at_top": lambda code, name, key, rows: code + "\nprint('ready')\n",
}  # fmt: skip


def wrong_reply(reply: str, shown: dict[str, Any], rng: random.Random) -> str:
    """The reply with a program that is wrong in a way drawn from all."""
    code = reply.replace("```python", "").replace("```", "").strip() + "\n"
    tool, data = shown["tool"], shown["data"]
    made = WRONG[rng.choice(sorted(WRONG))](code, tool["name"], data["keys"][0], data["examples"])
    return f"```python\n{made}\n```"
