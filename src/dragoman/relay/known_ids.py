"""What agents elsewhere call our tasks and conversations.

A process remembers the ids that it has seen. What it does not remember is read from the journals of
the earlier tasks: each has a record of the task that it opened elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Protocol

from dragoman.agent.run_api import RunApi
from dragoman.core.peer import Context


class KnownIds:
    """What the upstream calls our tasks and conversations, as far as it chose the names itself.
    The oldest are forgotten, a tenth of all at once: to forget one with each new one would cost
    more than all else here."""

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._ids: dict[str, str] = {}

    def get(self, ours: str) -> str:
        """Returns their id; empty if it is not known."""
        return self._ids.get(ours, "")

    def put(self, ours: str, theirs: str) -> None:
        """Remembers an id."""
        ids = self._ids
        ids[ours] = theirs
        if len(ids) > self._most:
            for each in tuple(islice(ids, self._most // 10 + 1)):
                del ids[each]


def task_key(caller: Context, task_id: str) -> str:
    """Returns the name of a task of ours among the ids of an agent. The caller is part of it, so
    that nobody refers to the task of somebody else."""
    return f"{caller.tenant}\0{caller.principal}\0{task_id}"


class Conversing(Protocol):
    """The ids that an agent elsewhere has given."""

    served_as: str
    tasks: KnownIds
    contexts: KnownIds


async def recall(
    run: RunApi,
    agents: Sequence[Conversing],
    whose: str,
    references: Iterable[str],
    name_of: Callable[[str], str],
) -> None:
    """Looks up what these agents called the conversation of a run, which is known as `whose`, and
    the tasks that its message refers to, as far as that is not known. `name_of` returns the name of
    an agent from the address in a journal."""
    by_name = {each.served_as: each for each in agents}
    names = {ours: task_key(run.caller, ours) for ours in references}
    unknown = [
        ours for ours, name in names.items() if not any(each.tasks.get(name) for each in agents)
    ]
    if unknown:
        for ours, calls in (await run.calls_of(unknown)).items():
            for call in calls:
                asked = by_name.get(name_of(call.address))
                if asked is not None:
                    asked.tasks.put(names[ours], call.task_id)
    begun_earlier = run.context_id != run.task_id  # a new one has the id of its first task
    if begun_earlier and not any(each.contexts.get(whose) for each in agents):
        agents[0].contexts.put(whose, whose[:32])  # nothing is looked up twice
        earlier = (await run.calls_of(None)).values()
        for call in reversed([each for calls in earlier for each in calls]):
            asked = by_name.get(name_of(call.address))
            if asked is not None and call.context_id:
                asked.contexts.put(whose, call.context_id)
