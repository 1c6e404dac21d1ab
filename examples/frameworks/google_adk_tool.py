"""An ADK agent with a remote agent, of any dialect, as a tool or as a sub-agent."""

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm
from google.adk.runners import InMemoryRunner
from google.genai import types

from dragoman import connect
from dragoman.adapters.google_adk import as_sub_agent, as_tool


async def plan(url: str, model: BaseLlm, *, sub_agent: bool = False) -> str:
    async with connect(url) as desk:
        if sub_agent:
            planner = LlmAgent(name="planner", model=model, sub_agents=[as_sub_agent(desk)])
        else:
            planner = LlmAgent(name="planner", model=model, tools=[as_tool(desk)])
        runner = InMemoryRunner(agent=planner, app_name="trips")
        session = await runner.session_service.create_session(app_name="trips", user_id="me")
        asked = types.Content(role="user", parts=[types.Part(text="Kyoto")])
        said = [
            part.text
            async for event in runner.run_async(
                user_id="me", session_id=session.id, new_message=asked
            )
            for part in (event.content and event.content.parts) or ()
            if part.text
        ]
        return said[-1]
