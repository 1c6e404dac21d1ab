"""What ADK's RemoteA2aAgent does, by card URL: `google_adk_client.py FOLDER URL`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from a2a.client import ClientConfig, ClientFactory
from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
from google.adk.events import Event
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types

folder, url = sys.argv[1:]
sys.path.insert(0, folder)
from verdicts import judge  # noqa: E402


class Session:
    """A user who talks to the remote agent through a runner."""

    def __init__(self, runner: Runner, session_id: str) -> None:
        self.runner, self.id = runner, session_id

    async def say(self, text: str) -> list[Event]:
        content = types.Content(role="user", parts=[types.Part(text=text)])
        events = self.runner.run_async(user_id="u", session_id=self.id, new_message=content)
        heard = [event async for event in events]
        assert not [event.error_message for event in heard if event.error_message], heard
        return heard


@asynccontextmanager
async def session(*, streaming: bool) -> AsyncIterator[Session]:
    async with httpx.AsyncClient(timeout=60) as http:
        factory = ClientFactory(ClientConfig(httpx_client=http, streaming=streaming))
        card = f"{url}/.well-known/agent-card.json"
        desk = RemoteA2aAgent(name="desk", agent_card=card, a2a_client_factory=factory)
        service = InMemorySessionService()
        made = await service.create_session(app_name="test", user_id="u")
        yield Session(Runner(app_name="test", agent=desk, session_service=service), made.id)


def texts(events: list[Event]) -> list[str]:
    """What the user is shown: thoughts are not."""
    parts = [part for event in events if event.content for part in event.content.parts or ()]
    return [part.text for part in parts if part.text and not part.thought]


def questions(events: list[Event]) -> list[object]:
    """What the user is asked for."""
    calls = [call for event in events for call in event.get_function_calls()]
    return [list((call.args or {}).values()) for call in calls]


async def answered(*, streaming: bool) -> None:
    async with session(streaming=streaming) as user:
        asked = await user.say("trip")
        assert questions(asked) == [["Which city?"]], asked
        assert [event for event in asked if event.long_running_tool_ids], asked
        done = await user.say("Kyoto")
        assert questions(done) == [], "it asks again"
        assert texts(done) == ["A trip to Kyoto"], done


async def send(_: None) -> None:
    async with session(streaming=False) as user:
        assert texts(await user.say("hello")) == ["HELLO"]


async def stream(_: None) -> None:
    async with session(streaming=True) as user:
        assert texts(await user.say("write one two")) == ["one ", "two "]


async def answer(_: None) -> None:
    await answered(streaming=False)


async def answer_streamed(_: None) -> None:
    await answered(streaming=True)


async def nothing() -> None:
    """Every question connects by itself."""


asyncio.run(judge([send, stream, answer, answer_streamed], nothing))
