"""An agent of Pydantic AI behind every dialect: it streams, and reports the tokens it used."""

from collections.abc import AsyncIterator

from pydantic_ai import Agent as Planner
from pydantic_ai.models.test import TestModel

from dragoman import Agent, Turn
from dragoman.adapters.pydantic_ai import run_agent

model = TestModel(custom_output_text="Three quiet days.")  # yours: "anthropic:claude-..."
planner = Planner(model, instructions="You plan trips.")

agent = Agent("Travel desk", description="Plans trips")


@agent.skill("plan", description="Plans a trip")
async def plan(turn: Turn) -> AsyncIterator[object]:
    async for piece in run_agent(turn, planner):
        yield piece
