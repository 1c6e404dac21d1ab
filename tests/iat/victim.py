"""A sub-agent to be killed: asks, then acts in the world outside, and leaves marks on its way."""

import asyncio
import os
from pathlib import Path

from dragoman import Agent, Turn

HERE = Path(os.environ["VICTIM_FOLDER"])
agent = Agent("Victim")


async def hold(where: str) -> None:
    """The first time, tells that it is here and waits to be killed."""
    mark = HERE / f"{where}.reached"
    if os.environ.get("VICTIM_DIES") == where and not mark.exists():
        mark.touch()
        await asyncio.sleep(600)  # until it is killed


async def pay(key: str) -> str:
    """The world outside: it keeps one payment per key, however often it is asked."""
    with (HERE / "asked").open("a") as calls:
        calls.write(f"{key}\n")
    (HERE / "paid").mkdir(exist_ok=True)
    (HERE / "paid" / key.replace("/", "_")).touch()
    await hold("paid")
    return "paid"


@agent.skill("buy")
async def buy(turn: Turn) -> str:
    if not await turn.approve("Pay 5?", details={"what": turn.text}):
        return "left"
    await hold("approved")
    return await turn.step("pay", pay, turn.key("pay"))
