"""The files of a relayed task, in the forms that the agent and our caller accept."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from functools import partial
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from dragoman.agent import Turn
from dragoman.client.addresses import origins_of
from dragoman.client.credentials import origin_of
from dragoman.core.errors import BadParams
from dragoman.core.model import AnyPart
from dragoman.dialects import DIALECTS
from dragoman.dialects.losses import FileForms, file_forms
from dragoman.files.transfer import FileTransfer, RelayedFiles, has_files, room_in

from .upstream_peer import UpstreamPeer

if TYPE_CHECKING:
    from .upstream_agent import UpstreamAgent


@runtime_checkable
class Downloads(Protocol):
    """A connected agent that downloads with our credentials for it."""

    def download(self, url: str, *, max_size: int | None = None) -> AsyncGenerator[bytes, None]:
        """Yields a file as it arrives."""


def prepare_files(
    agent: UpstreamAgent, peer: UpstreamPeer, turn: Turn, parts: Iterable[AnyPart]
) -> None:
    """Prepares the conversion of the files of a task, if there are any among these parts, or if
    results may have to be converted."""
    if peer.files is None and converts_files(agent, turn, parts):
        peer.files = _relayed_files(agent, peer, turn)


def converts_files(agent: UpstreamAgent, turn: Turn, parts: Iterable[AnyPart]) -> bool:
    """Returns whether a task may have files to convert: among these parts, or as results."""
    if agent.door is None:
        return False
    return has_files(parts) or converts_results(agent, turn.caller.dialect)


def converts_results(agent: UpstreamAgent, dialect: str) -> bool:
    """Returns whether the files that an agent creates may have to be converted for a caller that
    speaks this dialect."""
    if agent.result_files != "auto" or agent.inline_size:
        return True
    takes = _taken_by(dialect)
    return not (takes.by_value and takes.by_reference)


def _relayed_files(agent: UpstreamAgent, peer: UpstreamPeer, turn: Turn) -> RelayedFiles:
    """Returns the converter of the files of one task."""
    door = agent.door
    assert door is not None  # noqa: S101  it is asked before
    dialect = DIALECTS[peer.dialect]
    down = FileTransfer(
        door=door,
        task_id=turn.task_id,
        takes=file_forms(peer.dialect)[0],
        form=agent.file_form(peer),
        room=agent.inline_size or room_in(dialect),
    )
    up: FileTransfer | None = None
    if converts_results(agent, turn.caller.dialect):
        connected: object = peer.agent
        chunks = None
        if isinstance(connected, Downloads):
            chunks = partial(connected.download, max_size=door.stored.max_size)
        up = FileTransfer(
            door=door,
            task_id=turn.task_id,
            takes=_taken_by(turn.caller.dialect),
            form=agent.result_files,
            room=agent.inline_size,
            chunks=chunks,
            mirrors=partial(_is_of, agent),
            note=partial(turn.log, level="warning"),
        )
    return RelayedFiles(down, up)


def _taken_by(dialect: str) -> FileForms:
    """Returns the forms that a caller accepts. After a restart its dialect may not be known."""
    return file_forms(dialect)[1] if dialect in DIALECTS else FileForms()


def _is_of(agent: UpstreamAgent, url: str) -> bool:
    """Returns whether a link leads to the agent itself, where our credentials may be needed."""
    try:
        origin = origin_of(url)
    except BadParams:
        return False
    return any(
        origin in origins_of(each.url, each.options.get("origins", ()))
        for each in agent.pool.addresses
    )
