"""A doctor that cannot find a fault is worth nothing: each check is shown red at least once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.run import serving
from doctor.faulty import FAULTS, no
from doctor.proxy import SOUND, Asked, Fault, Proxy, Told, standing_before
from dragoman.doctor import CHECKS, Orders, Report, examine

AGENT = Path(__file__).with_name("agent.py")


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    folder = tmp_path_factory.mktemp("patient")
    flags = ("--store", "memory:", "--grpc-port", "0")
    with serving(str(AGENT), *flags, cwd=folder) as served, standing_before(served.port) as proxy:
        yield proxy


def examined(proxy: Proxy, *only: str, on: str = "") -> Report:
    orders = Orders(
        slow_text="slow go",
        ask_text="ask",
        only=only,
        on=(on,) if on else (),
        timeout=6.0,
        text="one two three",
    )
    return examine(proxy.url, orders)


def test_every_check_has_a_fault() -> None:
    shown = {id for fault in FAULTS.values() for id in fault.turns}
    assert sorted(set(CHECKS) - shown) == []
    assert sorted(shown - set(CHECKS)) == []
    assert len(CHECKS) >= 80


SILENT = {"old streams stay open", "subscribers begin late"}
"""Faults that are seen when the doctor has waited for as long as it waits at all."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in SILENT)) for name in FAULTS],
)
def test_a_fault_is_seen(name: str, proxy: Proxy) -> None:
    fault = FAULTS[name]
    proxy.grpc_says = "OK" if "yes" in name else "NOT_FOUND"
    proxy.fault = fault
    report = examined(proxy, *fault.turns, on=fault.on)
    red = {result.id for result in report.results if result.outcome in ("fail", "warning")}
    others = [r for r in report.results if r.id not in red]
    assert sorted(set(fault.turns) - red) == [], [(r.id, r.outcome, r.why) for r in others]


def test_an_agent_of_the_first_days_is_examined_as_such(proxy: Proxy) -> None:
    """No version on the card, and only `tasks/send`."""

    def tell(asked: Asked, told: Told) -> None:
        if asked.op == "card":
            value = told.json
            for member in ("supportedInterfaces", "protocolVersion", "additionalInterfaces"):
                value.pop(member, None)
            told.put(value)

    def ask(asked: Asked) -> Told | None:
        return no(asked, -32601) if b'"message/send"' in asked.body else None

    proxy.fault = Fault((), ask=ask, tell=tell)
    report = examined(proxy, "rpc.*", "send.*", "get.*", "cancel.*")
    assert report.interfaces == ("jsonrpc-0.1",)
    assert [(r.id, r.why) for r in report.results if r.outcome in ("fail", "warning")] == []
    proxy.fault = Fault((), tell=tell)
    assert examined(proxy, "get.unknown").interfaces == ("jsonrpc-0.3",)


ODD: tuple[Any, ...] = (None, 7, "x", [], {}, [1], [{}], {"x": 1}, "https://x:y", "http://[bad")


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_no_card_is_too_odd_to_be_examined(odd: Any, proxy: Proxy) -> None:
    """Every member is replaced, and each of an interface: findings, but no crash."""

    def all_of_it(asked: Asked, told: Told) -> None:
        if asked.op == "card":
            told.put(dict.fromkeys(told.json, odd))

    def interfaces(asked: Asked, told: Told) -> None:
        if asked.op == "card":
            value = told.json
            one = {"url": odd, "protocolBinding": "GRPC", "protocolVersion": "1.0"}
            two = {"url": proxy.url, "protocolBinding": odd, "protocolVersion": odd}
            told.put({**value, "supportedInterfaces": [one, two, odd], "additionalInterfaces": odd})

    for tell in (all_of_it, interfaces):
        proxy.fault = Fault((), tell=tell)
        report = examined(proxy, "card.*")
        assert any(result.outcome in ("fail", "warning") for result in report.results)
        assert not any("not what it should be" in result.why for result in report.results)


@pytest.mark.slow  # starts a process
def test_without_a_fault_nothing_is_red(proxy: Proxy) -> None:
    proxy.fault = SOUND
    report = examined(proxy, on="jsonrpc-1.0")
    bad = [r for r in report.results if r.outcome in ("fail", "warning")]
    assert [(r.id, r.why) for r in bad] == []
