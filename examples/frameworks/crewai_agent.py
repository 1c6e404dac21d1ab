"""A crew of CrewAI behind every dialect: its tasks find what the caller said as {message}."""

from collections.abc import AsyncIterator

from crewai import Agent as Member
from crewai import Crew, Task

from dragoman import Agent, Turn
from dragoman.adapters.crewai import run_crew

planner = Member(role="Planner", goal="Plan trips", backstory="Has seen the world.", llm="gpt-5.2")
trip = Task(description="Plan this: {message}", expected_output="A plan", agent=planner)
crew = Crew(agents=[planner], tasks=[trip])

agent = Agent("Travel desk", description="Plans trips")


@agent.skill("plan", description="Plans a trip")
async def plan(turn: Turn) -> AsyncIterator[object]:
    async for piece in run_crew(turn, crew):
        yield piece
