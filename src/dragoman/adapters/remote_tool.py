"""A remote agent as a tool of a language model, in the form that all frameworks share."""

from __future__ import annotations

import re

import msgspec

from dragoman.agent.remote_calls import AgentClient
from dragoman.client import RemoteAgent
from dragoman.core.card import Card
from dragoman.core.errors import ConfigError, DragomanError
from dragoman.core.lifecycle import FINAL
from dragoman.core.model import Data, Message, State, Task

Remote = RemoteAgent | AgentClient
"""What `connect(address)` yields, or what `turn.agent(address)` returns."""


class RemoteTool:
    """Sends what a model says to a remote agent, and tells the model what came of it."""

    def __init__(self, agent: Remote, *, name: str, description: str, skill: str) -> None:
        """`name` and `description` are told to the model; by default they come from the card, which
        an agent of `turn.agent` does not have yet."""
        card = agent.card if isinstance(agent.card, Card) else None
        if card is None and not (name and description):
            raise ConfigError("A tool for turn.agent(...) needs a name and a description.")
        self._agent, self._skill = agent, skill
        self.name = name or re.sub(r"\W+", "_", card.name if card else "").strip("_").lower()[:64]
        self.description = description or _described(card, skill)

    async def send(self, message: str, task: str = "") -> str:
        """Sends a message to the agent.

        Args:
            message: What to tell the agent.
            task: Only to answer a question of the agent: the id of the task that asked it.
        """
        try:
            if task:
                return _told(await self._agent.answer(task, message))
            return _told(await self._agent.send(message, skill=self._skill))
        except DragomanError as exc:
            # A model that reads this can do something else; an exception would end its run.
            return f"The agent did not take this: {exc.message}"


def _described(card: Card | None, skill: str) -> str:
    if card is None:
        return ""
    skills = [each for each in card.skills if not skill or each.id == skill]
    about = [f"{each.name}: {each.description}" for each in skills if each.description]
    return "\n".join(filter(None, (card.description, *about)))[:1024]


def _told(answer: Task | Message) -> str:
    """Returns the answer of an agent in words for a model."""
    if isinstance(answer, Message) or answer.state is State.COMPLETED:
        return answer.text or _data(answer)
    said = answer.status.text
    if answer.state in FINAL:
        return f"The agent ended the task as {answer.state.value}. {said}".strip()
    return (
        f"The agent asks: {said}\nTo answer, call this tool again with the answer as the message "
        f'and task="{answer.id}".'
    )


def _data(answer: Task | Message) -> str:
    parts = (
        answer.parts
        if isinstance(answer, Message)
        else [part for artifact in answer.artifacts for part in artifact.parts]
    )
    values = [part.value for part in parts if isinstance(part, Data)]
    return "\n".join(msgspec.json.encode(value).decode() for value in values)
