from dragoman import Agent, Turn

agent = Agent("Echo", description="Says it back, louder.")


@agent.skill("echo", description="Says it back, louder.", examples=["hello"])
async def echo(turn: Turn) -> str:
    return turn.text.upper()
