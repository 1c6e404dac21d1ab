"""`dragoman serve` with something taken from it, so that the tests can show that they would notice.

    python tests/crash/without_guarantee.py WORDS serve FILE ...

WORDS is a list with commas:
    ack     a change is acknowledged before it is committed
    fence   whoever writes a task may do so, with or without its claim
    slow    every commit takes 50 ms longer (takes nothing away: widens the window)
    lease   a worker counts as dead after 1.5 s, and others look for the dead all the time
    flaky   every other run that is taken up finds the store out of reach
    keys    idempotency keys are neither declared nor heeded
    count   refused writes of those who lost their claim are counted in $CRASH_FENCED
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from dragoman.agent import Agent
from dragoman.cli import main
from dragoman.core.errors import Fenced, StoreUnavailable
from dragoman.core.extensions import IDEMPOTENCY
from dragoman.core.lifecycle import FINAL
from dragoman.engine import maintenance, send_message
from dragoman.store import rules
from dragoman.store.interface import Claim, Done, Draft, Record, Row, Write
from dragoman.store.local.worker_thread import Job, Outcome
from dragoman.store.sqlite import batch, migrations
from dragoman.store.sqlite.reader import SqliteReader
from dragoman.store.sqlite.store import SqliteStore
from dragoman.store.sqlite.writer import SqliteWriter

LEASE = "1.5"
SLOW = 0.05


def ack() -> None:
    def create(self: SqliteStore, draft: Draft, done: Done) -> None:
        asyncio.get_running_loop().call_soon(done, None)
        self._writes.submit(SqliteWriter.create, draft, _ignore)

    def append(self: SqliteStore, write: Write, done: Done) -> None:
        asyncio.get_running_loop().call_soon(done, None)
        self._writes.submit(SqliteWriter.append, write, _ignore)

    _put(SqliteStore, "create", create)
    _put(SqliteStore, "append", append)


def _ignore(error: Exception | None) -> None:
    pass


def fence() -> None:
    """The claim is not checked, the log simply grows, and the trigger behind it is gone."""
    own_append = SqliteWriter.append
    own_migrate = migrations.migrate

    def appended(row: Row, write: Write) -> Row:
        ended = write.state in FINAL
        return replace(
            row,
            state=write.state,
            last_seq=row.last_seq + len(write.entries),
            status_at=write.status_at,
            heard=write.heard,
            question=write.question,
            asking=write.asking,
            worker="" if ended else row.worker,
            token="" if ended else row.token,
            runnable=False if ended else row.runnable,
        )

    def append(self: SqliteWriter, write: Write) -> None:
        row = self._batch.row(write.claim.task_id)
        base = row.last_seq if row is not None else write.base
        entries = tuple(
            replace(entry, seq=base + n) for n, entry in enumerate(write.entries, start=1)
        )
        own_append(self, replace(write, base=base, entries=entries))

    def opened(connection: Any, path: str, steps: Any) -> None:
        own_migrate(connection, path, steps)
        connection.execute("DROP TRIGGER IF EXISTS task_one_end")  # the other server may have

    _put(rules, "append", appended)
    _put(SqliteWriter, "append", append)
    _put(batch, "INSERT_FROZEN", "INSERT OR REPLACE INTO frozen VALUES (?, ?)")
    _put(sys.modules[SqliteStore.__module__], "migrate", opened)


def slow() -> None:
    own = SqliteWriter.run

    def run(self: SqliteWriter, jobs: list[Job]) -> list[Outcome]:
        if any(job.apply is not SqliteWriter.data_version for job in jobs):
            time.sleep(SLOW)  # the slow disk
        return own(self, jobs)

    _put(SqliteWriter, "run", run)


def lease() -> None:
    os.environ.setdefault("DRAGOMAN_LIMITS_LEASE", LEASE)
    _put(maintenance, "random", SimpleNamespace(uniform=lambda low, high: 0.3))


def flaky() -> None:
    own, times = SqliteReader.records, itertools.count()

    def records(self: SqliteReader, claim: Claim) -> list[Record]:
        if next(times) % 2 == 0:
            raise StoreUnavailable
        return own(self, claim)

    _put(SqliteReader, "records", records)


def count() -> None:
    own = rules.append

    def appended(row: Row, write: Write) -> Row:
        try:
            return own(row, write)
        except Fenced:
            with open(os.environ["CRASH_FENCED"], "a") as file:
                file.write(f"{row.task_id} {write.claim.epoch} {row.epoch}\n")
            raise

    _put(rules, "append", appended)


def keys() -> None:
    own = Agent._extensions

    def extensions(self: Agent, also: Any) -> Any:
        return tuple(each for each in own(self, also) if each.uri != IDEMPOTENCY)

    _put(Agent, "_extensions", extensions)
    _put(send_message, "key_of", lambda op, ctx: None)


def _put(where: Any, name: str, what: Any) -> None:
    getattr(where, name)  # what is not there cannot be replaced
    setattr(where, name, what)


WORDS: dict[str, Callable[[], None]] = {
    "ack": ack,
    "fence": fence,
    "slow": slow,
    "lease": lease,
    "flaky": flaky,
    "count": count,
    "keys": keys,
}

if __name__ == "__main__":
    for word in sys.argv[1].split(","):
        WORDS[word]()
    main(sys.argv[2:])
