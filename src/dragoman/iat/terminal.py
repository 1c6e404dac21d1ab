"""The terminal of a host: a person gives work to sub-agents, sees the results and answers
questions.

A line is either `NAME: what to do`, or the answer to the oldest open question. The texts of
sub-agents are shown without anything that could move the cursor or look like a question of ours.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter, deque
from collections.abc import AsyncIterator

import msgspec

from dragoman.core import events
from dragoman.core.errors import DragomanError
from dragoman.core.lifecycle import FINAL
from dragoman.core.model import Json, State, Text
from dragoman.core.peer import Batch
from dragoman.core.questions import answer_value, yes_or_no
from dragoman.store.approvals import name_of

from .host import Host
from .screen import Screen
from .sub_agent import SubAgent

HELP = "NAME: what to do · /agents lists sub-agents · /quit ends"
MOST = 2000
_NAMED = re.compile(r"(\S+)\s*:\s+")
QUIET = 0.5
"""Seconds without output after which a question that has scrolled away is shown again."""


def clean(text: str) -> str:
    """Returns the text of an agent on one line."""
    words = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return words if len(words) <= MOST else f"{words[:MOST]} … ({len(words) - MOST} more letters)"


def lines_of(text: str) -> str:
    """Returns a piece of a growing text, with its spaces and line ends but without control
    characters."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)


def told(value: Json) -> str:
    """Returns values in a readable form: `path: a.txt · size: 5`."""
    if isinstance(value, dict):
        return clean(" · ".join(f"{key}: {_plain(each)}" for key, each in value.items()))
    return clean(_plain(value))


def _plain(value: Json) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


