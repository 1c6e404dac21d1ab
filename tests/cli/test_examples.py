"""Every example works, and so does every skill of the showcase."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dragoman import Blob, Data, State
from dragoman.core.errors import BadParams
from dragoman.server.agent_loader import load_agent
from dragoman.testing import Client

EXAMPLES = Path(__file__).parents[2] / "examples"
SHOWCASE = Path(__file__).parents[2] / "src/dragoman/showcase.py"


@asynccontextmanager
async def example(name: str | Path) -> AsyncIterator[Client]:
    async with Client(load_agent(str(EXAMPLES / name))) as client:
        yield client


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_every_example_is_an_agent_with_a_card(file: Path) -> None:
    agent = load_agent(str(file))
    card = agent.card()
    assert card.name
    assert all(skill.description for skill in card.skills)


async def test_hello_and_echo() -> None:
    async with example("hello.py") as client:
        assert (await client.send("Ada")).text == "Hello, Ada!"
    async with example("echo.py") as client:
        assert (await client.send("hi")).text == "HI"


async def test_writer() -> None:
    async with example("writer.py") as client:
        task = await client.send("about translators")
        assert task.text.startswith("A dragoman, fluent and quick,\nKnew each")


async def test_trip_asks_until_it_knows() -> None:
    async with example("trip.py") as client:
        task = await client.send("Kyoto")
        assert task.state is State.INPUT_REQUIRED
        task = await client.send("a few", task=task)
        assert task.state is State.INPUT_REQUIRED
        task = await client.send("2", task=task)
        assert task.text == "Day 1: see Kyoto\nDay 2: see Kyoto"


async def test_approval() -> None:
    async with example("approval.py") as client:
        task = await client.send("a kettle")
        task = await client.send("yes", task=task)
        assert task.artifacts[0].parts == (Data({"item": "a kettle", "receipt": "paid 30 EUR"}),)
        task = await client.send("a kettle")
        task = await client.send("no", task=task)
        assert task.state is State.REJECTED


async def test_files() -> None:
    async with example("files.py") as client:
        sent = Blob(b"one two three", filename="a.txt", media_type="text/plain")
        task = await client.send("four five", sent)
        assert task.text == "# 5 words in all"
        assert task.artifacts[1].parts[0].content == b"name,words\na.txt,3\nmessage,2"  # type: ignore[union-attr]


async def test_durable() -> None:
    async with example("durable.py") as client:
        task = await client.send("tea")
        assert task.text.splitlines()[0] == "Read about tea history."


async def test_typed() -> None:
    async with example("typed.py") as client:
        task = await client.send({"celsius": 21})
        assert task.artifacts[0].parts == (Data({"celsius": 21.0, "fahrenheit": 69.8}),)
        task = await client.send({"readings": [1, 2]}, skill="average")
        assert task.artifacts[0].parts == (Data(1.5),)
        with pytest.raises(BadParams, match="celsius"):
            await client.send({"celsius": "warm"})


async def test_sync() -> None:
    async with example("sync.py") as client:
        assert (await client.send("dragoman")).text == "dragoman: see volume 8."


@pytest.mark.slow  # its agent works for seconds
async def test_showcase() -> None:
    async with example(SHOWCASE) as client:
        assert (await client.send("hi")).text == "HI"
        report = await client.send("sales", skill="report")
        assert report.artifacts[0].parts[0].filename == "report.csv"
        order = await client.send("two boxes", skill="order")
        assert order.state is State.INPUT_REQUIRED
        order = await client.send({"approved": True}, task=order)
        assert order.state is State.COMPLETED
        trip = await client.send("", skill="trip")
        trip = await client.send("Rome", task=trip)
        trip = await client.send("1", task=trip)
        assert trip.text == "Day 1 in Rome: arrive and walk.\n"
        slow = await client.send("go", skill="slow")
        assert slow.text.startswith("10 steps done in attempt 1")
