"""Tracks what a reader has received of a task, so that a stream survives broken connections.

Theory. A connection can break at any byte, and an unknown number of events follows the break. If
the agent numbers its events, the number tells which ones are missing. If it does not, only the task
itself can tell: the fold of the delivered events is compared with the current task, and the
difference is delivered as events that lead from one to the other. Nothing is delivered twice,
artifacts continue where they stopped, and the fold of all delivered events equals the task. A
change that left no trace in the task (a state that came and went) cannot be known, and is not
invented.

A message in a stream is the direct reply and the whole stream (A2A 1.0 §3.1.2). Some agents send
messages in the stream of a task all the same, often one message in many pieces under one id. Pieces
are kept until something else arrives: then their message is added to the task's history. If nothing
else arrives, the message is the reply.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from dragoman.core.events import AnyEvent, ArtifactChunk, Opened, Snapshot, Stamped, StateChanged
from dragoman.core.lifecycle import ENDS_STREAM, FINAL, WAITING, Fold, joined
from dragoman.core.log import Logger
from dragoman.core.model import AnyPart, Artifact, Message, Role, State, Task, Text
from dragoman.core.operations import SendMessage, Streamed
from dragoman.core.task_size import TaskGrowth, size_of

Entry = Stamped | Message
log = Logger("client")

MOST_LATER = 256
"""The events that wait to be folded. Most streams end before anyone wants to see their task."""


class NoSnapshot(Exception):
    """A stream was resumed, and neither a number nor the task shows what was missed."""


class StreamState:
    """The delivered part of one task."""

    def __init__(
        self,
        op: Streamed,
        *,
        numbered: bool,
        cursor: int = 0,
        growth: TaskGrowth | None = None,
        held: TaskGrowth | None = None,
    ) -> None:
        """`growth` limits the size of the task; without it there is no limit. `held` limits what is
        kept beside the task, if `growth` does not."""
        self.numbered = numbered
        """Whether the agent numbers its events."""
        self._fold: Fold | None = None
        """The delivered events, without those in `_later`."""
        self._later: list[Stamped] = []
        self._state = State.SUBMITTED
        """The state of the task after all of them."""
        # A stream that never ends must not fill our memory.
        self._growth = growth
        self._held = growth or held or TaskGrowth()
        self._task_id = op.task_id if not isinstance(op, SendMessage) else op.message.task_id
        self._watches = not isinstance(op, SendMessage)
        self.reply: Message | None = None
        """The direct reply, which is then the whole stream."""
        self.seq = cursor
        """The number of the last event; 0 if it is unknown."""
        self._joined = True
        """Whether the current connection is known to continue after the last event."""
        self.patched = False
        """Whether a connection was lost together with events."""
        self._unheard = op.message if isinstance(op, SendMessage) else None
        """Our message, until the task has received it."""
        self._pieces: list[Message] = []
        """Pieces of one message inside the task's stream that nothing has followed yet."""
        self._warned = False

    @property
    def unsure(self) -> bool:
        """Whether the position of the current connection in the task is unknown."""
        return self.patched or (self._watches and not self.numbered)

    @property
    def task_id(self) -> str:
        """The id of the task, once it is known."""
        return self._fold.task_id if self._fold is not None else self._task_id

    @property
    def begun(self) -> bool:
        """Whether anything was delivered."""
        return self._fold is not None or self.reply is not None

    @property
    def over(self) -> bool:
        """Whether no event can follow."""
        return self.reply is not None or (self._fold is not None and self._state in FINAL)

    @property
    def rests(self) -> bool:
        """Whether the task has ended or waits, so that no event follows by itself."""
        if self.over:
            return True
        return self._fold is not None and self._unheard is None and self._state in WAITING

    @property
    def asks(self) -> bool:
        """Whether the stream ends here although the task does not (lifecycle.ENDS_STREAM)."""
        return self.rests and (self._fold is None or self._state in ENDS_STREAM)

    def task(self) -> Task | None:
        """The current task, built from the delivered events."""
        return self._folded(self._fold).task() if self._fold is not None else None

    def connected(self, *, cursor: bool) -> None:
        """Notes a new connection, which begins after our last event or at an unknown position."""
        self._joined = cursor
        self.patched = self.patched or not (cursor or self._fold is None)

    def take(self, entries: Iterable[Entry]) -> list[Entry]:
        """Returns the new entries. Raises `NoSnapshot` if they cannot be determined."""
        new: list[Entry] = []
        for entry in entries:
            if self._goes_on(entry):
                new.append(entry)
                continue
            if isinstance(entry, Message):
                new += self._said(entry)
                continue
            new += self._spoken()
            if isinstance(entry.event, Snapshot):
                new += self._compared(entry, entry.event.task)
            else:
                new += self._followed(entry)
        return new

    def _goes_on(self, entry: Entry) -> bool:
        """Takes a piece of an artifact that follows what was delivered, and returns whether it was
        one. Most events are; the general way would take them just so."""
        if type(entry) is not Stamped or not isinstance(entry.event, ArtifactChunk):
            return False
        seq = entry.seq
        if seq and not (self.numbered and seq > self.seq):
            return False
        if self._fold is None or self._pieces or not self._joined:
            return False
        if self._growth is not None:
            self._growth.add(entry.event)
        self._later.append(entry)
        if len(self._later) >= MOST_LATER:
            self._folded(self._fold)
        self.seq = seq
        return True

    def catch_up(self, task: Task) -> list[Entry]:
        """Returns the events that lead from the delivered state to this task."""
        spoken = self._spoken()
        stamp = Stamped(task.id, task.context_id, 0, task.status.at, Snapshot(task=task))
        if self._fold is not None and self._lags(stamp, task):
            task = _caught_up(self._folded(self._fold).task(), task)
        return spoken + self._compared(stamp, task)

    def ended(self) -> list[Entry]:
        """Handles the orderly end of the stream: a message at its very end is the reply."""
        if not self._pieces:
            return []
        self.reply = self._message()
        return [self.reply]

    def _said(self, message: Message) -> list[Entry]:
        """Handles a message of the stream: the direct reply, or one inside a task's stream."""
        if self._fold is None:
            if self.reply is not None:
                return []
            self.reply = message
            return [message]
        if not self._warned:
            self._warned = True
            log.warning(
                "The agent sends messages inside the stream of a task, where A2A has status "
                "updates and artifacts; they are kept in its history",
                task=self.task_id,
            )
        first = self._pieces[0].message_id if self._pieces else ""
        new = self._spoken() if message.message_id != first else []
        self._held.hold(size_of(message))
        self._pieces.append(message)
        return new

    def _spoken(self) -> list[Entry]:
        """Returns a message that is complete because something follows it, as an event."""
        if not self._pieces or self._fold is None:
            return []
        event = StateChanged(state=State.WORKING, message=self._message())
        fold = self._folded(self._fold)
        step = Stamped(fold.task_id, fold.context_id, 0, fold.status.at, event)
        self._add(fold, step)
        return [step]

    def _add(self, fold: Fold, entry: Stamped) -> None:
        event = entry.event
        if self._growth is not None:
            self._growth.add(event)
        if not isinstance(event, ArtifactChunk):
            self._state = _state_after(event)
        self._later.append(entry)
        if len(self._later) >= MOST_LATER:
            self._folded(fold)

    def _folded(self, fold: Fold) -> Fold:
        """Returns the fold with all delivered events."""
        if self._later:
            for entry in self._later:
                fold.add(entry)
            self._later.clear()
        return fold

    def _message(self) -> Message:
        pieces, self._pieces = self._pieces, []
        self._held.hold(-sum(map(size_of, pieces)))
        return replace(pieces[-1], parts=joined(p for piece in pieces for p in piece.parts))

    def _lags(self, entry: Stamped, task: Task) -> bool:
        """Returns whether the fetched task lacks what its own stream has delivered: some servers
        store artifacts only when the work is done."""
        if self._fold is None or task.state in FINAL or (self.numbered and entry.seq):
            return False
        theirs = {made.artifact_id: made for made in Fold.of(task, 0).task().artifacts}
        made = self._folded(self._fold).task().artifacts
        return any(_shorter(theirs.get(ours.artifact_id), ours) for ours in made)

    def _followed(self, entry: Stamped) -> list[Entry]:
        numbered = self.numbered and entry.seq > 0
        if not numbered and entry.seq:
            entry = replace(entry, seq=0)
        if numbered and entry.seq <= self.seq:
            self._joined = True
            return []
        if not self._joined and not (numbered and entry.seq == self.seq + 1):
            raise NoSnapshot
        self._joined = True
        fold = self._fold
        if fold is None:
            fold = self._fold = self._begun_by(entry)
        if isinstance(entry.event, StateChanged):
            entry = self._heard(entry, entry.event)
        self._add(fold, entry)
        self.seq = entry.seq
        return [entry]

    def _begun_by(self, entry: Stamped) -> Fold:
        """Returns the fold of a new task. Streams of 0.1 do not contain the task, but we know that
        we created it."""
        fold = Fold(entry.task_id, entry.context_id)
        said = self._unheard
        if said is not None and not said.task_id:
            self._add(fold, replace(entry, seq=0, event=Opened(message=said)))
        self._unheard = None
        return fold

    def _heard(self, entry: Stamped, event: StateChanged) -> Stamped:
        """Adds our message to an update: A2A does not say which message the task continued with."""
        said, self._unheard = self._unheard, None
        if said is None or event.heard is not None or event.state in WAITING:
            return entry
        said = replace(said, context_id=entry.context_id or said.context_id)
        return replace(entry, event=replace(event, heard=said))

    def _compared(self, entry: Stamped, task: Task) -> list[Entry]:
        self._joined = True
        said = self._unheard
        if said is not None and (not task.history or said.message_id in _ids(task.history)):
            self._unheard = None
        if self._fold is None:
            if not self.numbered and entry.seq:
                entry = replace(entry, seq=0)
            if self._growth is not None:
                self._growth.reset(task)
            self._fold = Fold.of(task, entry.seq)
            self._state, self.seq = task.state, entry.seq
            return [entry]
        if self.numbered and entry.seq and entry.seq <= self.seq:
            return []
        fold = self._folded(self._fold)
        fold.context_id = fold.context_id or task.context_id  # A2A 0.1 has it only here
        # Other servers keep every chunk of a text as a separate part; the fold joins them as ours.
        task = Fold.of(task, 0).task()
        if not all(message.message_id for message in task.history):
            task = replace(task, history=())  # A2A 0.1 has no message ids, so none can be compared
        if not task.history:  # the server did not send it, so what we know of it remains
            told = fold.task()
            kept = told.history + ((told.status.message,) if told.status.message else ())
            if task.status.message in kept[-1:]:
                kept = kept[:-1]
            task = replace(task, history=kept)
        new: list[Entry] = []
        for event, at in _difference(fold, task):
            step = Stamped(task.id, task.context_id, 0, at, event)
            self._add(fold, step)
            self._folded(fold)
            new.append(step)
        if fold.task() != task:  # no events lead from one to the other, so the whole task is sent
            step = Stamped(task.id, task.context_id, 0, task.status.at, Snapshot(task=task))
            self._add(fold, step)
            new.append(step)
        if self.numbered and entry.seq:
            self.seq = entry.seq
            if new and isinstance(new[-1], Stamped):
                new[-1] = replace(new[-1], seq=entry.seq)
        return new


