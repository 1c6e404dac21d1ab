"""The agent that the gateway asks in A2A 1.0; the README beside it says how to start it."""

from dragoman import Agent, Turn

agent = Agent("Alpha", description="Plans trips.")


@agent.skill("trip", description="Plans a trip; asks how long it is.", examples=["Kyoto"])
async def trip(turn: Turn) -> str:
    days = await turn.ask(f"How many days in {turn.text}?")
    return f"{days} days in {turn.text}: arrive, look around, leave."
