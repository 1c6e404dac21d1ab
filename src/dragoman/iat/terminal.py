"""A host's terminal: gives work, shows what comes of it, and asks a person where it must.

One line is one thing: `NAME: what to do`, or an answer to the question that was asked first. What
sub-agents say is shown without anything that could move the cursor or look like a question of ours.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from ..errors import DragomanError
from ..events import AnyEvent, ArtifactChunk, Ask, Asked, Note, Noted, Stamped, StateChanged
from ..lifecycle import FINAL
from ..model import State, Text
from ..peer import Batch
from ..store.approvals import name_of
from .host import Host

YES, NO = frozenset(("y", "yes", "是", "好")), frozenset(("n", "no", "否", "不"))
HELP = "NAME: what to do · /agents lists sub-agents · /quit ends"
MOST = 2000


def clean(text: str) -> str:
    """What an agent said, on one line."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:MOST]


class Terminal:
    """The person at a host."""

    def __init__(self, host: Host, show: Callable[[str], None], *, person: bool) -> None:
        self._host, self._show, self._person = host, show, person
        self._asked: deque[tuple[str, Asked]] = deque()
        self._works: set[asyncio.Task[bool]] = set()

    async def read(self, lines: AsyncIterator[str]) -> None:
        """Takes lines until there are no more, or /quit."""
        self._show(HELP)
        async for line in lines:
            said = line.strip()
            if said == "/quit":
                return
            if said == "/agents":
                for sub in self._host.agents.values():
                    tools = ", ".join(tool.name for tool in sub.tools)
                    self._show(
                        f"{clean(sub.name)}  {clean(sub.card.description)}  [{clean(tools)}]"
                    )
            elif self._asked and not said.startswith("/"):
                await self._answer(said)
            elif said:
                self._begin(said)
        if self._works:
            await asyncio.wait(self._works)

    def _begin(self, said: str) -> None:
        name, colon, rest = said.partition(":")
        known = bool(colon) and name.strip() in self._host.agents
        about = (rest.strip(), name.strip()) if known else (said, "")
        work = asyncio.get_running_loop().create_task(self.execute(*about))
        self._works.add(work)
        work.add_done_callback(self._works.discard)

    async def execute(
        self, query: str, agent: str = "", allowed: tuple[str, ...] | None = None
    ) -> bool:
        """Gives a sub-agent work and shows it; whether it was completed."""
        done = False
        try:
            async for batch in self._host.execute(query, agent=agent, allowed_tools=allowed):
                done = self._told(batch) or done
        except DragomanError as exc:
            self._show(f"! {clean(exc.message)}")
        return done

    def _told(self, batch: Batch) -> bool:
        done = False
        for entry in batch.entries:
            if isinstance(entry, Stamped):
                self._entry(entry)
                event = entry.event
                done = isinstance(event, StateChanged) and event.state is State.COMPLETED
        return done

    def _entry(self, entry: Stamped) -> None:
        event = entry.event
        if isinstance(event, Asked):
            self._question(entry.task_id, event)
        elif words := shown(event):
            self._show(f"[{entry.task_id[-4:]}] {words}")

    def _question(self, task_id: str, event: Asked) -> None:
        words = clean(event.message.text)
        about = f"  {clean(str(event.body))}" if event.body is not None else ""
        if not self._person:
            name = name_of(task_id, event.question)
            hint = f"dragoman approvals approve {name}" if event.kind is Ask.APPROVAL else "answer"
            self._show(f"[{task_id[-4:]}] ? {words}{about}  (waits: {hint})")
            return
        self._asked.append((task_id, event))
        if len(self._asked) == 1:
            self._ask()

    def _ask(self) -> None:
        task_id, event = self._asked[0]
        about = f"  {clean(str(event.body))}" if event.body is not None else ""
        choice = " [y/n]" if event.kind is Ask.APPROVAL else ""
        self._show(f"[{task_id[-4:]}] ? {clean(event.message.text)}{about}{choice}")

    async def _answer(self, said: str) -> None:
        task_id, event = self._asked[0]
        value: object = said
        if event.kind is Ask.APPROVAL:
            word = said.casefold()
            if word not in YES | NO:
                self._ask()  # only a clear yes is one
                return
            value = {"approved": word in YES}
        self._asked.popleft()
        try:
            await self._host.answer(task_id, event.question, value)
        except DragomanError as exc:
            self._show(f"! {clean(exc.message)}")
        if self._asked:
            self._ask()

    async def close(self) -> None:
        """Stops looking; the work goes on."""
        for work in tuple(self._works):
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work


def shown(event: AnyEvent) -> str:
    """One event for a person; empty if there is nothing to see."""
    match event:
        case Noted(kind=Note.THOUGHT, body=body):
            return f"… {clean(str(body.get('text', '')) if isinstance(body, dict) else str(body))}"
        case Noted(kind=Note.LOG, body=dict() as body):
            return f"{clean(str(body.get('level')))}: {clean(str(body.get('message')))}"
        case Noted(kind=Note.USAGE, body=body):
            return f"usage {clean(str(body))}"
        case ArtifactChunk(artifact=artifact):
            texts = [part.text for part in artifact.parts if isinstance(part, Text)]
            return f"| {clean(''.join(texts))}" if texts else f"| ({len(artifact.parts)} parts)"
        case StateChanged(state=state, message=message):
            words = clean(message.text) if message is not None else ""
            if state in FINAL:
                return f"{state}{': ' if words else ''}{words}"
            return words
        case _:
            return ""
