"""What an agent calls our conversations and tasks is known after a restart as well."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dragoman import Task, connect
from dragoman.client.agent import RemoteAgent
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


async def _sent(caller: RemoteAgent, text: str, **about: Any) -> Task:
    task = await caller.send(text, **about)
    assert isinstance(task, Task)
    return task


def _told(liar: Liar) -> tuple[str, list[str] | None]:
    message = liar.asked[-1][1]["message"]
    return message["contextId"], message.get("referenceTaskIds")
