"""The connections of one process to PostgreSQL: a bounded number, opened again when they are lost.

Theory. A statement fails in one of three ways. The database refuses it: the error is the caller's.
The database could not do it now (a deadlock, a time-out): it is tried again. Or the connection is
lost: then nobody knows whether a commit that was under way has happened. A transaction therefore
leaves a mark before it commits, and after a loss we look whether the mark is there; a repeated
statement is one that may be repeated. While the database is away, callers wait for it with a pause
that grows, and only for as long as they said.

The id of a transaction cannot replace the mark: a crash may lose the id together with its work, and
the database then gives the same id to another transaction.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from uuid import uuid4

import asyncpg
from asyncpg.connect_utils import SessionAttribute

from dragoman.core.errors import ConfigError, Conflict, StoreError, StoreUnavailable
from dragoman.core.log import Logger
from dragoman.core.outage import Outage

from ..clock import Clock
from ..opening import UNREACHABLE, StoreUnreachable
from .address import PostgresAddress

log = Logger("store")

R = TypeVar("R")

OLDEST = 15
"""The oldest version of PostgreSQL that we use."""
CONNECT = 5.0
"""Seconds that one attempt to connect may take."""
STATEMENT = 30.0
"""Seconds after which the database ends a statement. A little later, we give the connection up."""
LOCK_WAIT = 10.0
"""Seconds for which a statement waits for a lock."""
PATIENCE = 4.0
"""Seconds for which work that a caller waits for waits for a database that is away. Callers are
answered within five."""
HANG = 10.0
"""Seconds after which such work counts as lost, because a database that is there does not answer.
It is more than the time above: one that is only slow must not get all the work again."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds between two attempts to connect."""

LOST = (
    OSError,  # also ConnectionError and TimeoutError
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.ReadOnlySQLTransactionError,  # the server became a standby
    asyncpg.TargetServerAttributeNotMatched,  # all servers are standbys, for now
)
"""The connection is lost, or leads to a server that cannot write."""
BUSY = (
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.LockNotAvailableError,
    asyncpg.QueryCanceledError,
)
"""The statement has changed nothing, and may succeed if it is repeated."""
UNSTORABLE = (asyncpg.CharacterNotInRepertoireError, asyncpg.UntranslatableCharacterError)
"""PostgreSQL cannot store a NUL character in a text."""
TROUBLE = (*LOST, *BUSY, *UNSTORABLE, asyncpg.InsufficientResourcesError)
"""What a job may fail with; the last one is a full disk, or no memory."""
_WRONG_ADDRESS = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.ClientConfigurationError,
    ValueError,
)

# A transaction that has changed nothing has no id, needs no mark, and costs no commit.
_MARK = """
INSERT INTO dragoman.commit_mark (connection, number, marked_at)
SELECT $1, $2, now() WHERE pg_current_xact_id_if_assigned() IS NOT NULL
ON CONFLICT (connection) DO UPDATE SET number = excluded.number, marked_at = excluded.marked_at"""
# This waits for a lost transaction that is still under way, because that one has locked the row.
_LATEST_MARK = """
INSERT INTO dragoman.commit_mark (connection, number, marked_at) VALUES ($1, 0, now())
ON CONFLICT (connection) DO UPDATE SET marked_at = excluded.marked_at RETURNING number"""
_DROP_MARKS = """
DELETE FROM dragoman.commit_mark WHERE connection IN (
  SELECT connection FROM dragoman.commit_mark WHERE marked_at < now() - interval '1 hour'
  FOR UPDATE SKIP LOCKED)"""
_DURABLE = ("on", "remote_apply")


class Database:
    """A connection whose statements name the schema `dragoman`, whatever it is called here."""

    def __init__(self, raw: asyncpg.Connection[Any], text: Callable[[str], str]) -> None:
        self.raw = raw
        self._text = text
        self.name = uuid4().hex
        """The name of the connection, which never recurs."""
        self.marks = 0
        """The number of marks that its transactions have left."""

    async def fetch(self, sql: str, *arguments: object) -> list[Any]:
        """Returns the rows that a statement finds."""
        return await self.raw.fetch(self._text(sql), *arguments)

    async def fetchrow(self, sql: str, *arguments: object, patience: float | None = None) -> Any:
        """Returns the first row, or None. `patience` is how many seconds we wait, unless that is
        as usual."""
        return await self.raw.fetchrow(self._text(sql), *arguments, timeout=patience)

    async def fetchval(self, sql: str, *arguments: object) -> Any:
        """Returns the first value of the first row, or None."""
        return await self.raw.fetchval(self._text(sql), *arguments)

    async def execute(self, sql: str, *arguments: object) -> int:
        """Executes a statement, and returns how many rows it has changed."""
        count = (await self.raw.execute(self._text(sql), *arguments)).rpartition(" ")[2]
        return int(count) if count.isdecimal() else 0


