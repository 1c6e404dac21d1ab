"""A hub that the processes of one user share, over a socket in a folder that only they can enter.

The first member holds the hub and serves it; the lock beside the socket says which process that is.
When that process ends, the next member that dials takes its place, with an empty log. A call is one
JSON object on a line, and so is its answer. A member has two connections, since a call must not
wait for a read that waits for news.
"""

from __future__ import annotations

import asyncio
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO, TypeVar

import msgspec
from msgspec import Struct

from dragoman.core.errors import (
    ConfigError,
    Conflict,
    DragomanError,
    PeerRefused,
    PeerUnreachable,
    TooLarge,
)

from .hub import FILE_SIZE, AnyHubCall, Enter, Hub, Read

LINE = 2 * FILE_SIZE
"""The longest line: a file in Base64, and what stands beside it."""
CONNECTIONS = 400
"""The connections that a hub takes, two for each member."""
FOUND = 10.0
"""The seconds in which a member either finds the hub or becomes the one that holds it."""
AGAIN = 0.05
_ERRORS: dict[str, type[DragomanError]] = {
    each.__name__: each for each in (Conflict, PeerRefused, TooLarge)
}

T = TypeVar("T")


class _Answer(Struct, omit_defaults=True):
    value: msgspec.Raw = msgspec.Raw(b"null")
    error: str = ""
    message: str = ""


_calls = msgspec.json.Decoder(AnyHubCall)
_answers = msgspec.json.Decoder(_Answer)


class RemoteHub:
    """A hub that another process holds, or another member in this one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._calls, self._reads = _Connection(), _Connection()

    async def open(self) -> None:
        """Connects. Raises `OSError` if nobody holds the hub."""
        await self._calls.open(self._path)
        await self._reads.open(self._path)

    async def ask(self, call: AnyHubCall, answer: type[T]) -> T:
        """Asks the hub. Raises what the hub raises, and `PeerUnreachable` if it is gone."""
        return await (self._reads if isinstance(call, Read) else self._calls).ask(call, answer)

    def leave(self, _: str) -> None:
        """Closes the connections, which is how a member leaves."""
        self._calls.close()
        self._reads.close()


class _Connection:
    """A connection on which one call follows the other."""

    def __init__(self) -> None:
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._turn = asyncio.Lock()

    async def open(self, path: Path) -> None:
        self._streams = await asyncio.open_unix_connection(path, limit=LINE)

    async def ask(self, call: AnyHubCall, answer: type[T]) -> T:
        async with self._turn:
            if self._streams is None:
                raise PeerUnreachable("The hub is gone")
            reader, writer = self._streams
            try:
                writer.write(msgspec.json.encode(call) + b"\n")
                await writer.drain()
                line = await reader.readuntil(b"\n")
            except (OSError, EOFError, asyncio.LimitOverrunError) as exc:
                self.close()
                raise PeerUnreachable("The hub is gone") from exc
            except BaseException:  # the answer of this call would be taken for that of the next
                self.close()
                raise
        found = _answers.decode(line)
        if found.error:
            raise _ERRORS.get(found.error, PeerRefused)(found.message)
        return msgspec.json.decode(found.value, type=answer)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class HubServer:
    """Serves a hub to the members in all processes."""

    def __init__(self, path: Path, lock: IO[bytes]) -> None:
        self._path, self._lock, self._hub = path, lock, Hub()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._closed = False

    async def start(self) -> None:
        """Opens the socket. The lock is ours, so one that lies there is left over."""
        with suppress(FileNotFoundError):
            self._path.unlink()
        self._server = await asyncio.start_unix_server(self._serve, self._path, limit=LINE)

    async def close(self) -> None:
        """Ends all connections, and leaves the hub to somebody else."""
        if self._server is not None:
            self._server.close()
            with suppress(FileNotFoundError):
                self._path.unlink()
            self._closed = True
            ending = [*self._connections]
            for connection in ending:
                connection.cancel()
            await asyncio.gather(*ending, return_exceptions=True)
            await self._server.wait_closed()
        self._lock.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        entered = ""
        task = asyncio.current_task()
        if task is None or len(self._connections) >= CONNECTIONS:
            writer.close()
            return
        self._connections.add(task)
        try:
            while line := await reader.readline():
                call = _calls.decode(line)
                try:
                    value = msgspec.json.encode(await self._hub.answer(call))
                    if isinstance(call, Enter):
                        entered = call.name
                    answer = _Answer(msgspec.Raw(value))
                except DragomanError as exc:
                    answer = _Answer(error=type(exc).__name__, message=exc.message)
                writer.write(msgspec.json.encode(answer) + b"\n")
                await writer.drain()
        except (OSError, ValueError, msgspec.MsgspecError):
            pass  # the member is gone, or speaks something else
        except asyncio.CancelledError:
            if not self._closed:  # asyncio 3.11 reports a connection that ends so as an error
                raise
        finally:
            self._connections.discard(task)
            if entered:
                self._hub.leave(entered)
            writer.close()


async def find_hub(name: str) -> tuple[RemoteHub, HubServer | None]:
    """Returns a connection to the hub of this name, and its server if we hold it now. Raises
    `PeerUnreachable` if there is neither in time."""
    path = _folder() / f"{name}.hub"
    with suppress(TimeoutError):
        async with asyncio.timeout(FOUND):
            while True:
                hub = RemoteHub(path)
                try:
                    await hub.open()
                except OSError:
                    hub.leave("")
                else:
                    return hub, None
                server = await _become_server(path)
                if server is not None:
                    try:
                        await hub.open()
                    except OSError:
                        await server.close()
                        raise
                    return hub, server
                await asyncio.sleep(AGAIN)  # another one is about to open its socket
    raise PeerUnreachable(f"The hub {name} does not answer")


async def _become_server(path: Path) -> HubServer | None:
    import fcntl

    lock = path.with_suffix(".lock").open("wb")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        return None
    server = HubServer(path, lock)
    await server.start()
    return server


def _folder() -> Path:
    """Returns a folder that only this user can enter."""
    if not hasattr(os, "geteuid"):
        raise ConfigError("This system cannot share a hub; set shared = false.")
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    folder = Path(base) / f"dragoman-{os.geteuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    about = folder.lstat()
    if about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) != 0o700:
        raise ConfigError(f"{folder} must be a folder that only you can enter (chmod 700).")
    if not stat.S_ISDIR(about.st_mode):
        raise ConfigError(f"{folder} is not a folder.")
    return folder
