"""A2A 0.3 §9.4: the agent asks back until it knows enough; one task, several turns."""

import asyncio
import sys

from dragoman import Agent, Turn, connect

agent = Agent("Flights", description="Books flights.")


@agent.skill("book", description="Books a flight.", examples=["a flight, please"])
async def book(turn: Turn) -> str:
    to = await turn.ask("Where to?")
    day = await turn.ask(f"When to {to}?")
    return f"Booked: {to}, {day}"


ANSWERS = {"Where to?": "Lisbon", "When to Lisbon?": "on Friday"}


async def talk(address: str = "http://127.0.0.1:8420", dialect: str = "") -> list[str]:
    """What the agent asked, and at last its answer."""
    heard: list[str] = []
    async with connect(address, dialect=dialect) as flights:
        conversation = flights.conversation()
        told = await conversation.send("a flight, please")
        while conversation.waits:
            question = told.status.text
            heard.append(question)
            told = await conversation.send(ANSWERS[question])
        return [*heard, told.text]


if __name__ == "__main__":
    print(asyncio.run(talk(*sys.argv[1:])))
