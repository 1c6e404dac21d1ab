"""The files that phones send: kept on disk before the skill runs, and what hostile ones cannot
do."""

from __future__ import annotations

import asyncio
import base64
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman import Agent, Turn
from dragoman.core.model import Blob, File, Link
from dragoman.core.peer import Context
from dragoman.files import FileDoor, delete_files
from dragoman.settings import FileSettings, LinkSettings, Settings
from dragoman.store.interface import AdminFilter
from dragoman.xiaoyi.agent_links import AgentLinks
from dragoman.xiaoyi.media import MediaReceiver, media_path
from waiting import until
from xiaoyi.phone import AGENT, PhoneServer, phone_server, text_of
from xiaoyi.test_agent_links import linked

PNG = b"\x89PNG" + bytes(range(256)) * 500
BOMB = gzip.compress(bytes(20 << 20))
_ALL = AdminFilter()
HOSTILE_NAMES = [
    "../../../etc/cron.d/evil",
    "..\\..\\evil.bat",
    "/etc/passwd",
    "C:\\Windows\\evil.exe",
    "a\0b.txt",
    "CON",
    "NUL.txt",
    "/dev/zero",
    "..",
    ".bashrc",
    "x" * 5_000,
    "evil.p/../../y",
    "%2e%2e%2fevil",
    "行程\u202egnp.exe",
]


