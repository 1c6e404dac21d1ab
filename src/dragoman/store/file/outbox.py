"""Webhooks of a file store: one small JSON file for each task that has any, replaced as a whole.

The log says what is due (see `post`), so only what became of it is written here, and nothing has to
be written when an event happens.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from .. import outbox
from ..memory.ledger import Ledger
from ..outbox import Mail
from ..private_files import make_folder
from ..worker_thread import WorkerThread
from .damage import Quarantine
from .format import file_name
from .writer import FileWriter

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Mail]).decode


class FileOutbox:
    """Keeps the mail of a ledger on the disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, task_id: str) -> Path:
        """The file with the hooks of a task."""
        return (self._folder / file_name(task_id)).with_suffix(".json")

    def recover(self, ledger: Ledger, damaged: Quarantine) -> None:
        """Reads all files. What was being delivered when the process ended is due again."""
        make_folder(self._folder)
        for spare in self._folder.glob("*.new"):
            spare.unlink()
        now = ledger.clock()
        for path in self._folder.glob("*.json"):
            if path.stem in damaged.names:
                damaged.put(path, "its task is damaged")
                continue
            try:
                mails = _decode(path.read_bytes())
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                damaged.put(path, error)
                continue
            kept = [mail for mail in mails if mail.hook.task_id in ledger]
            if not kept:
                path.unlink()  # its task was never acknowledged, or went
            for mail in kept:
                row = ledger.row_of(mail.hook.task_id)
                # The scope too: an older version wrote no agent.
                mail = replace(mail, last=row.last_seq, scope=row.scope, taken=0)
                due_at = (mail.due_at or now) if outbox.head(mail) is not None else 0
                ledger.post.keep(replace(mail, due_at=due_at))

    async def save(
        self, lane: WorkerThread[FileWriter], task_id: str, mails: Iterable[Mail]
    ) -> None:
        """Writes what is to be known of a task's hooks; returns when it is on the disk."""
        await lane.ask(FileWriter.replace, (self.path(task_id), content(mails)))


def content(mails: Iterable[Mail]) -> bytes:
    """The file for some hooks of one task; empty if there are none."""
    # A line for each hook reads better than one for all.
    lines = [_encode(mail) for mail in mails]
    return b"[" + b",\n ".join(lines) + b"]\n" if lines else b""
