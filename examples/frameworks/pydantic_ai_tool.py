"""An agent of Pydantic AI that calls a remote agent, of any dialect, as a tool."""

from pydantic_ai import Agent
from pydantic_ai.models import Model

from dragoman import connect
from dragoman.adapters.pydantic_ai import as_tool


async def plan(url: str, model: Model) -> str:
    async with connect(url) as desk:
        planner = Agent(model, tools=[as_tool(desk)])
        return (await planner.run("Plan a trip to Kyoto")).output
