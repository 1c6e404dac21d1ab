"""Credentials that callers gave: in no byte of any file, after a clean stop and after a kill."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from uuid import uuid4

import pytest

from crash.client import Client, message, sending
from crash.server import Server
from engine.harness import until

TASKS = 25
SIZES = (40, 3_000, 20_000)
"""Also such that do not fit in a page."""


def found(folder: Path, canaries: list[str]) -> list[str]:
    """Where canaries are: the name of a file for each."""
    names: list[str] = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        data = path.read_bytes()
        names += [path.name for canary in canaries if canary.encode() in data]
    return names


@pytest.mark.slow
@pytest.mark.parametrize("url", ["sqlite:///{}/tasks.db", "file://{}/tasks"])
async def test_no_file_holds_credentials(tmp_path: Path, url: str) -> None:
    canaries: list[str] = []

    def canary(size: int) -> str:
        canaries.append(f"canary-{secrets.token_hex(16)}")
        return canaries[-1] + "x" * size

    async def logged_in(client: Client, text: str, n: int) -> str:
        asked = sending(message(text, uuid4().hex, "login"))
        task = (await client.call("SendMessage", asked))["task"]
        assert task["status"]["state"] == "TASK_STATE_AUTH_REQUIRED"
        answer = message(canary(SIZES[n % len(SIZES)]), uuid4().hex, task_id=task["id"])
        await client.call("SendMessage", sending(answer, wait=text != "slow"))
        return str(task["id"])

    with Server(tmp_path, url.format(tmp_path)) as server:
        server.start()
        await server.ready()
        client = Client(server.url)
        done = await asyncio.gather(*(logged_in(client, "go", n) for n in range(TASKS)))
        slow = await asyncio.gather(*(logged_in(client, "slow", n) for n in range(TASKS)))
        for task_id in done:
            assert (await client.task(task_id))["status"]["state"] == "TASK_STATE_COMPLETED"
        server.kill()
        assert found(tmp_path, canaries) == []

        server.start()
        await server.ready()
        client = Client(server.url)

        async def asked_again() -> bool:
            states = [(await client.task(task_id))["status"]["state"] for task_id in slow]
            return set(states) == {"TASK_STATE_AUTH_REQUIRED"}

        # Handed over once: the next run has to ask for them.
        await until(asked_again, 120)
        for n, task_id in enumerate(slow):
            answer = message(canary(SIZES[n % len(SIZES)]), uuid4().hex, task_id=task_id)
            await client.call("SendMessage", sending(answer, wait=False))
        server.gate.touch()

        async def over() -> bool:
            states = [(await client.task(task_id))["status"]["state"] for task_id in slow]
            return set(states) == {"TASK_STATE_COMPLETED"}

        await until(over, 120)
        code, _ = await server.stop(60)
        assert code == 0, server.logged()
        assert found(tmp_path, canaries) == []
