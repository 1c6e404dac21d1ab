"""Filters the events of a run that starts again, so that none is recorded twice (DESIGN §4.1).

An earlier attempt left a log and a journal of finished calls. A new attempt runs the same code from
the top. Its events up to the last recorded call are already in the log, so they are dropped. After
that call the log may contain more: messages, which are recognised by their stable ids, and pieces
of artifacts, which are sent again as a whole (append=False), so that every reader ends up with one
copy.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from dragoman.core.events import AnyEvent, ArtifactChunk, Noted, Stamped, StateChanged
from dragoman.core.lifecycle import FINAL, Fold
from dragoman.core.model import Artifact, Message


class Replay:
    """Filters the events of a run that started again."""

    def __init__(
        self, keys: list[str], since_last: Iterable[Stamped], history: Iterable[Message]
    ) -> None:
        self._last_key = keys[-1] if keys else ""
        self._swallowing = bool(keys)
        self._said = {message.message_id for message in history}
        self._regrown = {
            entry.event.artifact.artifact_id
            for entry in since_last
            if isinstance(entry.event, ArtifactChunk)
        }
        # The artifacts of this attempt, including dropped pieces, assembled by a fold.
        self._mine = Fold("", "")

    def passed(self, key: str, *, recorded: bool) -> None:
        """Notes a call of the run. A call that was not recorded means that the code took another
        path."""
        if key == self._last_key:
            self._swallowing = False
        elif self._swallowing and not recorded:
            self._swallowing = False
            self._regrown |= {artifact.artifact_id for artifact in self._mine.task().artifacts}

    def sift(self, event: AnyEvent) -> AnyEvent | None:
        """Returns the event, or the part of it that is not in the log; None if all of it is."""
        match event:
            case ArtifactChunk(artifact=artifact):
                self._mine.add(Stamped("", "", 0, 0, event))
                if self._swallowing:
                    return None
                if artifact.artifact_id in self._regrown:
                    self._regrown.discard(artifact.artifact_id)
                    return replace(event, artifact=self._whole(artifact), append=False)
            case StateChanged(state=state, message=message) if state not in FINAL:
                if self._swallowing or (message and message.message_id in self._said):
                    return None
            case Noted():
                return None if self._swallowing else event
        return event

    def _whole(self, artifact: Artifact) -> Artifact:
        return self._mine.artifact(artifact.artifact_id) or artifact
