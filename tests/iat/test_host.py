"""A host and sub-agents of ours, over a WebSocket and over HTTP/2."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman import State
from dragoman.core.events import ArtifactChunk, Ask, Asked, Note, Noted
from iat.team import WAYS, engine_host, story, team, worker


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("decision", "end"), [(True, "deleted"), (False, "kept")])
async def test_a_host_has_a_sub_agent_work(
    tmp_path: Path, way: str, decision: bool, end: str
) -> None:
    host = engine_host()
    async with team(tmp_path, host, {"worker": worker()}, way):
        seen, task = await story(host, "a.txt", decision)
        assert task.state is State.COMPLETED, task.status
        assert task.text == f"a.txt has 5 bytes, {end}"
        notes = [entry.event for entry in seen if isinstance(entry.event, Noted)]
        assert [note.kind for note in notes] == [Note.THOUGHT, Note.LOG, Note.USAGE]
        assert notes[0].body == {"text": "How large is it?"}
        assert notes[2].body == {"tokens": 7}
        chunks = [entry.event for entry in seen if isinstance(entry.event, ArtifactChunk)]
        assert len(chunks) >= 3
        (asked,) = [entry.event for entry in seen if isinstance(entry.event, Asked)]
        assert asked.kind is Ask.APPROVAL
        assert asked.body == {"agent": "worker", "details": {"path": "a.txt"}}
