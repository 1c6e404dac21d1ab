"""An engine that calls webhooks on this machine, with short delays."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from dragoman import Agent, Turn
from dragoman.core.model import Hook, Message, Role, Task, Text
from dragoman.core.operations import SendMessage
from dragoman.core.peer import Context
from dragoman.engine import Engine
from dragoman.net.webhooks import WebhookSender
from dragoman.security.outbound.guarded_http import GuardedHttp, Rules
from dragoman.security.secret_box import SecretBox
from dragoman.settings import Push
from dragoman.store import Store, open_store
from waiting import LIMIT, until

SECRET = b"s" * 32
ALICE = Context(principal="alice", dialect="a2a-1.0")
BOB = Context(principal="bob", dialect="a2a-1.0")
QUICK = Push(schedule=(0, 0.02, 0.05), timeout=60.0, probe=0.05)

agent = Agent("Push", description="Says things.")


@agent.skill("count", default=True)
async def count(turn: Turn) -> AsyncIterator[str]:
    for n in range(int(turn.text)):
        yield f"{n} "


@agent.skill("wait")
async def wait(turn: Turn) -> str:
    return await turn.ask("What?")


def sender(rules: Rules | None = None, **options: Any) -> WebhookSender:
    """One that may call this machine."""
    return WebhookSender(
        GuardedHttp(rules or Rules(allow_private=True), **options), SecretBox(SECRET), 60.0
    )


@asynccontextmanager
async def engine(
    push: Push = QUICK, store: Store | str = "memory:", by: WebhookSender | None = None
) -> AsyncGenerator[Engine, None]:
    """A running engine."""
    kept = open_store(store) if isinstance(store, str) else store
    running = Engine(agent, kept, secret=SECRET, sender=by or sender(), push=push)
    await running.start()
    try:
        yield running
    finally:
        await running.stop(0)


def hook(url: str, hook_id: str = "", **about: str) -> Hook:
    """A webhook for a task that does not exist yet."""
    return Hook(hook_id=hook_id, task_id="", url=url, **about)


async def send(
    running: Engine, text: str, at: Hook | None = None, skill: str = "count", ctx: Context = ALICE
) -> Task:
    """Opens a task, with a webhook if one is given."""
    message = Message(
        message_id="m", role=Role.USER, parts=(Text(text),), metadata={"skillId": skill}
    )
    task = await running.call(SendMessage(message=message, hook=at), ctx)
    assert isinstance(task, Task)
    return task


async def empty(running: Engine, seconds: float = LIMIT) -> None:
    """Waits until nothing is on its way."""

    async def nothing_left() -> bool:
        return not await running.store.outbox(dead=False, limit=1)

    await until(nothing_left, seconds)
