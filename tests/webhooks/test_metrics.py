"""What `/metrics` says of webhooks."""

from __future__ import annotations

import re
from pathlib import Path

import httpx2
import pytest

from crash.client import Client, message
from dragoman.engine import Engine
from dragoman.observability.metrics import AgentFigures, Metrics, exposition
from dragoman.settings import Push
from waiting import until
from webhooks.harness import empty, engine, hook, send
from webhooks.receiver import Heard, Receiver
from webhooks.test_served import served

STORES = ["memory:", "sqlite:///{}/tasks.db", "file://{}/tasks"]


async def figures(running: Engine) -> dict[str, float]:
    """The lines about webhooks, as Prometheus reads them."""
    text = exposition(
        [AgentFigures("", Metrics(), {}, await running.mail())], streams=0, blocked=0
    ).decode()
    return lines(text)


async def counted(running: Engine, outcome: str, number: float) -> dict[str, float]:
    """Waits for so many: a delivery is counted a moment after the outbox is rid of it."""

    async def enough() -> dict[str, float] | None:
        told = await figures(running)
        return told if told[outcome] >= number else None

    return dict(await until(enough))


def lines(text: str) -> dict[str, float]:
    found = re.findall(r'^dragoman_webhook\w*?_(?:total\{outcome=")?(\w+)"?\}? (\S+)$', text, re.M)
    return {name: float(value) for name, value in found}


@pytest.mark.parametrize("store", STORES)
async def test_what_arrives_is_counted(store: str, tmp_path: Path) -> None:
    async with Receiver() as receiver, engine(store=store.format(tmp_path)) as running:
        await send(running, "3", hook(receiver.url))
        await empty(running)
        assert await counted(running, "delivered", 6) == {
            **{"delivered": 6, "retried": 0, "dead": 0, "gone": 0},
            **{"breakers_open": 0, "age_seconds": 0},
        }


@pytest.mark.parametrize("store", STORES)
async def test_a_receiver_that_fails_is_seen(store: str, tmp_path: Path) -> None:
    answers = {"status": 500}

    def moody(heard: Heard) -> tuple[int, dict[str, str]]:
        return answers["status"], {}

    push = Push(schedule=(0, 0.01, 0.01, 30), timeout=60.0, probe=0.02, failures=3)
    async with Receiver(moody) as receiver, engine(push, store.format(tmp_path)) as running:
        await send(running, "0", hook(receiver.url))
        await receiver.until(3)
        await counted(running, "retried", 3)
        told = await counted(running, "age_seconds", 0.1)
        assert (told["delivered"], told["retried"], told["dead"]) == (0, 3, 0)
        assert told["breakers_open"] == 1
        assert told["age_seconds"] < 60


async def test_dead_and_gone_ones_are_counted() -> None:
    answers = [404, 404, 404, 410]

    async with (
        Receiver(lambda heard: (answers.pop(0), {})) as receiver,
        engine(Push(schedule=(0, 0.01, 0.01), timeout=60.0)) as running,
    ):
        await send(running, "0", hook(receiver.url))
        await receiver.until(4)
        told = await counted(running, "gone", 1)
        assert (told["retried"], told["dead"], told["gone"]) == (2, 1, 1)
        assert told["age_seconds"] == 0


@pytest.mark.slow  # starts a process
async def test_the_page_tells(tmp_path: Path) -> None:
    with await served(tmp_path) as server:
        async with Receiver() as receiver, httpx2.AsyncClient() as http:
            config = {"url": receiver.url}
            params = {
                "message": message("hello", "m1", "echo"),
                "configuration": {"taskPushNotificationConfig": config},
            }
            await Client(server.url).call("SendMessage", params)
            await receiver.until(4)

            async def told() -> bool:
                page = await http.get(f"{server.url}/metrics")
                return lines(page.text)["delivered"] >= 4

            await until(told)
