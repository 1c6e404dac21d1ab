"""A2A 0.3 §9.1: the public card tells that there is more; known callers are told what."""

import asyncio
import os
import sys

from dragoman import Agent, Turn, connect
from dragoman.core.auth_schemes import Known, Secret, Tokens

ada = Known(secret=Secret(env="ADA_TOKEN"), scopes=("vip",))
agent = Agent(
    "Desk",
    description="Serves everybody, and some a little more.",
    auth={"token": Tokens(callers={"ada": ada})},
)


@agent.skill("route", description="Plans a route.")
async def route(turn: Turn) -> str:
    return f"A route to {turn.text}"


@agent.skill("lounge", description="Opens the lounge.", extended=True, scopes=("vip",))
async def lounge(turn: Turn) -> str:
    return f"Welcome to the lounge, {turn.text}."


async def talk(
    address: str = "http://127.0.0.1:8420", dialect: str = "", *origins: str
) -> tuple[list[str], list[str]]:
    """The skills on the public card, and those on the extended one.

    The token is told to `address` and to no other port, unless it is among `origins`.
    """
    token = os.environ["ADA_TOKEN"]
    async with connect(address, dialect=dialect, auth=token, origins=origins) as desk:
        public = [skill.id for skill in desk.card.skills]
        extended = await desk.extended_card()
        return public, [skill.id for skill in extended.skills]


if __name__ == "__main__":
    print(asyncio.run(talk(*sys.argv[1:])))
