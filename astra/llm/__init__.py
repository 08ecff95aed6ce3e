"""Asking models: one client per role for every stage, any transport behind it."""

from __future__ import annotations

from astra.llm.client import Client
from astra.llm.errors import BudgetSpent, EndpointUnavailable, RequestRefused
from astra.llm.models import TRANSPORTS, Models, builtin_client
from astra.llm.types import Completion, ModelParams, Request, Role, Settings, Transport

__all__ = [
    "TRANSPORTS",
    "BudgetSpent",
    "Client",
    "Completion",
    "EndpointUnavailable",
    "ModelParams",
    "Models",
    "Request",
    "RequestRefused",
    "Role",
    "Settings",
    "Transport",
    "builtin_client",
]
