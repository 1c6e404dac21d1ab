"""An agent that can do little, asks for much, and says so on its card."""

from __future__ import annotations

from dragoman import Agent, Turn
from dragoman.core.card import Extension, Provider

agent = Agent(
    "Narrow",
    description="Only answers, and only in EUR.",
    version="1.0.0",
    streaming=False,
    push=False,
    provider=Provider(organization="Narrow & Co", url="https://narrow.example"),
    documentation_url="https://narrow.example/docs",
    extensions=[Extension(uri="https://narrow.example/eur/v1", required=True)],
)


@agent.skill("echo", description="Says it back.", examples=["hello"])
async def echo(turn: Turn) -> str:
    return turn.text


@agent.skill("audit", description="For those we know.", extended=True)
async def audit(turn: Turn) -> str:
    return "all is well"
