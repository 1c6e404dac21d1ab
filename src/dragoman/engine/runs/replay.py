"""Running again: what an earlier attempt already said must not be said twice (DESIGN §4.1).

An earlier attempt left a log and records of finished calls. A new attempt runs the same code from
the top. Up to the last recorded call everything it says is in the log already, so it is swallowed.
Behind that call the log may hold more: messages, which are recognised by their stable ids, and
pieces of artifacts, which are sent anew as a whole (append=False), so that a reader converges.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from dragoman.core.events import AnyEvent, ArtifactChunk, Noted, Stamped, StateChanged
from dragoman.core.lifecycle import FINAL, Fold
from dragoman.core.model import Artifact, Message


class Replay:
    """Stands between a run that started again and its log."""

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
        # The artifacts of this attempt, swallowed pieces included. A fold grows them for us.
        self._mine = Fold("", "")

    def passed(self, key: str, *, recorded: bool) -> None:
        """The run made a call. A call nobody recorded means the code went another way."""
        if key == self._last_key:
            self._swallowing = False
        elif self._swallowing and not recorded:
            self._swallowing = False
            self._regrown |= {artifact.artifact_id for artifact in self._mine.task().artifacts}

    def sift(self, event: AnyEvent) -> AnyEvent | None:
        """What of an event the log still lacks; None if it is there already."""
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
