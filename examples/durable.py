"""A long piece of work that survives `kill -9`: every step is recorded once and replayed after.

Try it: send a message, kill the server with `kill -9` in the middle, start it again.
"""

import asyncio

from dragoman import Agent, Turn

agent = Agent("Researcher", description="Does a long piece of work, step by step.")


@agent.skill("research", description="Researches a topic.", max_attempts=5, timeout=600)
async def research(turn: Turn) -> str:
    sources = await turn.step("find", find, turn.text)
    notes: list[str] = []
    for number, source in enumerate(sources, 1):
        notes.append(await turn.step(f"read {source}", read, source))
        await turn.progress(number / len(sources))
    tries = "" if turn.attempt == 1 else f" (attempt {turn.attempt})"
    return "\n".join(notes) + tries


async def find(topic: str) -> list[str]:
    """Where to look."""
    return [f"{topic} {part}" for part in ("history", "practice", "future")]


async def read(source: str) -> str:
    """Slow on purpose."""
    await asyncio.sleep(0.3)
    return f"Read about {source}."
