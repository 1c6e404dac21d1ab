"""A crew whose agents call a remote agent, of any dialect, as a tool."""

from crewai import Agent, BaseLLM, Crew, Task

from dragoman import connect
from dragoman.adapters.crewai import as_tool


async def plan(url: str, model: BaseLLM) -> str:
    async with connect(url) as desk:
        member = Agent(
            role="Planner", goal="Plan", backstory="Old.", llm=model, tools=[as_tool(desk)]
        )
        trip = Task(description="Plan a trip to Kyoto", expected_output="A plan", agent=member)
        return str(await Crew(agents=[member], tasks=[trip]).kickoff_async())
