"""An agent of Google's ADK behind every dialect: a session for each conversation."""

from collections.abc import AsyncIterator

from google.adk.agents import LlmAgent
from google.adk.runners import InMemoryRunner

from dragoman import Agent, Turn
from dragoman.adapters.google_adk import run_agent

planner = LlmAgent(name="planner", model="gemini-flash-latest", instruction="You plan trips.")
runner = InMemoryRunner(agent=planner, app_name="trips")

agent = Agent("Travel desk", description="Plans trips")


@agent.skill("plan", description="Plans a trip")
async def plan(turn: Turn) -> AsyncIterator[object]:
    async for piece in run_agent(turn, runner):
        yield piece
