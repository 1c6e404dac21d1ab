"""An agent that says only what it must is not failed for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.run import Served, dragoman, serving
from doctor.proxy import Asked, Fault, Proxy, Told, standing_before
from dragoman import connect
from dragoman.doctor import Orders, Report, examine

AGENT = Path(__file__).with_name("agent.py")

pytestmark = pytest.mark.slow  # starts processes


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("sparse")
    with serving(str(AGENT), "--store", "memory:", "--no-grpc", cwd=folder) as served:
        yield served


@pytest.fixture(scope="module")
def proxy(served: Served) -> Iterator[Proxy]:
    with standing_before(served.port) as proxy:
        yield proxy


def without(value: Any, *members: str) -> Any:
    """The same without these members, however deep they lie."""
    if isinstance(value, list):
        return [without(each, *members) for each in value]
    if not isinstance(value, dict):
        return value
    return {key: without(held, *members) for key, held in value.items() if key not in members}


def leaving_out(*members: str) -> Fault:
    """Answers and events lack these; the card is whole."""

    def tell(asked: Asked, told: Told) -> None:
        if asked.op != "card" and told.body.startswith(b"{"):
            told.put(without(told.json, *members))

    def events(asked: Asked, told: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        return (without(event, *members) for event in told)

    return Fault((), tell=tell, events=events)


def changing_the_card(change: Any) -> Fault:
    def tell(asked: Asked, told: Told) -> None:
        if asked.op == "card" and told.body.startswith(b"{"):
            value = told.json
            change(value)
            told.put(value)

    return Fault((), tell=tell)


def examined(proxy: Proxy, fault: Fault, *only: str, on: str = "") -> Report:
    proxy.fault = fault
    orders = Orders(only=only, on=(on,) if on else (), text="one two three", slow_text="slow go")
    return examine(proxy.url, orders)


def red(report: Report) -> list[tuple[str, str, str]]:
    return [(r.on, r.id, r.why) for r in report.results if r.outcome in ("fail", "warning")]


@pytest.mark.parametrize("on", ["jsonrpc-1.0", "rest-0.3"])
def test_a_task_without_history_fails_no_check(proxy: Proxy, on: str) -> None:
    report = examined(proxy, leaving_out("history"), "send.*", "get.*", "list.*", on=on)
    assert red(report) == []


@pytest.mark.parametrize(
    "member", ["id", "contextId", "status", "artifacts", "parts", "tasks", "taskId", "messageId"]
)
def test_whatever_is_missing_is_named_and_no_check_stumbles(proxy: Proxy, member: str) -> None:
    groups = ("send.*", "get.*", "list.*", "push.*", "cancel.*")
    report = examined(proxy, leaving_out(member), *groups, on="jsonrpc-1.0")
    assert [told for told in red(report) if "Error:" in told[2]] == []


async def test_an_interface_without_a_version_is_examined_as_connect_speaks_it(
    proxy: Proxy,
) -> None:
    def unversioned(card: dict[str, Any]) -> None:
        for name in ("url", "protocolVersion", "preferredTransport", "additionalInterfaces"):
            card.pop(name, None)
        first = card["supportedInterfaces"][0]
        card["supportedInterfaces"] = [{k: first[k] for k in ("url", "protocolBinding")}]

    report = examined(proxy, changing_the_card(unversioned), "send.*", "card.protocol-version")
    assert report.interfaces == ("jsonrpc-1.0",)
    assert [id for _, id, _ in red(report)] == ["card.protocol-version"]
    async with connect(proxy.url) as agent:
        assert agent.dialect == "a2a-1.0"


def test_the_main_address_of_a_card_without_a_version_is_examined_as_connect_speaks_it(
    proxy: Proxy,
) -> None:
    """Beside `supportedInterfaces` it is 0.3 and never 0.1: such a card is not that old."""

    def unversioned(card: dict[str, Any]) -> None:
        card.pop("protocolVersion", None)

    report = examined(proxy, changing_the_card(unversioned), "send.task")
    assert set(report.interfaces) == {"jsonrpc-1.0", "rest-1.0", "jsonrpc-0.3", "rest-0.3"}


def test_skills_that_are_missing_are_said_to_be_missing(proxy: Proxy, tmp_path: Path) -> None:
    def no_skills(card: dict[str, Any]) -> None:
        del card["skills"]

    ((_, _, why),) = red(examined(proxy, changing_the_card(no_skills), "card.skills"))
    assert why == "skills is missing"
    old = dragoman("card", "validate", f"{proxy.url}/.well-known/agent.json", cwd=tmp_path)
    assert "error    skills: is missing" in old.stdout
    assert old.returncode == 1


def test_an_empty_list_that_protobuf_leaves_out_is_no_fault_in_1_0(
    proxy: Proxy, tmp_path: Path
) -> None:
    def as_protobuf_writes_it(card: dict[str, Any]) -> None:
        for name in ("url", "protocolVersion", "preferredTransport", "additionalInterfaces"):
            card.pop(name, None)
        del card["skills"]

    fault = changing_the_card(as_protobuf_writes_it)
    assert red(examined(proxy, fault, "card.skills", "card.skill-ids")) == []
    told = dragoman("card", "validate", proxy.url, cwd=tmp_path)
    assert told.returncode == 0, told.stdout
    assert "warning  skills: is missing" in told.stdout


@pytest.mark.parametrize("as_event", [False, True], ids=["json", "event"])
def test_a_stream_that_is_refused_in_an_event_is_refused(proxy: Proxy, as_event: bool) -> None:
    """As every client of 0.3 reads it."""

    def ask(asked: Asked) -> Told | None:
        if asked.op not in ("stream", "subscribe"):
            return None
        code = -32004 if asked.op == "stream" else -32001
        error = {"code": code, "message": "No"}
        told = {"jsonrpc": "2.0", "id": asked.json["id"], "error": error}
        if as_event:
            body = b"data: " + json.dumps(told).encode() + b"\n\n"
            return Told(200, {"content-type": "text/event-stream"}, body)
        return Told(200, {"content-type": "application/json"}, json.dumps(told).encode())

    def tell(asked: Asked, told: Told) -> None:
        if asked.op == "card" and told.body.startswith(b"{"):
            value = told.json
            value["capabilities"]["streaming"] = False
            told.put(value)

    on = "jsonrpc-0.3"
    report = examined(proxy, Fault((), ask=ask, tell=tell), "stream.undeclared", on=on)
    assert [(r.outcome, r.why) for r in report.results] == [("pass", "")]
    report = examined(proxy, Fault((), ask=ask), "subscribe.unknown", "stream.shape", on=on)
    assert [(r.id, r.outcome) for r in report.results] == [
        ("stream.shape", "fail"),
        ("subscribe.unknown", "pass"),
    ]
    assert "refused: -32004" in report.results[0].why
