"""The agent that the gateway runs itself."""

from dragoman import Agent, Turn

agent = Agent("Gamma", description="Says it back, louder.")


@agent.skill("echo", description="Says it back, louder.", examples=["hello"])
async def echo(turn: Turn) -> str:
    return turn.text.upper()
