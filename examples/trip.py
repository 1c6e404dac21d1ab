"""A skill that asks back: the task waits for the answer, for days if need be, across restarts."""

from dragoman import Agent, Turn

agent = Agent("Travel desk", description="Plans trips.")


@agent.skill("plan", description="Plans a trip.", tags=["travel"], examples=["Kyoto"])
async def plan(turn: Turn) -> str:
    city = turn.text or await turn.ask("Which city?")
    days = await turn.ask("How many days?")
    while not days.isdigit():
        days = await turn.ask("How many days? Please give a number.")
    return "\n".join(f"Day {day}: see {city}" for day in range(1, int(days) + 1))
