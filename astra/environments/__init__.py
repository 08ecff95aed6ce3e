"""Environments: what answers tool calls. One suite in tests/contracts holds for all of them."""

from astra.environments.base import Environment, EnvironmentUnavailable, Observation

__all__ = ["Environment", "EnvironmentUnavailable", "Observation"]
