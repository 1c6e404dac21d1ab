"""A plain function: it runs in a thread, so it may block; its turn has blocking verbs."""

import time

from dragoman import Agent, SyncTurn

agent = Agent("Old library", description="Uses code that blocks.")


@agent.skill("look-up", description="Looks something up, slowly.", examples=["dragoman"])
def look_up(turn: SyncTurn) -> str:
    turn.say("Searching the shelves.")
    time.sleep(0.1)  # would block an async server; here it only blocks this thread
    return f"{turn.text}: see volume {len(turn.text)}."
