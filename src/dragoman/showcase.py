"""The showcase agent of `dragoman demo`: one skill of each kind, short enough to read."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator

from dragoman import Agent, Blob, Turn

agent = Agent(
    "Showcase",
    description="Shows what an agent can do: answer, stream, ask back, seek approval, make files.",
    version="1.0.0",
)

STORY = (
    "A dragoman stood between courts that shared no language. He carried words across, kept what "
    "was meant, and said plainly what could not be said in the other tongue."
)


@agent.skill("echo", default=True, description="Says it back, louder.", examples=["hello"])
async def echo(turn: Turn) -> str:
    return turn.text.upper()


@agent.skill("write", description="Writes a short text, word by word.", examples=["a story"])
async def write(turn: Turn) -> AsyncGenerator[str, None]:
    words = STORY.split()
    for done, word in enumerate(words, 1):
        await asyncio.sleep(0.04)
        yield word + (" " if done < len(words) else "")
        if done % 8 == 0:
            await turn.progress(done / len(words))


@agent.skill("trip", description="Plans a trip; asks for what it needs.", examples=["Kyoto"])
async def trip(turn: Turn) -> AsyncGenerator[str, None]:
    city = turn.text.strip() or await turn.ask("Which city?")
    days = await turn.ask(f"How many days in {city}?")
    count = max(1, min(int(days), 7)) if days.strip().isdigit() else 3
    for day, what in enumerate(PLAN[:count], 1):
        await asyncio.sleep(0.05)
        yield f"Day {day} in {city}: {what}.\n"


PLAN = ("arrive and walk", "old town", "museums", "a garden", "the river", "shopping", "rest")


@agent.skill("order", description="Orders tea, if a person approves.", examples=["two boxes"])
async def order(turn: Turn) -> dict[str, str]:
    what = turn.text.strip() or "one box of tea"
    if not await turn.approve(f"Order {what} for 12 EUR?", details={"item": what, "price": 12}):
        raise turn.reject("Not approved, nothing was ordered.")
    number = await turn.step("place", place_order, turn.key("order"))
    return {"item": what, "order": number}


def place_order(key: str) -> str:
    """Stands for a call to a shop, which would take `key` to do it only once."""
    return f"T-{sum(key.encode()) % 10_000:04d}"


@agent.skill("report", description="Makes a small CSV file.", examples=["sales"])
async def report(turn: Turn) -> Blob:
    rows = [f"{month},{(n * 37) % 90 + 10}" for n, month in enumerate(("Jan", "Feb", "Mar"), 1)]
    text = "\n".join(("month,sales", *rows)) + "\n"
    return Blob(text.encode(), filename="report.csv", media_type="text/csv")


@agent.skill("slow", description="Ten recorded steps; goes on after a crash.", examples=["go"])
async def slow(turn: Turn) -> str:
    pids = []
    for number in range(1, 11):
        pids.append(await turn.step(f"step {number}", work, number))
        await turn.progress(number / 10)
    runs = " ".join(dict.fromkeys(pids))
    return f"10 steps done in attempt {turn.attempt}, each once, by process {runs}"


def work(number: int) -> str:
    """Some slow work; its result is recorded, so no step is done twice."""
    time.sleep(0.25)
    return str(os.getpid())
