"""The files of a finished run, made up: what the report's tests read. Texts are as hostile as a model can be."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from astra.records import (
    Answer,
    Arena,
    Binding,
    Certificate,
    Chain,
    CodeTool,
    Edge,
    Evidence,
    FunctionCall,
    Link,
    Message,
    Probe,
    Reject,
    Rollout,
    Sample,
    Scorecard,
    Server,
    Source,
    Step,
    Task,
    ToolCall,
    ToolGraph,
    ToolSpec,
    Trajectory,
    Usage,
    Verdict,
)
from astra.report.reading import CURVES, METRICS, RECORDS, REJECTS, STUDIES
from tests.import_closure import ROOT

HOSTILE = (
    "</script><script>window.hacked = 1</script><img src=x onerror=\"window.hacked = 2\"> <!-- '\\'; ${hacked} `  \\u2028 "
    "\u2028\u2029 \x00\x1b[31m \u202emirrored\u202c \U0001f600 <a href='javascript:window.hacked=3'>x</a> {{ 7 * 7 }} */}); window.hacked = 4; ({/*"
)
HUGE = 3_000_000
SEVEN = ("QU", "QP", "TCU", "TCP", "TCS", "TC", "FA")
FAULTS = (None, "timeout", None, "stale", None, "rate_limit", None)


def tool(name: str) -> ToolSpec:
    one = {"type": "string", "description": "Number of an invoice, e.g. R-2026-081."}
    schema = {"type": "object", "properties": {"invoice_no": one, "__proto__": one}, "required": ["invoice_no"]}
    return ToolSpec(name=name, description=f"{name}: {HOSTILE}", parameters=schema, returns=schema)


SPECS = tuple(tool(name) for name in ("find_client", "issue_invoice", "remind_client", "get_document", "book_payment"))


def servers() -> Iterator[Server]:
    source = Source(format="openai", uri="data/raw/tools/a.json", revision="sha256:0", licence="Apache-2.0")
    for n, title in enumerate(("Billing Office", "City Bikes")):
        yield Server(id=f"server-{n:012x}", name=f"s{n}", title=title, description=HOSTILE, domain="finance",
                     tools=SPECS, source=source)  # fmt: skip


def graphs() -> Iterator[ToolGraph]:
    link = Link(output="invoices[].no", parameter="invoice_no", evidence={"name": 0.6, "similarity": 0.5})
    edges = (
        Edge(source="find_client", target="issue_invoice", via=(link,), votes_for=3, votes=9),
        Edge(source="issue_invoice", target="remind_client", via=(), votes_for=1, votes=9),
        Edge(source="issue_invoice", target="get_document", via=(link,), votes_for=0, votes=9,
             target_server_id="server-000000000001"),
    )  # fmt: skip
    yield ToolGraph(id="graph-000000000000", server_id="server-000000000000", edges=edges)


def chains() -> Iterator[Chain]:
    bindings = (
        Binding(step=0, parameter="name", origin="user"),
        Binding(step=1, parameter="invoice_no", origin="result", from_step=0, output="no"),
    )
    yield Chain(id="chain-000000000000", server_ids=("server-000000000000",), tools=("find_client", "issue_invoice"),
                bindings=bindings, support=0.25, checks={"vote": "2 of 2"})  # fmt: skip


def tasks() -> Iterator[Task]:
    verdict = Verdict(score=0.75, reason=HOSTILE)
    yield Task(id="task-000000000000", server_ids=("server-000000000000",), chain_id="chain-000000000000",
               question=HOSTILE, target_tools=("find_client",), origin="chain", augmentation="none",
               quality={"question_quality": verdict})  # fmt: skip


def trajectory(n: int, words: str) -> Trajectory:
    name = SPECS[n % 5].name
    fault = FAULTS[n % 7]
    calls = (ToolCall(id="c1", function=FunctionCall(name=name, arguments='{"__proto__": {"n": 12345678901234567890}}')),
             ToolCall(id="c2", function=FunctionCall(name="</b>", arguments="{not json " + words[:200])))  # fmt: skip
    messages = (
        Message(role="system", content="Answer the request with the tools."),
        Message(role="user", content=f"Request {n}: {words}"),
        Message(role="assistant", content=words, reasoning=words, tool_calls=calls),
        Message(role="tool", content=f'{{"result": "{n}"}}' if not fault else words, tool_call_id="c1", name=name,
                executed_by="emulator", is_error=fault == "timeout", fault=fault),
        Message(role="assistant", content=f"That is everything: {words}"),
    )  # fmt: skip
    return Trajectory(id=f"trajectory-{n:012x}", task_id="task-000000000000", server_ids=("server-000000000000",),
                      attempt=n % 2, tools=SPECS, messages=messages, stop="answered", model="m" + words[:40],
                      usage=Usage(calls=3, prompt_tokens=900, completion_tokens=100))  # fmt: skip


def scorecard(n: int, words: str) -> Scorecard:
    dimensions = {name: Verdict(score=round((n % 11) / 10, 2), reason=f"{name} {words}") for name in SEVEN}
    found = (Evidence(kind="invented", message=2, call=0, detail=words),)
    return Scorecard(id=f"scorecard-{n:012x}", trajectory_id=f"trajectory-{n:012x}", dimensions=dimensions,
                     evidence=found, overall=round((n % 11) / 10, 2))  # fmt: skip


def arenas() -> Iterator[Arena]:
    answer = Answer(kind="text", value=HOSTILE)
    steps = (
        Step(id=1, question=HOSTILE, answer=answer, needs_tool=True, relation="airport_city"),
        Step(id=2, question="And then?", answer=answer, depends_on=(1,), needs_tool=False),
    )
    code = CodeTool(spec=SPECS[0], code=f"def find_client(no):\n    return {HOSTILE!r}\n", serves=(1,))
    probe = Probe(step=1, tool="find_client", arguments={"__proto__": HOSTILE}, expected=answer)
    proof = Certificate(artifact="0" * 64, checks={"golden": True, "no_leak": False}, backend="landlock",
                        payments={"golden": 1.0, "echo": 0.0})  # fmt: skip
    for split in ("train", "heldout"):
        yield Arena(id=f"environment-{split}", decomposition_id="decomposition-0", domain="airport", shape="multi_hop",
                    question=HOSTILE, answer=answer, steps=steps, tools=(code,), probes=(probe,), split=split,
                    certificate=proof)  # fmt: skip


def rollouts() -> Iterator[Rollout]:
    yield Rollout(arena_id="environment-train", update=0, sample=0, messages=trajectory(0, HOSTILE).messages, solved=1,
                  n_required=2, n_calls=2, reward=0.5, recall=0.5, precision=0.5, answer_correct=False,
                  stop="answered")  # fmt: skip


def samples() -> Iterator[Sample]:
    for model in ("base", "sft"):
        yield Sample(model=model, benchmark="heldout", case="environment-heldout", trial=0, mode="greedy",
                     scores={"f1": 0.5, "calls": 2.0}, messages=trajectory(1, HOSTILE).messages,
                     error="the endpoint was away" if model == "base" else None)  # fmt: skip


def rejects(n: int) -> Iterator[Reject]:
    for k in range(n):
        yield Reject(id=f"chain-{k:012x}", reason="voted_down" if k % 3 else "not_given_back", detail=f"{k}: {HOSTILE}")


def metrics(n_trajectories: int, n_rejects: int) -> dict[str, dict[str, Any]]:
    used = {"calls": 10, "cached": 4, "retries": 0, "prompt_tokens": 1000, "completion_tokens": 50, "cost_usd": 0.25}
    even = {"in": n_trajectories, "out": n_trajectories, "rejected": 0}
    reasons = {"voted_down": n_rejects - (n_rejects + 2) // 3, "not_given_back": (n_rejects + 2) // 3}
    found: dict[str, dict[str, Any]] = {stage: dict(even) for stage in METRICS}
    found["chains"] = {"in": 1 + n_rejects, "out": 1, "rejected": n_rejects, "rejects": reasons,
                       "gates": {"vote": {"in": 1 + n_rejects, "passed": 1}}, "models": {"teacher": used}}  # fmt: skip
    found["score"]["models"] = {"judge": used, "panel": {"votes": 3}}
    found["merge"] |= {"in": 2, "out": 2, "splits": {"heldout": 1, "train": 1}}
    found["sft"] |= {"imitation": n_trajectories}
    found["rl"] |= {"distractors": {"filled": 1, "low": 2, "medium": 3, "high": 4}}
    found["eval"] |= {
        "paired": {"sft-base": {"heldout": {"greedy": {"f1": {"mean": 0.5, "low": 0.4, "high": 0.6, "n": 1}}}}}
    }
    figure = {"mean": 0.5, "low": 0.4, "high": 0.6, "n": 9, "seeds": {"17": 0.5}}
    less = {**figure, "less_first": {**figure, "mean": -0.125}}
    found["ablations"] |= {"reward": {"f1": {"heldout": {"f1": figure}}, "recall": {"heldout": {"f1": less}},
                                      "precision": {"status": "not run: arm precision"}}}  # fmt: skip
    return found


CURVE_TEXTS = {
    "sft": "step,loss\n1,3.5\n2,2.5\n3,nan\n",
    "rl": "update,reward,recall,precision,answer,calls,zero_variance,loss,entropy\n0,0.5,0.5,0.5,0.1,3,0,1,1\n"
          "1,0.6,0.5,0.5,0.1,3,0.5,1,1\n",
    "eval": "model,benchmark,mode,measure,mean,low,high,n\nbase,heldout,greedy,f1,0,0,0,9\n"
            "sft,heldout,greedy,f1,0.5,0.4,0.6,9\nsft,heldout,greedy,calls,2,1,3,9\n",
    **{f"ablation_{study}": "curve,measure,update,mean,low,high,seeds\n" for study in STUDIES},
    "ablation_reward": "curve,measure,update,mean,low,high,seeds\nf1,recall,0,0.4,0.3,0.5,3\nf1,recall,1,0.5,0.4,0.6,3\n"
                       "recall,recall,0,0.4,,,1\nrecall,recall,1,0.5,,,1\n",
}  # fmt: skip


def write_lines(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines)


def write_run(folder: Path, n_trajectories: int = 12, n_rejects: int = 60, words: str = HOSTILE) -> Path:
    """A run whose records are one or two of each kind, and as many conversations and rejects as asked for."""
    makers = {"servers": servers, "graphs": graphs, "chains": chains, "tasks": tasks, "arenas": arenas,
              "rollouts": rollouts, "samples": samples}  # fmt: skip
    for word, make in makers.items():
        write_lines(folder / RECORDS[word], (one.model_dump_json() for one in make()))
    write_lines(folder / RECORDS["trajectories"], _many(trajectory, n_trajectories, words))
    write_lines(folder / RECORDS["scorecards"], _many(scorecard, n_trajectories, words))
    for stage, path in REJECTS.items():
        some = rejects(n_rejects) if stage == "chains" else iter(())
        write_lines(folder / path, (one.model_dump_json() for one in some))
    for stage, found in metrics(n_trajectories, n_rejects).items():
        write_lines(folder / METRICS[stage], [json.dumps(found)])
    for name, path in CURVES.items():
        write_lines(folder / path, [CURVE_TEXTS[name].rstrip("\n")])
    for name in ("dvc.yaml", "params.yaml"):
        shutil.copy(ROOT / name, folder)
    return folder


def _many(make: Any, n: int, words: str) -> Iterator[str]:
    """Records like those that ``make`` gives, quickly: 385 are made, the others differ by their ids and numbers."""
    period = 5 * 7 * 11
    made = [make(k, words).model_dump_json() for k in range(min(n, period))]
    for k in range(n):
        yield (
            made[k % period]
            .replace(f"{k % period:012x}", f"{k:012x}")
            .replace(f"Request {k % period}:", f"Request {k}:")
        )
