"""A request that was refused leaves nothing behind: its error is forgotten, and all it holds."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from counts import count
from dragoman import Agent
from dragoman.core.errors import DragomanError
from dragoman.core.operations import GetTask, Watch
from dragoman.settings import Server
from semantics.ways import WAYS, RunningServer, Way, served

MANY = count(8, 20)


def errors() -> int:
    """How many errors of ours are still held by something."""
    gc.collect()
    return sum(isinstance(held, DragomanError) for held in gc.get_objects())


async def refused(running: RunningServer, way: Way, count: int) -> None:
    for _ in range(count):
        await way.ask(running, GetTask(task_id="none"))
        await way.ask(running, Watch(task_id="none"), stream=True)


@pytest.mark.parametrize("store", ["memory:", "sqlite"])
async def test_a_refused_request_leaves_nothing_behind(store: str, tmp_path: Path) -> None:
    """Else a caller that asks for tasks that do not exist could fill our memory."""
    url = store if store == "memory:" else f"sqlite:///{tmp_path}/tasks.db"
    server = Server(store=url, grpc=True, grpc_port=0, allow_private=True)
    async with served(Agent("Desk"), server=server) as running:
        for way in WAYS.values():
            await refused(running, way, 2)
            before = errors()
            await refused(running, way, MANY)
            assert errors() < before + MANY // 2, way.name
