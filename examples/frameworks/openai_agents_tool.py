"""An agent of the OpenAI Agents SDK that calls a remote agent, of any dialect, as a tool."""

from agents import Agent, Model, Runner

from dragoman import connect
from dragoman.adapters.openai_agents import as_tool


async def plan(url: str, model: Model) -> str:
    async with connect(url) as desk:
        planner = Agent(name="Planner", model=model, tools=[as_tool(desk)])
        return str((await Runner.run(planner, "Plan a trip to Kyoto")).final_output)
