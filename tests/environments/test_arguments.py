"""Arguments that a schema does not take: the error says what to change, and where."""

from __future__ import annotations

from typing import Any

import pytest

from astra.environments import Observation
from astra.environments.arguments import argument_errors, refused
from astra.records import ToolSpec

ADDRESS = {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]}
PROPERTIES = {
    "port": {"type": "string"},
    "berths": {"type": "array", "items": {"type": "integer"}},
    "kind": {"enum": ["car", "bike"]},
    "address": {"$ref": "#/$defs/address"},
}
TOOL = ToolSpec(
    name="book", description="Book.",
    parameters={"type": "object", "properties": PROPERTIES, "required": ["port", "kind"], "additionalProperties": False,
                "$defs": {"address": ADDRESS}},
)  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "missing parameter: port; missing parameter: kind"),
        ({"port": 3, "kind": "car"}, "invalid parameter port: 3 is not of type 'string'"),
        ({"port": "Lyme", "kind": "bus"}, "invalid parameter kind: 'bus' is not one of ['car', 'bike']"),
        (
            {"port": "Lyme", "kind": "car", "berths": [1, "x"]},
            "invalid parameter berths[1]: 'x' is not of type 'integer'",
        ),
        ({"port": "Lyme", "kind": "car", "address": {}}, "missing parameter: address.town"),
        (
            {"port": "Lyme", "kind": "car", "harbour": "L"},
            "unknown parameter: harbour. The parameters are: port, berths, kind, address",
        ),
    ],
)
def test_an_error_names_the_place_and_what_is_wanted(arguments: dict[str, Any], told: str) -> None:
    assert argument_errors(TOOL, arguments) == told
    assert refused(TOOL, arguments) == Observation(told, True, "agent")


def test_arguments_that_fit_are_not_refused() -> None:
    assert refused(TOOL, {"port": "Lyme", "kind": "car", "berths": [1], "address": {"town": "Lyme"}}) is None


def test_at_most_three_errors_are_told() -> None:
    assert argument_errors(TOOL, {"berths": ["a", "b"], "x": 1}).count(";") == 2
