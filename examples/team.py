"""Agents that call agents: a planner asks two workers in dialects of their own, for one result.

`python examples/team.py "three days in Kyoto"` starts all three and prints what they made. A skill
asks others as it does anything else: in a sequence, or all at once. What they ask goes up to our
own caller; a cancel goes down to them; after a crash nobody is asked twice.
"""

import asyncio
import os
import sys

from dragoman import Agent, Turn, connect
from dragoman.testing import served

planner = Agent("Planner", description="Plans trips with the help of others")


@planner.skill("plan")
async def plan(turn: Turn) -> str:
    """Plans a trip: what to see and what to wear."""
    city = turn.text.rpartition(" in ")[2] if " in " in turn.text else await turn.ask("Which city?")
    guide = turn.agent(os.environ["SIGHTS"], dialect="a2a-0.3-rest")
    tailor = turn.agent(os.environ["CLOTHES"], dialect="a2a-0.1")
    seen, worn = await asyncio.gather(
        guide.send(city, key="sights"), tailor.send(city, key="clothes", pass_up=True)
    )
    return f"In {city} see {seen.text}. Take {worn.text}."


def workers() -> tuple[Agent, Agent]:
    """Two agents that could be anyone's, anywhere."""
    sights = Agent("Sights", description="Knows what to see")
    clothes = Agent("Clothes", description="Knows what to wear")

    @sights.skill("see")
    async def see(turn: Turn) -> str:
        """What to see in a city."""
        return f"the old town, the gardens and the night market of {turn.text}"

    @clothes.skill("wear")
    async def wear(turn: Turn) -> str:
        """What to wear in a city, once it knows the month."""
        month = await turn.ask(f"In which month will you be in {turn.text}?")
        return "a hat" if month.strip().lower() in ("june", "july", "august") else "a coat"

    return sights, clothes


async def main(request: str) -> None:
    """The whole team in one process, each agent on a port of its own."""
    sights, clothes = workers()
    async with served(sights) as at_sights, served(clothes) as at_clothes:
        os.environ |= {"SIGHTS": at_sights, "CLOTHES": at_clothes}
        async with served(planner) as address, connect(address) as agent:
            talk = agent.conversation()
            answer = await talk.send(request)
            while talk.waits and talk.task is not None and talk.task.status.message is not None:
                print(talk.task.status.text)
                answer = await talk.send(await asyncio.to_thread(input, "> "))
            print(answer.text)


if __name__ == "__main__":
    asyncio.run(main(" ".join(sys.argv[1:]) or "three days in Kyoto"))
