"""An agent of the OpenAI Agents SDK behind every dialect; its dangerous tool asks the caller."""

from collections.abc import AsyncIterator

from agents import Agent as Planner
from agents import SQLiteSession, function_tool

from dragoman import Agent, Turn
from dragoman.adapters.openai_agents import run_agent


@function_tool(needs_approval=True)
async def book(hotel: str) -> str:
    """Books a hotel."""
    return f"{hotel} is booked"


planner = Planner(name="Planner", instructions="You plan trips.", tools=[book])

agent = Agent("Travel desk", description="Plans trips")


@agent.skill("plan", description="Plans a trip")
async def plan(turn: Turn) -> AsyncIterator[object]:
    async for piece in run_agent(turn, planner, session=SQLiteSession(turn.context_id)):
        yield piece