def _state_after(event: AnyEvent) -> State:
    """Returns the state of a task after an event that may change it."""
    if isinstance(event, Snapshot):
        return event.task.state
    if isinstance(event, Opened | ArtifactChunk):
        return State.SUBMITTED
    return event.state


def _ids(messages: Iterable[Message]) -> set[str]:
    return {message.message_id for message in messages}


def _difference(fold: Fold, task: Task) -> Iterable[tuple[AnyEvent, int]]:
    """Yields events with their times that should turn the fold into the task."""
    for artifact in task.artifacts:
        yield from ((chunk, 0) for chunk in _grown(fold, artifact, task.state in FINAL))
    before, after = fold.history(), task.history
    said = task.status.message
    if said is not None:
        after = (*after, said)
    missed = after[len(before) :] if after[: len(before)] == before else ()
    for message in missed:
        if message is said:
            continue
        if message.role is Role.AGENT:
            yield StateChanged(state=State.WORKING, message=message), task.status.at
        else:
            yield StateChanged(state=State.WORKING, heard=message), task.status.at
    if fold.status != task.status:
        yield StateChanged(state=task.state, message=said), task.status.at


def _shorter(theirs: Artifact | None, ours: Artifact) -> bool:
    """Returns whether their artifact is missing, or only the beginning of ours."""
    return theirs is None or bool(_behind(theirs.parts, ours.parts))


