"""What an agent calls our conversations and tasks is known after a restart as well."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dragoman import Task, connect
from dragoman.client.agent import RemoteAgent
from dragoman.core.auth_schemes import Known, Secret, Tokens
from gateway.behind import gateway, settings
from gateway.liar import Liar, lying


async def choosy(method: str, params: dict[str, Any]) -> AsyncIterator[Any]:
    """Has ids of its own for everything, and goes on with a conversation that it knows."""
    message = params["message"]
    context = message["contextId"] if message["contextId"].startswith("its-") else "its-context"
    text = message["parts"][0]["text"]
    status = {"state": "TASK_STATE_COMPLETED"}
    yield {"task": {"id": f"its-{text}", "contextId": context, "status": status}}


@pytest.mark.parametrize("store", ["sqlite:///{}/tasks.db", "file://{}/tasks"])
async def test_a_conversation_and_its_references_go_on_after_a_restart(
    tmp_path: Path, store: str
) -> None:
    own = settings(tmp_path, store=store.format(tmp_path))
    async with asyncio.timeout(120), lying(choosy) as liar:
        sections = {"far": {"url": liar.url, "repeat": True}}
        async with gateway(sections, own) as front, connect(front.url) as caller:
            first = await _sent(caller, "one")
            assert liar.asked[-1][1]["message"]["contextId"] != "its-context"
            await _sent(caller, "two", context_id=first.context_id)
            assert _told(liar) == ("its-context", None)
        async with gateway(sections, own) as front, connect(front.url) as caller:
            await _sent(caller, "three", context_id=first.context_id, references=[first])
            assert _told(liar) == ("its-context", ["its-one"])
            other = await _sent(caller, "four", references=[first])
            assert _told(liar)[0] not in ("its-context", other.context_id)
            assert _told(liar)[1] == ["its-one"]


async def test_nobody_refers_to_the_task_of_somebody_else(tmp_path: Path) -> None:
    callers = {}
    for name in ("alice", "bob"):
        (tmp_path / name).write_text(f"a-token-of-{name}-0123456789")
        callers[name] = Known(secret=Secret(file=str(tmp_path / name)))
    own = settings(tmp_path, auth={"token": Tokens(callers=callers)})
    async with (
        asyncio.timeout(120),
        lying(choosy) as liar,
        gateway({"far": {"url": liar.url, "repeat": True}}, own) as front,
        connect(front.url, auth="a-token-of-alice-0123456789") as alice,
        connect(front.url, auth="a-token-of-bob-0123456789") as bob,
    ):
        first = await _sent(alice, "one")
        await _sent(bob, "two", references=[first])
        assert _told(liar)[1] is None
        await _sent(alice, "three", references=[first])
        assert _told(liar)[1] == ["its-one"]


async def _sent(caller: RemoteAgent, text: str, **about: Any) -> Task:
    task = await caller.send(text, **about)
    assert isinstance(task, Task)
    return task


def _told(liar: Liar) -> tuple[str, list[str] | None]:
    message = liar.asked[-1][1]["message"]
    return message["contextId"], message.get("referenceTaskIds")
