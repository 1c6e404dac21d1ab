"""An agent whose skills do all that an MCP tool can be asked for."""

from __future__ import annotations

import asyncio
from typing import Any

from dragoman import Agent, Blob, Link, Turn


async def forever() -> None:
    await asyncio.Event().wait()


agent = Agent("Desk", description="For tests.", input_modes=["*/*"], output_modes=["*/*"])
print("imported")  # an author's print must not reach the client


@agent.skill("greet", default=True, examples=["Ada"])
async def greet(turn: Turn, name: str, times: int = 1) -> str:
    """Greets someone."""
    print("greeting")
    return f"Hello, {name}! " * times


@agent.skill("say")
async def say(turn: Turn) -> str:
    """Repeats a message."""
    return turn.text


@agent.skill("reply", may_reply=True)
async def reply(turn: Turn) -> None:
    """Answers without a task."""
    await turn.reply(f"re: {turn.text}")


@agent.skill("trip")
async def trip(turn: Turn) -> str:
    """Asks where to go."""
    await turn.say("Looking at the map")
    await turn.progress(0.5)
    answer = await turn.ask("Where to?")
    return f"A trip to {answer}"


@agent.skill("finish")
async def finish(turn: Turn) -> str:
    """Is done early, and again, and once more than a whole."""
    await turn.progress(0.5)
    for _ in range(2):
        await turn.progress(1.0)
        await turn.say("Tidying up")
    return "done"


@agent.skill("book")
async def book(turn: Turn) -> str:
    """Asks for an approval."""
    approved = await turn.approve("Book it?", details={"price": 300})
    return "booked" if approved else "not booked"


@agent.skill("login")
async def login(turn: Turn) -> str:
    """Asks for credentials."""
    await turn.need_auth([{"scheme": "bearer"}], prompt="Log in, please")
    return "unreachable"


@agent.skill("slow")
async def slow(turn: Turn) -> str:
    """Works until it is canceled."""
    await turn.say("Started")
    await forever()
    return "unreachable"


@agent.skill("fail")
async def fail(turn: Turn) -> None:
    """Fails."""
    raise turn.fail("the printer is on fire")


@agent.skill("crash")
async def crash(turn: Turn) -> None:
    """Crashes."""
    raise ZeroDivisionError("a secret detail")


@agent.skill("weigh")
async def weigh(turn: Turn, things: list[str]) -> dict[str, Any]:
    """Returns data."""
    return {"count": len(things)}


@agent.skill("files")
async def files(turn: Turn) -> None:
    """Returns files."""
    await turn.artifact(
        Blob(b"\x89PNG", media_type="image/png", filename="dot.png"),
        Blob(b"a,b", media_type="text/csv", filename="table.csv"),
        Blob(b"\x00\x01", media_type="application/zip", filename="all.zip"),
        Link("https://example.com/report.pdf", media_type="application/pdf", filename="report.pdf"),
    )
