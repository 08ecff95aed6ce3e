"""BFCL's own handler and its own judgement, case after case: the other side of the conformance test.

Where packages that the handler imports are not there, stand-ins take their place: they parse Java or mark a method as
final, and no case here comes to that. What talks to the model is real: openai in v4, requests in v3.

    PYTHON bfcl_handler.py FOLDER VERSION BASE_URL < lines of {"case": ...} > lines of {"case", "decoded", "note"}

The package's runner imports the SDK of every vendor, so its judging function is taken out of the file by its name.
"""

from __future__ import annotations

import ast
import copy
import importlib
import importlib.util
import json
import os
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

FOLDER, VERSION, BASE_URL = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
NAME = "play"  # of the model: our adapter's name for a run, because it gets into texts that look like calls


class StandIn(types.ModuleType):
    """A module any of whose names is a function that gives back its first argument, as a decorator would."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *given, **_: given[0] if given else self

    def set_language(self, _: Any) -> None:
        return


def stand_in(*names: str) -> None:
    for name in names:
        if importlib.util.find_spec(name) is None:
            sys.modules[name] = StandIn(name)


def function_of(file: Path, name: str, **known: Any) -> Any:
    """A function of a file that can't be imported; ``known`` is what it refers to."""
    tree = ast.parse(file.read_text())
    tree.body = [one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == name]
    for one in ast.walk(tree):
        if isinstance(one, ast.FunctionDef):
            one.returns = None
            for argument in one.args.args:
                argument.annotation = None
    namespace = dict(known)
    exec(compile(tree, str(file), "exec"), namespace)
    return namespace[name]


class V4:
    def __init__(self) -> None:
        os.environ |= {"OPENAI_BASE_URL": BASE_URL, "OPENAI_API_KEY": "none", "BFCL_PROJECT_ROOT": tempfile.mkdtemp()}
        handlers = importlib.import_module("bfcl_eval.model_handler.api_inference.openai_completion")
        self.utils = importlib.import_module("bfcl_eval.utils")
        self.executor = importlib.import_module("bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils")
        checker = importlib.import_module("bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker")
        self.handler = handlers.OpenAICompletionsHandler(NAME, 0.001, f"{NAME}-FC", True)
        self.judge = function_of(
            FOLDER / "bfcl_eval/eval_checker/eval_runner.py", "_evaluate_single_multi_turn_entry",
            is_empty_execute_response=self.executor.is_empty_execute_response,
            multi_turn_checker=checker.multi_turn_checker,
        )  # fmt: skip

    def entries(self, category: str) -> list[dict[str, Any]]:
        return self.utils.load_dataset_entry(category)

    def answers(self, category: str) -> list[dict[str, Any]]:
        return self.utils.load_ground_truth_entry(category)

    def decode(self, response: Any) -> Any:
        return self.handler.decode_execute(response, has_tool_call_tag=False)

    def note(self, entry: dict[str, Any], answer: dict[str, Any], result: Any) -> str:
        category = entry["id"].rsplit("_", 1)[0]
        found = self.judge(self.handler, entry["id"], result, answer["ground_truth"], entry, NAME, category)
        return "" if found["valid"] else found["error"]["error_type"]


class V3:
    def __init__(self) -> None:
        handlers = importlib.import_module("bfcl.model_handler.api_inference.openai")
        utils = importlib.import_module("bfcl.utils")
        constant = importlib.import_module("bfcl.constant")
        self.data = FOLDER / "bfcl"
        self.load = utils.load_file
        self.executor = importlib.import_module("bfcl.eval_checker.multi_turn_eval.multi_turn_utils")
        checker = importlib.import_module("bfcl.eval_checker.multi_turn_eval.multi_turn_checker")
        self.handler = handlers.OpenAIHandler(NAME, f"{BASE_URL}/chat/completions", 0.001, native_calling=True)
        self.complete = function_of(
            FOLDER / "bfcl/_llm_response_generation.py", "process_multi_turn_test_case",
            is_multi_turn=utils.is_multi_turn, load_file=utils.load_file,
            MULTI_TURN_FUNC_DOC_PATH=self.data / "data/multi_turn_func_doc",
            MULTI_TURN_FUNC_DOC_FILE_MAPPING=constant.MULTI_TURN_FUNC_DOC_FILE_MAPPING,
        )  # fmt: skip
        self.written: list[Any] = []
        self.judge = function_of(
            self.data / "eval_checker/eval_runner.py", "multi_turn_runner",
            is_empty_execute_response=self.executor.is_empty_execute_response,
            multi_turn_checker=checker.multi_turn_checker, VERSION_PREFIX=constant.VERSION_PREFIX,
            write_list_of_dicts_to_file=lambda name, rows, folder: self.written.append(rows),
        )  # fmt: skip

    def entries(self, category: str) -> list[dict[str, Any]]:
        return self.complete(self.load(self.data / f"data/BFCL_v3_{category}.json"))

    def answers(self, category: str) -> list[dict[str, Any]]:
        return self.load(self.data / f"data/possible_answer/BFCL_v3_{category}.json")

    def decode(self, response: Any) -> Any:
        return self.handler.decode_execute(response)

    def note(self, entry: dict[str, Any], answer: dict[str, Any], result: Any) -> str:
        category = entry["id"].rsplit("_", 1)[0]
        rows = [{"id": entry["id"], "result": result}]
        self.judge(self.handler, rows, [entry], [answer], NAME, category, Path())
        _, *wrong = self.written.pop()
        return wrong[0]["error"]["error_type"] if wrong else ""


def decoded(package: Any, result: list[list[Any]]) -> list[list[list[str]]]:
    """Turn by turn the steps that can be executed, as the package's runner reads them."""
    turns = []
    for turn in result:
        steps = []
        for response in turn:
            try:
                calls = package.decode(response)
            except Exception:
                continue
            if not package.executor.is_empty_execute_response(calls):
                steps.append(calls)
        turns.append(steps)
    return turns


def main() -> None:
    answers_to, sys.stdout = sys.stdout, sys.stderr  # the package prints
    sys.path.insert(0, str(FOLDER))
    stand_in("overrides", "tree_sitter", "tree_sitter_java", "tree_sitter_javascript")
    package = {"v4": V4, "v3": V3}[VERSION]()
    known: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    for line in sys.stdin:
        case = json.loads(line)["case"]
        if case not in known:
            category = case.rsplit("_", 1)[0]
            answers = {one["id"]: one for one in package.answers(category)}
            known |= {one["id"]: (one, answers[one["id"]]) for one in package.entries(category)}
        entry, answer = copy.deepcopy(known[case])
        result, _ = package.handler.inference(copy.deepcopy(entry), False, True)
        for name in [one for one in vars(package.executor) if one.endswith("_instance")]:
            if "_eval" not in name:
                delattr(package.executor, name)  # the same case is played again with another model
        said = {"case": case, "decoded": decoded(package, result), "note": package.note(entry, answer, result)}
        for name in [one for one in vars(package.executor) if one.endswith("_instance")]:
            delattr(package.executor, name)
        print(json.dumps(said), file=answers_to, flush=True)


if __name__ == "__main__":
    main()
