"""`dragoman outbox`: what an operator sees and does."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from cli.run import dragoman
from webhooks.harness import QUICK, empty, engine, hook, send
from webhooks.receiver import Receiver

pytestmark = pytest.mark.slow  # starts processes


def fill(store: str) -> None:
    """A store with dead letters, and one hook that still waits."""

    async def main() -> None:
        async with Receiver(
            lambda one: (500 if one.path.startswith("/dead") else 503, {})
        ) as receiver:
            base = receiver.url.removesuffix("/hook")
            push = replace(QUICK, schedule=(0,), failures=999)
            async with engine(push, store) as running:
                await send(running, "0", hook(f"{base}/dead?key=secret", token="a secret token"))
                await empty(running)
            async with engine(replace(push, schedule=(0, 3600)), store) as running:
                await send(running, "0", hook(f"{base}/later", "later"))
                await receiver.until(4)

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_dead_letters_can_be_seen_and_redelivered(kind: str, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/t.db" if kind == "sqlite" else f"file://{tmp_path}/t"
    fill(store)
    shown = dragoman("outbox", "list", "--store", store, cwd=tmp_path).stdout
    dead = re.findall(r"^(\d+)  given up \(500\)  (\S+)#(\d)  (\S+)$", shown, re.M)
    assert [seq for *_, seq, _ in dead] == ["1", "2", "3"]
    assert all(url.endswith("/dead?...") for *_, url in dead)
    assert len(re.findall(r"^\d+  (tried 1x \(503\)|waits)  \S+#\d  \S+/later$", shown, re.M)) == 3
    assert "secret" not in shown
    only = dragoman("outbox", "list", "--dead", "--store", store, cwd=tmp_path).stdout
    assert only.splitlines() == shown.splitlines()[:3]
    one = dragoman("outbox", "show", dead[0][0], "--store", store, cwd=tmp_path).stdout
    assert re.search(r"last answer +500", one)
    assert "secret" not in one
    lines = dragoman("outbox", "list", "--json", "--store", store, cwd=tmp_path).stdout.splitlines()
    told = [json.loads(line) for line in lines]
    assert [str(one["id"]) for one in told[:3]] == [id for id, *_ in dead]
    assert {one["last_answer"] for one in told[:3]} == {500}
    alone = dragoman("outbox", "show", dead[0][0], "--json", "--store", store, cwd=tmp_path)
    assert json.loads(alone.stdout) == told[0]
    assert "secret" not in alone.stdout
    again = dragoman("outbox", "redeliver", dead[0][0], "--store", store, cwd=tmp_path).stdout
    assert again == "1 on the way again.\n"
    twice = dragoman("outbox", "redeliver", dead[0][0], "--store", store, cwd=tmp_path)
    assert twice.returncode == 2
    assert f"No dead letters: {dead[0][0]}." in twice.stderr
    rest = dragoman("outbox", "redeliver", "--all", "--store", store, cwd=tmp_path).stdout
    assert rest == "2 on the way again.\n"
    assert dragoman("outbox", "list", "--dead", "--store", store, cwd=tmp_path).stdout == (
        "There are no dead letters.\n"
    )


@pytest.mark.parametrize(
    "words", [("show", "7"), ("redeliver",), ("redeliver", "7", "--all"), ("list",)]
)
def test_mistakes_are_one_line_and_make_no_store(words: tuple[str, ...], tmp_path: Path) -> None:
    ran = dragoman("outbox", *words, "--store", "sqlite:///missing.db", cwd=tmp_path)
    assert ran.returncode == 2
    assert len(ran.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
