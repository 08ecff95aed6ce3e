"""The contract between stages: one typed model per artifact, validated on read and on write."""

from astra.records.arena import (
    Answer,
    Arena,
    Certificate,
    CodeTool,
    Decomposition,
    Environment,
    Probe,
    Reject,
    Rollout,
    Sample,
    Shape,
    Split,
    Step,
)
from astra.records.base import Record, Section, Unavailable, canonical, content_id
from astra.records.chat import FunctionCall, KeptReply, Message, ToolCall, Usage, Verdict
from astra.records.graph import Binding, Chain, Edge, Link, ToolGraph
from astra.records.task import Kind, Stated, Task, UserTurn, Voice
from astra.records.tool import Server, Source, ToolSpec
from astra.records.trajectory import Evidence, LateTools, Scorecard, Trajectory

ARTIFACTS: dict[str, type[Record]] = {
    "server": Server,
    "tool_graph": ToolGraph,
    "chain": Chain,
    "task": Task,
    "trajectory": Trajectory,
    "scorecard": Scorecard,
    "decomposition": Decomposition,
    "environment": Environment,
    "arena": Arena,
    "rollout": Rollout,
    "sample": Sample,
    "kept_reply": KeptReply,
    "reject": Reject,
}

__all__ = [
    "ARTIFACTS",
    "Answer",
    "Arena",
    "Binding",
    "Certificate",
    "Chain",
    "CodeTool",
    "Decomposition",
    "Edge",
    "Environment",
    "Evidence",
    "FunctionCall",
    "KeptReply",
    "Kind",
    "LateTools",
    "Link",
    "Message",
    "Probe",
    "Record",
    "Reject",
    "Rollout",
    "Sample",
    "Scorecard",
    "Section",
    "Server",
    "Shape",
    "Source",
    "Split",
    "Stated",
    "Step",
    "Task",
    "ToolCall",
    "ToolGraph",
    "ToolSpec",
    "Trajectory",
    "Unavailable",
    "Usage",
    "UserTurn",
    "Verdict",
    "Voice",
    "canonical",
    "content_id",
]