def _caught_up(ours: Task, task: Task) -> Task:
    """Returns their task, with our artifacts where theirs are incomplete."""
    theirs = {made.artifact_id: made for made in task.artifacts}
    for made in ours.artifacts:
        if _shorter(theirs.get(made.artifact_id), made):
            theirs[made.artifact_id] = made
    order = [made.artifact_id for made in ours.artifacts]
    return replace(task, artifacts=tuple(theirs[each] for each in dict.fromkeys((*order, *theirs))))


def _grown(fold: Fold, artifact: Artifact, final: bool) -> Iterable[ArtifactChunk]:
    known = fold.artifact(artifact.artifact_id)
    if known == artifact:
        return
    more = _behind(known.parts, artifact.parts) if known is not None else None
    if more is None:
        yield ArtifactChunk(artifact=artifact, append=False, last=final)
    else:
        yield ArtifactChunk(artifact=replace(artifact, parts=more), append=True, last=final)


def _behind(known: tuple[AnyPart, ...], parts: tuple[AnyPart, ...]) -> tuple[AnyPart, ...] | None:
    """Returns the parts after the known ones, or None if the known ones are not the beginning."""
    if not known:
        return parts
    *head, last = known
    place = len(head)
    if list(parts[:place]) != head or len(parts) <= place:
        return None
    grown = parts[place]
    if grown == last:
        return parts[place + 1 :]
    # Adjacent text is joined in a snapshot (DESIGN §4.1), so the last one may have grown.
    if not isinstance(last, Text) or not isinstance(grown, Text):
        return None
    if grown != replace(last, text=grown.text) or not grown.text.startswith(last.text):
        return None
    return (replace(grown, text=grown.text[len(last.text) :]), *parts[place + 1 :])
