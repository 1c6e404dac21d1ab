"""A doctor who leaves things as they were, and who does not talk when nobody is there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.run import Served, dragoman, serving
from doctor.proxy import Asked, Fault, Told, standing_before
from dragoman import connect
from dragoman.core.errors import BadParams
from dragoman.doctor import Orders, examine
from dragoman.doctor.guard import Guard

pytestmark = pytest.mark.slow  # starts processes

AGENT = Path(__file__).with_name("agent.py")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("patient")
    with serving(str(AGENT), "--store", "memory:", "--no-grpc", cwd=folder) as served:
        yield served


async def test_webhooks_are_taken_back(served: Served) -> None:
    report = examine(served.url, Orders(only=("push.*",), text="one two three"))
    assert {r.outcome for r in report.results if r.id == "push.set"} == {"pass"}
    async with connect(served.url) as agent:
        left = [
            hook.url
            async for task in agent.tasks()
            for hook in (await agent.list_hooks(task)).hooks
        ]
    assert left == []


def test_nobody_there_is_said_once(tmp_path: Path) -> None:
    done = dragoman("doctor", "127.0.0.1:1", cwd=tmp_path)
    assert done.returncode == 3
    first, *rest = done.stdout.splitlines()
    assert first.startswith("No A2A agent at http://127.0.0.1:1: it cannot be reached")
    assert len(rest) == 1
    assert "--verbose" in rest[0]
    whole = dragoman("doctor", "127.0.0.1:1", "--verbose", cwd=tmp_path)
    assert "FAIL card.found" in whole.stdout


def test_an_interface_must_be_one(served: Served, tmp_path: Path) -> None:
    strange = dragoman("doctor", served.url, "--on", "jsonrpc-1", cwd=tmp_path)
    assert strange.returncode == 2
    assert "jsonrpc-1.0" in strange.stderr
    absent = dragoman("doctor", served.url, "--on", "grpc-1.0", cwd=tmp_path)
    assert absent.returncode == 3
    assert "no interface that was asked for" in absent.stdout


def test_an_address_needs_no_scheme(served: Served, tmp_path: Path) -> None:
    done = dragoman("doctor", served.url.partition("//")[2], "--only", "card.name", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_check_that_is_none_is_told_which_there_are(served: Served, tmp_path: Path) -> None:
    done = dragoman("doctor", served.url, "--only", "crad.*", cwd=tmp_path)
    assert done.returncode == 2
    assert "card.*" in done.stderr


def test_addresses_of_a_card_are_not_followed_into_private_networks(
    served: Served, tmp_path: Path
) -> None:
    """The patient is on this machine, so it may name this machine; nothing else that is private."""
    interfaces = [
        {"url": url, "protocolBinding": binding, "protocolVersion": version}
        for url, binding, version in (
            (f"http://localhost:{served.port}/", "JSONRPC", "1.0"),
            ("http://10.1.2.3/", "JSONRPC", "0.3"),
            ("http://169.254.169.254", "HTTP+JSON", "1.0"),
            ("10.1.2.3:50051", "GRPC", "1.0"),
        )
    ]

    def tell(asked: Asked, told: Told) -> None:
        if asked.op == "card" and told.body.startswith(b"{"):
            kept = {k: v for k, v in told.json.items() if k not in ("url", "additionalInterfaces")}
            told.put({**kept, "supportedInterfaces": interfaces})

    with standing_before(served.port) as proxy:
        proxy.fault = Fault((), tell=tell)
        report = examine(proxy.url, Orders(only=("send.task",)))
        assert report.interfaces == ("jsonrpc-1.0",)
        assert [line.partition(":")[0] for line in report.left_out] == [
            "jsonrpc-0.3",
            "rest-1.0",
            "grpc-1.0",
        ]
        assert all("--allow-private" in line for line in report.left_out)


def test_what_no_setting_opens_is_not_asked_at_all(tmp_path: Path) -> None:
    done = dragoman("doctor", "http://169.254.169.254", cwd=tmp_path)
    assert done.returncode == 2
    assert "may not be called" in done.stderr


def test_a_typed_name_that_is_rebound_is_not_followed(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = Guard(f"http://patient.example:{served.port}", allow_private=False)
    answers = iter([["93.184.215.14"], ["127.0.0.1"]])
    monkeypatch.setattr("dragoman.doctor.guard._look_up", lambda host, port: next(answers))
    assert guard.addresses("Patient.example.", served.port) == ["93.184.215.14"]
    with pytest.raises(BadParams, match="led to a public address before"):
        guard.addresses("patient.example", served.port)
