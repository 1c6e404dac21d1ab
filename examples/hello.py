from dragoman import Agent, Turn

agent = Agent("Hello", description="Greets you.")


@agent.skill("hello", description="Greets you.", examples=["Ada"])
async def hello(turn: Turn) -> str:
    return f"Hello, {turn.text or 'world'}!"
