"""The size of a task as its events make it: what is kept counts, and nothing else."""

from __future__ import annotations

import pytest

from dragoman.core.errors import PeerMisbehaved
from dragoman.core.events import ArtifactChunk, Note, Noted, Snapshot, Stamped, StateChanged
from dragoman.core.model import Artifact, Message, Role, State, Status, Task, Text
from dragoman.core.operations import Watch
from dragoman.core.stream_state import StreamState
from dragoman.core.task_size import TaskGrowth

LIMIT = 10_000


def chunk(text: str, id: str = "a", *, append: bool = True) -> ArtifactChunk:
    return ArtifactChunk(artifact=Artifact(artifact_id=id, parts=(Text(text),)), append=append)


def message(text: str, id: str = "m") -> Message:
    return Message(message_id=id, role=Role.AGENT, parts=(Text(text),))


def test_what_is_replaced_gives_its_room_back() -> None:
    growth = TaskGrowth(LIMIT, "a setting")
    for _ in range(100):
        growth.add(chunk("x" * 4000, append=False))
        growth.add(chunk("x" * 4000))
        growth.add(StateChanged(state=State.WORKING))
        growth.add(Noted(kind=Note.LOG, body={"line": "x" * 1000}))
    growth.add(chunk("y" * 1000, "b", append=False))
    with pytest.raises(PeerMisbehaved, match=r"10000 bytes \(a setting\)"):
        growth.add(chunk("y" * 1000, "b"))


def test_a_snapshot_counts_from_the_beginning() -> None:
    task = Task(
        id="t",
        context_id="c",
        status=Status(State.WORKING, 0, message("x" * 2000)),
        history=(message("x" * 2000),),
        artifacts=(Artifact(artifact_id="a", parts=(Text("x" * 2000),)),),
    )
    growth = TaskGrowth(LIMIT, "")
    for _ in range(100):
        growth.add(Snapshot(task=task))
    growth.add(chunk("x" * 2000))
    with pytest.raises(PeerMisbehaved):
        growth.add(chunk("x" * 2000))


def test_events_without_content_count_too() -> None:
    growth = TaskGrowth(LIMIT, "")

    def flood() -> None:
        for n in range(1000):
            growth.add(StateChanged(state=State.WORKING, message=message("", str(n))))

    with pytest.raises(PeerMisbehaved):
        flood()


def test_a_message_in_pieces_counts_once_when_it_is_whole() -> None:
    seen = StreamState(Watch(task_id="t"), numbered=False, growth=TaskGrowth(LIMIT, ""))
    working = Stamped("t", "c", 0, 0, StateChanged(state=State.WORKING))
    seen.take([working])
    seen.take([message("x" * 1000) for _ in range(4)])
    seen.take([working])  # now it is part of the task
    seen.take([message("x" * 1000, "another") for _ in range(4)])
    with pytest.raises(PeerMisbehaved):
        seen.take([message("x" * 1000, "another")])