class Terminal:
    """The person at a host."""

    def __init__(self, host: Host, screen: Screen, *, person: bool) -> None:
        self._host, self._screen, self._person = host, screen, person
        self._asked: deque[tuple[str, str, events.Asked]] = deque()
        self._works: set[asyncio.Task[bool]] = set()
        self._busy: Counter[str] = Counter()
        self._again: asyncio.TimerHandle | None = None
        self.unfinished: set[str] = set()
        """The tasks that were started here and have not ended."""
        host.news = self._news

    async def read(self, lines: AsyncIterator[str]) -> None:
        """Reads lines until the end of the input, or until `/quit`."""
        self._screen.row("", "·", HELP)
        async for line in lines:
            self._screen.typed()
            said = line.strip()
            if said == "/quit":
                return
            if said == "/agents":
                self._list()
            elif self._asked and not said.startswith("/"):
                await self._answer(said)
            elif said:
                self._begin(said)
        if self._works:
            await asyncio.wait(self._works)

    def _list(self) -> None:
        for sub in self._host.agents.values():
            self._screen.row("", "+", _about(sub))
        if not self._host.agents:
            self._screen.row(
                "", "-", f"nobody is here yet: dragoman serve FILE --iat-host {self._host.name}=URL"
            )

    def _news(self, sub: SubAgent) -> None:
        if sub.online:
            self._screen.row("", "+", _about(sub))
        else:
            self._screen.row("", "-", f"{clean(sub.name)} is gone")
        self._ask_later()

    def _begin(self, said: str) -> None:
        named = _NAMED.match(said)
        if named is not None and named[1] not in self._host.agents:
            # The named sub-agent may not be connected yet. No other one may get its work.
            here = ", ".join(self._host.agents) or "nobody"
            self._screen.row("", "!", clean(f"There is no {named[1]} here, but {here}."))
            return
        about = (said[named.end() :], named[1]) if named is not None else (said, "")
        work = asyncio.get_running_loop().create_task(self.execute(*about))
        self._works.add(work)
        work.add_done_callback(self._works.discard)

    async def execute(
        self, query: str, agent: str = "", allowed: tuple[str, ...] | None = None
    ) -> bool:
        """Gives work to a sub-agent and shows its events. Returns whether it was completed."""
        done = False
        name = agent or (next(iter(self._host.agents)) if len(self._host.agents) == 1 else "")
        self._busy[name] += 1
        try:
            async for batch in self._host.execute(query, agent=agent, allowed_tools=allowed):
                done = self._told(name, batch) or done
        except DragomanError as exc:
            self._screen.row("", "!", clean(exc.message))
        finally:
            self._busy[name] -= 1
        return done

    def _told(self, name: str, batch: Batch) -> bool:
        done = False
        for entry in batch.entries:
            if isinstance(entry, events.Stamped):
                event = entry.event
                if isinstance(event, events.Asked):
                    self._question(name, entry.task_id, event)
                else:
                    self._show(self._whose(name, entry.task_id), event)
                self.unfinished.add(entry.task_id)
                if isinstance(event, events.StateChanged) and event.state in FINAL:
                    self.unfinished.discard(entry.task_id)
                    done = event.state is State.COMPLETED
        self._ask_later()
        return done

    def _whose(self, name: str, task_id: str) -> str:
        """Returns the name of the sub-agent, with the end of the task's id if it runs several
        tasks."""
        short = clean(name)[:24]
        return f"{short} {task_id[-4:]}".strip() if self._busy[name] > 1 else short

    def _show(self, whose: str, event: events.AnyEvent) -> None:
        if isinstance(event, events.ArtifactChunk):
            texts = [part.text for part in event.artifact.parts if isinstance(part, Text)]
            others = len(event.artifact.parts) - len(texts)
            self._screen.piece(whose, lines_of("".join(texts)) + f"({others} parts)" * bool(others))
        elif (found := shown(event)) is not None:
            self._screen.row(whose, *found)

    # Questions.

    def _question(self, name: str, task_id: str, event: events.Asked) -> None:
        whose = self._whose(name, task_id)
        if not self._person:
            id = name_of(task_id, event.question)
            hint = (
                f"dragoman approvals approve {id}"
                if event.kind is events.Ask.APPROVAL
                else "answer"
            )
            self._screen.ask(whose, f"{_words(event)}  (waits: {hint})")
            return
        self._asked.append((whose, task_id, event))
        if len(self._asked) == 1:
            self._ask()

    def _ask(self) -> None:
        whose, _, event = self._asked[0]
        choice = " [y/n]" if event.kind is events.Ask.APPROVAL else ""
        self._screen.ask(whose, f"{_words(event)}{choice}")

    def _ask_later(self) -> None:
        """Schedules the open question to be shown again, so that it is the last row without
        interrupting every output."""
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if self._asked and not self._screen.asks():
            self._again = asyncio.get_running_loop().call_later(QUIET, self._ask_again)

    def _ask_again(self) -> None:
        if self._asked and not self._screen.asks():
            self._ask()

    async def _answer(self, said: str) -> None:
        _, task_id, event = self._asked[0]
        value: object = said
        if event.kind is events.Ask.APPROVAL:
            decision = yes_or_no(said)
            if decision is None:
                self._ask()  # the answer was neither a clear yes nor a clear no
                return
            value = answer_value(decision)
        self._asked.popleft()
        try:
            await self._host.answer(task_id, event.question, value)
        except DragomanError as exc:
            self._screen.row("", "!", clean(exc.message))
        if self._asked:
            self._ask()


def _about(sub: SubAgent) -> str:
    tools = ", ".join(tool.name for tool in sub.tools)
    words = (sub.card.description, f"({tools})" if tools else "")
    return clean(f"{sub.name}: {' '.join(words)}" if any(words) else sub.name)


def _words(event: events.Asked) -> str:
    """Returns the question with all its details."""
    body = event.body
    # Our own relay adds the name of the agent, which the row already begins with.
    if isinstance(body, dict) and body.keys() == {"agent", "details"}:
        body = body["details"]
    return clean(event.message.text) + (f"  {told(body)}" if body not in (None, {}) else "")


def shown(event: events.AnyEvent) -> tuple[str, str] | None:
    """Returns the mark and the text of an event for a person, or None if there is nothing to
    show."""
    match event:
        case events.Noted(kind=events.Note.THOUGHT, body=body):
            return "…", told(body.get("text", "") if isinstance(body, dict) else body)
        case events.Noted(kind=events.Note.LOG, body=dict() as body):
            more = {key: each for key, each in body.items() if key not in ("level", "message")}
            words = f"{told(body.get('level'))}: {told(body.get('message'))}"
            return "·", f"{words}  {told(more)}" if more else words
        case events.Noted(kind=events.Note.USAGE, body=body):
            return "·", f"used {told(body)}"
        case events.StateChanged(state=state, message=message):
            words = clean(message.text) if message is not None else ""
            if state in FINAL:
                mark = "✓" if state is State.COMPLETED else "!"
                return mark, f"{state}{': ' if words else ''}{words}"
            return ("·", words) if words else None
        case _:
            return None
