"""A2A 0.3 §9.7: JSON in, JSON out, checked against the schemas the agent publishes."""

import asyncio
import sys

from dragoman import Agent, Turn, connect
from dragoman.core.errors import BadParams
from dragoman.core.model import Json

agent = Agent("Tickets", description="Knows the open tickets.")

OPEN = [{"id": 7, "about": "the lift"}, {"id": 9, "about": "the roof"}]


@agent.skill("tickets", description="The open tickets, newest first.")
async def tickets(turn: Turn, most: int = 10) -> list[dict[str, Json]]:
    return sorted(OPEN, key=lambda ticket: str(ticket["id"]), reverse=True)[:most]


async def talk(address: str = "http://127.0.0.1:8420", dialect: str = "") -> tuple[Json, str]:
    """The newest ticket, and what is said of a question that makes no sense."""
    async with connect(address, dialect=dialect) as desk:
        newest = await desk.call("tickets", most=1)
        try:
            await desk.call("tickets", most="all")
        except BadParams as error:
            return newest, error.reason
        return newest, ""


if __name__ == "__main__":
    print(asyncio.run(talk(*sys.argv[1:])))
