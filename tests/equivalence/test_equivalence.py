"""The same scenarios in every binding and version give the same (A2A 0.3 §3.4.1, §11.3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.core.errors import DragomanError
from dragoman.core.session import Frame
from equivalence.callers import BINDINGS, Binding, Caller
from equivalence.names import ASKED, name_of
from equivalence.page import PAGE, page
from equivalence.server import RunningServer, open_server
from equivalence.table import SCENARIOS, Point, Scenario, table

LIMIT = 60.0
"""Seconds for one cell."""


async def outcome(row: Scenario, server: RunningServer, binding: Binding) -> Any:
    """What a cell gives; that it was refused is something to give too."""
    try:
        async with asyncio.timeout(LIMIT):
            return await row.run(Caller(server, binding))
    except DragomanError as error:
        return f"refused: {error.reason}"
    except (AssertionError, TimeoutError, LookupError, ValueError, AttributeError) as exc:
        return f"broke: {type(exc).__name__} {str(exc)[:300]}"


@pytest.mark.slow  # takes several seconds
async def test_every_scenario_in_every_binding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found: dict[tuple[str, str], Any] = {}
    async with open_server(tmp_path) as server:
        for row in SCENARIOS:
            given = await asyncio.gather(*(outcome(row, server, each) for each in BINDINGS))
            found |= {(row.name, each.name): g for each, g in zip(BINDINGS, given, strict=True)}

    def shown(row: Scenario, binding: Binding) -> str:
        cell = row.cell(binding)
        if found[row.name, binding.name] != cell.gives:
            return "FAIL"
        return "apart" if cell.why else "ok"

    wrong = [
        f"{row.name} over {binding.name}: {found[row.name, binding.name]} is not {cell.gives}"
        for row in SCENARIOS
        for binding in BINDINGS
        if found[row.name, binding.name] != (cell := row.cell(binding)).gives
    ]
    with capsys.disabled():
        print("\n" + "\n".join(table(shown, BINDINGS)))
        print(f"{len(found)} cells, {len(wrong)} wrong")
    assert wrong == [], "\n".join(wrong)


def lying(binding: Binding) -> Binding:
    """The same, but what comes back says HO where it said HI."""

    async def wire(server: RunningServer, frame: Frame, **about: Any) -> AsyncIterator[Frame]:
        async with aclosing(binding.wire(server, frame, **about)) as replies:
            async for reply in replies:
                yield replace(reply, body=reply.body.replace(b"HI", b"HO"))

    return binding._replace(wire=wire)


async def test_a_binding_that_gives_something_else_is_seen(tmp_path: Path) -> None:
    (row,) = [row for row in SCENARIOS if row.name == "send and wait"]
    async with open_server(tmp_path) as server:
        for binding in BINDINGS:
            found = await outcome(row, server, lying(binding))
            assert found[:2] == ("completed", "HO"), binding.name
            assert found != row.cell(binding).gives


def test_the_table_is_what_was_asked_for() -> None:
    assert len(SCENARIOS) >= 40
    assert len({row.name for row in SCENARIOS}) == len(SCENARIOS)
    assert {row.point for row in SCENARIOS} == set(Point)
    for row in SCENARIOS:
        for cell in row.apart.values():
            assert cell.why, f"{row.name} stands apart without a reason"
            assert cell.gives != row.gives, f"{row.name} does not stand apart"


METHODS = {
    "message/send": "send",
    "message/stream": "stream",
    "tasks/get": "get",
    "tasks/list": "list",
    "tasks/cancel": "cancel",
    "tasks/resubscribe": "follow",
    "tasks/pushNotificationConfig/set": "set a webhook",
    "tasks/pushNotificationConfig/get": "get a webhook",
    "tasks/pushNotificationConfig/list": "list webhooks",
    "tasks/pushNotificationConfig/delete": "delete a webhook",
    "agent/getAuthenticatedExtendedCard": "extended card",
}
REST = {
    "send": "POST /v1/message:send",
    "stream": "POST /v1/message:stream",
    "get": "GET /v1/tasks/{id}",
    "list": "GET /v1/tasks",
    "cancel": "POST /v1/tasks/{id}:cancel",
    "follow": "GET /v1/tasks/{id}:subscribe",
    "set a webhook": "POST /v1/tasks/{id}/pushNotificationConfigs",
    "get a webhook": "GET /v1/tasks/{id}/pushNotificationConfigs/{configId}",
    "list webhooks": "GET /v1/tasks/{id}/pushNotificationConfigs",
    "delete a webhook": "DELETE /v1/tasks/{id}/pushNotificationConfigs/{configId}",
    "extended card": "GET /v1/card",
}

RPCS = {
    "follow": "TaskSubscription",
    "list webhooks": "ListTaskPushNotificationConfig",
    "extended card": "GetAgentCard",
}
"""Where the .proto of 0.3 has other names than that of 1.0."""


def test_the_names_are_those_of_the_specification() -> None:
    """0.3 §3.5.6, row by row; the verb of :subscribe is the .proto's."""
    by_name = {binding.name: binding for binding in BINDINGS}
    for method, what in METHODS.items():
        assert name_of(what, by_name["JSON-RPC 0.3"]) == method
        assert name_of(what, by_name["REST 0.3"]) == REST[what]
        new = REST[what].replace(" /v1/", " /").replace("/card", "/extendedAgentCard")
        found = name_of(what, by_name["REST 1.0"])
        assert found == (new if what != "follow" else found), what
        # JSON-RPC 1.0 has the names of its rpcs (1.0 §5.3).
        assert name_of(what, by_name["gRPC 1.0"]) == name_of(what, by_name["JSON-RPC 1.0"])
        assert name_of(what, by_name["gRPC 0.3"]) == RPCS.get(
            what, name_of(what, by_name["gRPC 1.0"])
        )
    assert set(METHODS.values()) | {"a method of the agent's own"} == set(ASKED)


def test_the_page_is_not_stale() -> None:
    said = "write it with: PYTHONPATH=src:tests python -m equivalence.page"
    assert PAGE.read_text("utf-8") == page(), said
