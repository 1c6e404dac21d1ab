"""An agent in a room of IRC that knows the source text of A2A-Lite and nothing else. Nothing of
ours is imported by what it is made of (`lite.irc_stranger`)."""

from __future__ import annotations

import json

from lite.irc_stranger import Read, Stranger

ANY = "any"
"""The skill of a task that names none."""


class RoomDesk:
    """Does what the body of a task says: a block of JSON, and a line of text."""

    def __init__(self, member: Stranger) -> None:
        self._member = member
        self._answers: dict[str, list[str]] = {}
        member.on_line = self.hear

    async def hear(self, who: str, room: str, text: str) -> None:
        """Takes one line of the room."""
        if text.startswith("[A2A:discover"):
            await self._member.say("[A2A:card]", "I am a desk. I do what I am told.")
            return
        found = self._member.messages(who)
        if not found or found[-1].type not in ("task", "cancel"):
            return
        last = found[-1]
        if last.type == "cancel":
            if not last.body:  # its marker says it all
                await self._tell("status", last.params["task"], "cancelled")
        elif last.params["id"] in self._answers:
            if last.body:
                await self._go_on(last.params["id"], text)
        elif "```" in last.body[:-1]:  # the line after the block
            await self._work(last, text)

    async def _work(self, asked: Read, text: str) -> None:
        order = next(line for line in asked.body if line.startswith("{"))
        task = asked.params["id"]
        await self._member.say(f"[A2A:ack task={task}]")
        match json.loads(order)["do"]:
            case "name":
                await self._tell("result", task, "completed", asked.params.get("skill", ANY))
            case "trip":
                self._answers[task] = []
                await self._tell("status", task, "input-required", "Which city?")
            case "slow":
                await self._tell("status", task, "working", "begun")
            case "fail":
                await self._tell("result", task, "failed", "No paper left")
            case "refuse":
                await self._tell("status", task, "rejected", "Not for me")
            case _:
                await self._tell("result", task, "completed", text.upper())

    async def _go_on(self, task: str, answer: str) -> None:
        known = self._answers[task]
        known.append(answer)
        if len(known) == 1:
            await self._tell("status", task, "input-required", "How many days?")
        else:
            await self._tell("result", task, "completed", f"{known[1]} days in {known[0]}")

    async def _tell(self, type: str, task: str, state: str, *body: str) -> None:
        await self._member.say(f"[A2A:{type} task={task} state={state}]", *body)