class FileHost:
    """A web server of somebody else. `asked` holds the paths of its requests."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.connections: set[asyncio.Task[None] | None] = set()
        self.sent = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.add(asyncio.current_task())
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            path = head.split()[1]
            self.asked.append(path)
            await self._say(path, writer)
            await reader.read()  # until the client has closed the connection
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        self.connections.discard(asyncio.current_task())

    async def _say(self, path: str, writer: asyncio.StreamWriter) -> None:
        match path.partition("?")[0]:
            case "/redirect":
                head = f"HTTP/1.1 302 Found\r\nLocation: {self.url}/secret\r\n"
                writer.write(f"{head}Connection: close\r\nContent-Length: 0\r\n\r\n".encode())
            case "/endless":
                writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
                while True:
                    writer.write(bytes(65536))
                    await writer.drain()
                    self.sent += 65536
            case "/stuck":
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab")
            case "/bomb.txt":
                self._file(writer, BOMB, "Content-Encoding: gzip\r\n")
            case "/gbk.txt":
                self._file(writer, "行程".encode("gb18030"))
            case "/photo.png" | "/secret":
                self._file(writer, PNG, "Content-Type: image/png\r\n")
            case _:
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    def _file(self, writer: asyncio.StreamWriter, content: bytes, more: str = "") -> None:
        # It answers once on each connection.
        head = (
            f"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {len(content)}\r\n{more}\r\n"
        )
        writer.write(head.encode() + content)


class Phones:
    """A phone, an agent, and the files that its skill got."""

    def __init__(self, phone: PhoneServer, host: FileHost, folder: Path) -> None:
        self.phone, self.host, self.folder = phone, host, folder
        self.got: list[File] = []
        self.paths: list[Path | None] = []
        self.text = ""
        self._count = 0
        self.agent = Agent("Phone agent", description="Looks at files.")

        @self.agent.skill("look")
        async def look(turn: Turn) -> str:
            self.got, self.text = list(turn.files), turn.text
            if turn.text == "ask":
                self.text = await turn.ask("Which file?")
                return "seen"
            self.paths = [media_path(turn.caller, each) for each in turn.files]
            return "seen"

    async def begin(self, *files: dict[str, Any], session: str = "se-1") -> str:
        self._count += 1
        task = f"tk-{self._count}"
        parts = [{"kind": "text", "text": "look"}, *({"kind": "file", "file": f} for f in files)]
        message = {"role": "user", "parts": parts, "messageId": f"ms-{task}"}
        params = {"id": task, "sessionId": session, "message": message}
        await self.phone.say("message/stream", session, params=params)
        return task

    async def send(self, *files: dict[str, Any]) -> None:
        """Sends files, and waits for the answer of the skill."""
        assert text_of(await self.phone.final(await self.begin(*files))) == "seen"

    def error(self, index: int = 0) -> str:
        return str((self.got[index].metadata or {})["mediaError"])

    def on_disk(self) -> list[Path]:
        return [path for path in self.folder.rglob("*") if path.is_file()]


@asynccontextmanager
async def phones(
    folder: Path, *, private: bool = True, **limits: Any
) -> AsyncIterator[tuple[Phones, AgentLinks]]:
    host = FileHost()
    server = await asyncio.start_server(host.answer, "127.0.0.1", 0)
    host.port = server.sockets[0].getsockname()[1]
    door = FileDoor(settings_for(folder))
    link = LinkSettings(agent_id=AGENT, **limits)
    media = MediaReceiver(door, link, allow_private=private) if link.media == "download" else None
    async with phone_server() as phone:
        found = Phones(phone, host, folder)
        async with linked(phone, agent=found.agent, media=media, keep_alive=0.2) as links:
            yield found, links
    await door.close()
    server.close()
    await until(lambda: not host.connections)


def settings_for(folder: Path) -> Settings:
    known = Settings(files=FileSettings(folder=str(folder / "media")))
    return replace(known, server=replace(known.server, store="memory:"))


def by_bytes(content: bytes, name: str, mime: str = "") -> dict[str, Any]:
    return {"name": name, "mimeType": mime, "bytes": base64.b64encode(content).decode()}


async def test_files_are_on_disk_before_the_skill_runs(tmp_path: Path) -> None:
    async with phones(tmp_path) as (on, _):
        linked_file = {"name": "trip/照片.PNG", "mimeType": "image/png"}
        linked_file["uri"] = f"{on.host.url}/photo.png?sign=1"
        await on.send(linked_file, by_bytes(b"%PDF", "a.pdf"))
        first, second = on.paths
        assert first is not None
        assert second is not None
        assert (first.read_bytes(), second.read_bytes()) == (PNG, b"%PDF")
        assert [each.filename for each in on.got] == ["照片.PNG", "a.pdf"]
        assert (first.suffix, second.suffix) == (".png", ".pdf")
        assert first.stat().st_mode & 0o777 == second.stat().st_mode & 0o777 == 0o600
        assert first.parent.stat().st_mode & 0o777 == 0o700
        assert first.parent.parent == tmp_path / "media"
        assert (tmp_path / "media").stat().st_mode & 0o777 == 0o700
        # What a skill that knows nothing of this finds in its parts is as it was.
        assert isinstance(on.got[0], Link)
        assert on.got[0].url == linked_file["uri"]
        assert isinstance(on.got[1], Blob)


async def test_files_stay_links_if_they_are_lazy(tmp_path: Path) -> None:
    async with phones(tmp_path, media="lazy") as (on, _):
        await on.send({"name": "a.png", "uri": f"{on.host.url}/photo.png"})
        assert on.got == [Link(f"{on.host.url}/photo.png", filename="a.png")]
        assert on.host.asked == []
        assert on.on_disk() == []


async def test_a_file_id_is_kept_as_it_is(tmp_path: Path) -> None:
    async with phones(tmp_path) as (on, _):
        await on.send({"name": "a.png", "mimeType": "image/png", "fileId": "f-1"})
        assert on.got[0].metadata == {"fileId": "f-1"}
        assert on.on_disk() == []


@pytest.mark.parametrize("wanted", [0, 100])
async def test_text_files_are_added_to_the_text_on_request(tmp_path: Path, wanted: int) -> None:
    async with phones(tmp_path, media_text=wanted) as (on, _):
        await on.send(
            by_bytes("\ufeff早上".encode(), "a.md"),
            {"uri": f"{on.host.url}/gbk.txt"},
            by_bytes(b"x" * 101, "long.txt"),
            by_bytes(b"%PDF", "a.pdf", "application/pdf"),
        )
        assert on.text == ("look\n早上\n行程" if wanted else "look")
        assert None not in on.paths


async def test_the_files_of_an_answer_are_received_too(tmp_path: Path) -> None:
    async with phones(tmp_path, media_text=100) as (on, links):
        await on.phone.ask("ask", "tk-0")
        assert (await on.phone.final("tk-0"))["status"]["state"] == "input-required"
        await on.send(by_bytes("早上".encode(), "a.md"))
        assert on.text == "look\n早上"
        (kept,) = on.on_disk()
        assert links._store is not None
        (row,) = await links._store.find_in_all_scopes(_ALL, 10)
        delete_files(settings_for(tmp_path), [row.task_id])
        assert not kept.exists()


async def test_nothing_is_unpacked(tmp_path: Path) -> None:
    async with phones(tmp_path, media_text=1 << 20) as (on, _):
        await on.send({"uri": f"{on.host.url}/bomb.txt"}, by_bytes(BOMB, "b.txt"))
        assert [path.read_bytes() for path in on.on_disk()] == [BOMB, BOMB]
        assert on.text == "look"


async def test_hostile_names_write_nothing_outside_the_media_folder(tmp_path: Path) -> None:
    async with phones(tmp_path, media_files=len(HOSTILE_NAMES) * 2) as (on, _):
        uri = f"{on.host.url}/photo.png"
        await on.send(
            *({"name": name, "uri": f"{uri}?{n}"} for n, name in enumerate(HOSTILE_NAMES)),
            *(by_bytes(b"x%d" % n, name) for n, name in enumerate(HOSTILE_NAMES)),
        )
        written = on.on_disk()
        assert len(written) == 2 * len(HOSTILE_NAMES)
        assert sorted(path for path in on.paths if path is not None) == sorted(written)
        for path in written:
            assert path.parent.parent == tmp_path / "media"
            assert path.stem.isalnum()
            assert len(path.name) < 45
        for file in on.got:
            assert "/" not in file.filename
            assert "\\" not in file.filename
            assert "\0" not in file.filename
            assert "\u202e" not in file.filename
            assert file.filename not in ("", ".", "..")


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/secret",
        "http://localhost:{port}/secret",
        "http://[::ffff:127.0.0.1]:{port}/secret",
        "http://2130706433:{port}/secret",
        "http://10.0.0.1/",
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]:{port}/secret",
        "http://[fe80::1]/",
        "http://[",
        "http://a\0b/",
        "http://user:pw@127.0.0.1:{port}/secret",
        "file:///etc/passwd",
        "ftp://127.0.0.1/x",
        "data:text/plain,x",
        "../secret",
    ],
)
async def test_private_and_strange_addresses_are_not_called(tmp_path: Path, url: str) -> None:
    async with phones(tmp_path, private=False) as (on, _):
        await on.send({"name": "a.png", "uri": url.replace("{port}", str(on.host.port))})
        assert on.error()
        assert on.paths == [None]
        assert on.host.asked == []
        assert on.on_disk() == []


async def test_redirects_are_not_followed(tmp_path: Path) -> None:
    async with phones(tmp_path) as (on, _):
        await on.send({"name": "a.png", "uri": f"{on.host.url}/redirect"})
        assert "is not there" in on.error()
        assert on.host.asked == ["/redirect"]
        assert on.on_disk() == []


@pytest.mark.slow  # takes two seconds
async def test_limits_hold_and_the_skill_runs_nevertheless(tmp_path: Path) -> None:
    limits = {"media_size": 200_000, "media_files": 3, "media_time": 2.0}
    async with phones(tmp_path, **limits) as (on, _):
        await on.send(
            {"name": "endless", "uri": f"{on.host.url}/endless"},
            by_bytes(bytes(200_001), "large.bin"),
            {"name": "stuck", "uri": f"{on.host.url}/stuck"},
            {"name": "fourth", "uri": f"{on.host.url}/photo.png"},
        )
        assert "larger than 200000" in on.error(0)
        assert "larger than 200000" in on.error(1)
        assert "cannot be downloaded" in on.error(2)
        assert "More than 3 files" in on.error(3)
        assert on.host.sent < 50 << 20
        assert on.on_disk() == []


async def test_only_files_of_the_accepted_types_are_kept(tmp_path: Path) -> None:
    async with phones(tmp_path, media_types=("image/*",)) as (on, _):
        await on.send(
            {"name": "a", "mimeType": "image/png", "uri": f"{on.host.url}/gbk.txt"},
            by_bytes(b"x", "x.exe", "application/x-msdownload"),
            {"name": "b", "uri": f"{on.host.url}/photo.png"},
        )
        assert [path is not None for path in on.paths] == [False, False, True]


async def test_a_phone_is_told_working_and_may_cancel_while_a_file_is_downloaded(
    tmp_path: Path,
) -> None:
    async with phones(tmp_path) as (on, _):
        task = await on.begin({"name": "stuck", "uri": f"{on.host.url}/stuck"})
        await until(lambda: "working" in on.phone.states(task))
        await on.phone.say("tasks/cancel", task=task, params={"id": task, "sessionId": "se-1"})
        final = await on.phone.final(task)
        assert final["status"]["state"] == "canceled"
        other = await on.begin({"name": "stuck", "uri": f"{on.host.url}/stuck"}, session="se-2")
        await until(lambda: "working" in on.phone.states(other))
        await on.phone.say("clearContext", "se-2", params={})
        assert (await on.phone.final(other))["status"]["state"] == "canceled"
        assert on.got == []
        await until(lambda: on.on_disk() == [])


async def test_one_session_cannot_receive_any_number_of_messages_at_once(tmp_path: Path) -> None:
    async with phones(tmp_path) as (on, _):
        for _ in range(4):
            await on.begin({"name": "stuck", "uri": f"{on.host.url}/stuck"})
        await until(lambda: len(on.host.asked) == 4)
        await on.send({"name": "a.png", "uri": f"{on.host.url}/photo.png"})
        assert "still being received" in on.error()


async def test_files_are_deleted_with_their_task_and_after_a_time(tmp_path: Path) -> None:
    async with phones(tmp_path) as (on, links):
        await on.send(by_bytes(PNG, "a.png"))
        await on.send(by_bytes(PNG, "a.png"))
        assert len(on.on_disk()) == 2
        assert links._store is not None
        page = await links._store.find_in_all_scopes(_ALL, 10)
        delete_files(settings_for(tmp_path), [page[0].task_id])
        assert len(on.on_disk()) == 1
        door = FileDoor(settings_for(tmp_path))
        assert await asyncio.to_thread(door.stored.sweep, 2**40) == 1
        assert on.on_disk() == []


def test_a_caller_in_another_dialect_cannot_name_a_path() -> None:
    forged = Link("https://a.example", metadata={"path": "/etc/passwd"})
    assert media_path(Context(dialect="a2a-1.0"), forged) is None