Job = Callable[[Database], Awaitable[R]]


async def drop_marks(db: Database) -> None:
    """Deletes the marks of connections that were not used for long."""
    await db.execute(_DROP_MARKS)


class DatabasePool:
    """A bounded number of connections. Every method may be used by several tasks at a time."""

    def __init__(self, address: PostgresAddress, clock: Clock) -> None:
        self._address = address
        self.outage = Outage(f"PostgreSQL at {address.place}", clock, log)
        self._places = asyncio.Semaphore(address.connections)
        self._idle: list[Database] = []
        self._texts: dict[str, str] = {}
        self._closed = False
        self.patience = PATIENCE
        """Seconds for which work waits for the database, unless it says otherwise."""

    async def open(self) -> None:
        """Connects for the first time. Raises `ConfigError` if this database cannot be used."""
        self._closed = False
        try:
            first = await self._connect()
        except LOST as error:
            raise StoreUnreachable(
                f"{self.outage.subject} {UNREACHABLE}: {_plain(error)}."
            ) from error
        except (*_WRONG_ADDRESS, asyncpg.PostgresError) as error:
            raise ConfigError(f"{self.outage.subject} refuses us: {_plain(error)}.") from error
        self._idle.append(first)
        try:
            await self._check(first)
        except BaseException:
            await self.close()
            raise

    async def _check(self, first: Database) -> None:
        if first.raw.get_server_version().major < OLDEST:
            raise ConfigError(f"PostgreSQL {OLDEST} or newer is needed.")
        mode = await first.fetchval("SHOW synchronous_commit")
        if mode not in _DURABLE:
            raise ConfigError(
                f"'synchronous_commit' is {mode!r} for this role, so a crash of the database would "
                "lose tasks that were acknowledged. Set it to 'on': "
                "ALTER ROLE ... SET synchronous_commit = on."
            )
        if await first.fetchval("SHOW fsync") != "on":
            log.warning("'fsync' of PostgreSQL is off, so a power cut may lose tasks")

    async def close(self) -> None:
        """Closes the connections. Callers that come later get `StoreUnavailable`."""
        self._closed = True
        while self._idle:
            await _close(self._idle.pop())

    @property
    def address(self) -> PostgresAddress:
        """Where the database is."""
        return self._address

    # Work.

    async def read(self, job: Job[R], patience: float | None = None) -> R:
        """Does a job that may be repeated: one that only reads, or whose second time changes
        nothing. Each of its statements is a transaction of its own."""
        patience = self.patience if patience is None else patience
        until = asyncio.get_running_loop().time() + patience
        while True:
            try:
                async with self.connection(until) as db, asyncio.timeout(max(HANG, patience)):
                    result = await job(db)
                self.outage.end(UNREACHABLE)
                return result
            except TROUBLE as error:
                await self._pause_after(error, until)

    async def write(self, job: Job[R], patience: float | None = None) -> R:
        """Does a job in one transaction. If the connection is lost during the commit, looks up
        whether it has happened. Work that no caller waits for may have more patience."""
        patience = self.patience if patience is None else patience
        until = asyncio.get_running_loop().time() + patience
        while True:
            marked = False
            try:
                async with self.connection(until) as db, asyncio.timeout(max(HANG, patience)):
                    await db.execute("BEGIN")
                    try:
                        result = await job(db)
                        db.marks += 1
                        marked = await db.execute(_MARK, db.name, db.marks) == 1
                    except BaseException:
                        if not db.raw.is_closed():
                            await db.execute("ROLLBACK")
                        raise
                    await db.execute("COMMIT")
                self.outage.end()
                return result
            except TROUBLE as error:
                if marked and isinstance(error, LOST) and await self._has_committed(db, until):
                    return result
                await self._pause_after(error, until)

    async def _has_committed(self, lost: Database, until: float) -> bool:
        """Returns whether the last transaction of a lost connection was committed. The server may
        still be at work on it, and then this waits for its end."""
        patience = until - asyncio.get_running_loop().time()
        latest = await self.read(lambda db: db.fetchval(_LATEST_MARK, lost.name), patience)
        return bool(latest == lost.marks)

    async def _pause_after(self, error: BaseException, until: float) -> None:
        """Waits before the next attempt. If there is none, raises what the caller is told."""
        check_argument(error)
        if isinstance(error, UNSTORABLE):
            raise unstorable() from error
        may_succeed = isinstance(error, (*LOST, *BUSY)) and not self._closed
        if not may_succeed or asyncio.get_running_loop().time() >= until:
            raise self.unavailable(error) from error
        await asyncio.sleep(FIRST_PAUSE * random.uniform(0.5, 1.5))

    def unavailable(self, error: BaseException) -> StoreUnavailable:
        """Notes an error that callers can do nothing about, and returns the error that they get."""
        if isinstance(error, LOST):
            self.outage.begin(UNREACHABLE, _plain(error))
        elif isinstance(error, asyncpg.InsufficientResourcesError):
            self.outage.begin("has no room left", _plain(error))
        else:
            log.error(f"{self.outage.subject} failed", error=repr(error))
        return StoreUnavailable()

    def refusal_of(self, error: asyncpg.PostgresError) -> Exception:
        """Returns the error that callers get for a change that the database refuses."""
        if isinstance(error, asyncpg.UniqueViolationError) and error.constraint_name == "task_pkey":
            return Conflict("A task with this id exists.")
        if isinstance(error, UNSTORABLE):
            return unstorable()
        if isinstance(error, asyncpg.InsufficientResourcesError):
            return self.unavailable(error)
        self.unavailable(error)
        failure = StoreError("The store refused this.")
        failure.__cause__ = error
        return failure

    # Connections.

    @asynccontextmanager
    async def connection(self, until: float) -> AsyncIterator[Database]:
        """Lends a connection. Waits until this loop time for a place and for the database."""
        if self._closed:
            raise StoreUnavailable("The store is closed.")
        if self._places.locked():
            try:
                async with asyncio.timeout_at(until):
                    await self._places.acquire()
            except TimeoutError as error:
                if not self.outage.lasts:
                    log.error("All connections to PostgreSQL are in use", place=self._address.place)
                raise StoreUnavailable from error
        else:
            await self._places.acquire()
        try:
            db = await self._open_one(until)
            try:
                yield db
            except BaseException as error:
                # After a cancellation or a time-out the answer may still be on its way.
                if isinstance(error, LOST) or not isinstance(error, Exception):
                    db.raw.terminate()
                raise
            finally:
                if self._closed or db.raw.is_closed() or db.raw.is_in_transaction():
                    await _close(db)
                else:
                    self._idle.append(db)
        finally:
            self._places.release()

    async def _open_one(self, until: float) -> Database:
        while self._idle:
            db = self._idle.pop()
            if not db.raw.is_closed():
                return db
        pause = FIRST_PAUSE
        loop = asyncio.get_running_loop()
        while True:
            try:
                return await self._connect()
            except (*LOST, asyncpg.PostgresError, ValueError) as error:
                self.outage.begin(UNREACHABLE, _plain(error))
                if self._closed or loop.time() + pause > until:
                    raise StoreUnavailable from error
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _connect(self) -> Database:
        address = self._address
        direct = address.statement_cache
        return Database(await connect(address, direct=direct), self.text)

    def text(self, sql: str) -> str:
        """Returns a statement with the name of the schema as it is here."""
        if self._address.schema == "dragoman":
            return sql
        found = self._texts.get(sql)
        if found is None:
            schema = self._address.schema
            found = self._texts[sql] = sql.replace("dragoman.", f"{schema}.").replace(
                "SCHEMA IF NOT EXISTS dragoman", f"SCHEMA IF NOT EXISTS {schema}"
            )
        return found


