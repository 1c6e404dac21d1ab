"""Buffers the chunks of a generator's artifact.

Each item of a generator is one chunk. The latest chunk is held back while the generator continues
without pausing, so that the last one can be marked as the last (DESIGN §4.1, Artifacts).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Protocol

from dragoman.core.events import AnyEvent, ArtifactChunk
from dragoman.core.model import AnyPart, Artifact, Text


class Put(Protocol):
    """The function that queues an event of the run."""

    def __call__(self, event: AnyEvent, *, now: bool = False) -> None: ...


class ChunkBuffer:
    """Holds back the latest chunk until it is known whether more follow."""

    def __init__(self, put: Put, new_artifact_id: Callable[[], str]) -> None:
        self._put = put
        self._new_artifact_id = new_artifact_id
        self._id = ""
        self._append = False
        self._parts: tuple[AnyPart, ...] = ()

    def add(self, parts: tuple[AnyPart, ...]) -> None:
        """Adds the next chunk, and sends the one before it."""
        if parts:
            if self._parts:
                self._emit(last=False)
            self._hold(parts)

    def _hold(self, parts: tuple[AnyPart, ...]) -> None:
        if not self._id:
            self._id = self._new_artifact_id()
        self._parts += parts

    def pause(self) -> None:
        """Sends the held chunk, because the generator waits for something of unknown duration."""
        if self._parts:
            self._emit(last=False, now=True)

    def flush(self) -> None:
        """Sends the held chunk before another event."""
        if self._parts:
            self._emit(last=False)

    def end(self) -> None:
        """Sends the held chunk as the last one of its artifact."""
        if self._id:
            self._parts = self._parts or (Text(""),)
            self._emit(last=True)

    def _emit(self, *, last: bool, now: bool = False) -> None:
        parts, self._parts = self._parts, ()
        append, self._append = self._append, True
        artifact = Artifact(artifact_id=self._id, parts=parts)
        self._put(ArtifactChunk(artifact=artifact, append=append, last=last), now=now)


class JoiningBuffer(ChunkBuffer):
    """Joins chunks for the time the skill asked for: `@agent.skill(join=0.05)`."""

    def __init__(self, put: Put, new_artifact_id: Callable[[], str], seconds: float) -> None:
        super().__init__(put, new_artifact_id)
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None

    def add(self, parts: tuple[AnyPart, ...]) -> None:
        """Adds the next chunk; a timer sends it."""
        if parts:
            self._hold(parts)
            if self._timer is None:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(self._seconds, self.flush)

    def pause(self) -> None:
        """Does nothing; the timer sends the chunks."""

    def _emit(self, *, last: bool, now: bool = False) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._parts = tuple(_merge_texts(self._parts))
        super()._emit(last=last, now=now)


def _merge_texts(parts: tuple[AnyPart, ...]) -> Iterator[AnyPart]:
    texts: list[str] = []
    for part in parts:
        if type(part) is Text and not part.metadata:
            texts.append(part.text)
            continue
        if texts:
            yield Text("".join(texts))
            texts.clear()
        yield part
    if texts:
        yield Text("".join(texts))