async def connect(address: PostgresAddress, *, direct: bool) -> asyncpg.Connection[Any]:
    """Connects to the server that takes writes. A pooler knows no settings of a session, so they
    are given only on a direct connection."""
    # A plan is made once and then kept. At that time the tables may be nearly empty, and a plan
    # that reads a whole table would be kept while the table grows.
    settings = {
        "application_name": "dragoman",
        "statement_timeout": str(int(STATEMENT * 1000)),
        "lock_timeout": str(int(LOCK_WAIT * 1000)),
        "idle_in_transaction_session_timeout": str(int(STATEMENT * 1000)),
        "tcp_keepalives_idle": "20",
        "enable_seqscan": "off",
        "enable_hashjoin": "off",
        "enable_mergejoin": "off",
        "jit": "off",
    }
    return await asyncpg.connect(
        address.dsn,
        timeout=CONNECT,
        command_timeout=STATEMENT + CONNECT,
        statement_cache_size=200 if direct else 0,
        max_cached_statement_lifetime=0,
        target_session_attrs=SessionAttribute.read_write if direct else None,
        server_settings=settings if direct else {},
    )


async def _close(db: Database) -> None:
    if db.raw.is_closed():
        return
    try:
        await db.raw.close(timeout=CONNECT)
    except Exception:  # it is of no use any more, and the server will notice
        db.raw.terminate()


def check_argument(error: BaseException) -> None:
    """Raises `StoreError` if the driver could not encode an argument. Its error is of the same kind
    as that of a closed connection."""
    if isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError):
        raise StoreError(f"This cannot be stored: {_plain(error)}.") from error


def unstorable() -> StoreError:
    """Returns the error for a text that PostgreSQL cannot store."""
    return StoreError("This cannot be stored: a name or an id contains a NUL character.")


def _plain(error: BaseException) -> str:
    return (str(error) or type(error).__name__).rstrip(".")
