"""The file door: `/files/...` at the root of a server, on a real port."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from msgspec.structs import replace

from dragoman import Agent, Turn
from dragoman.core.errors import BadParams, ConfigError, PeerRefused, TooLarge, TooMany
from dragoman.core.model import Blob, Link
from dragoman.files import FileDoor
from dragoman.files.service import FilesService
from dragoman.net.http.granian_server import GranianServer, bind
from dragoman.observability.log import Log
from dragoman.server.agent_names import Naming, by_name, check_naming
from dragoman.server.app import App
from dragoman.server.engines import engines_for
from dragoman.server.serve import address, wind_down
from dragoman.settings import FileSettings, Settings
from waiting import until

TASK = "task-1"
PAGE = Blob(b"<script>alert(1)</script>", filename="page.html", media_type="text/html")


def agent(name: str = "Desk") -> Agent:
    desk = Agent(name, description="Works.")

    @desk.skill("echo", default=True)
    async def echo(turn: Turn) -> str:
        return turn.text

    return desk


def settings(folder: Path, **files: Any) -> Settings:
    known = Settings()
    server = replace(known.server, store=f"sqlite:///{folder}/tasks.db", allow_private=True)
    return replace(known, server=server, files=FileSettings(**files))


@asynccontextmanager
async def running(own: Settings, agents: Any = None) -> AsyncIterator[tuple[str, FileDoor]]:
    """A server and its door."""
    named = by_name(agents or agent())
    sock = bind("127.0.0.1", 0, limits=own.limits)
    url = address(sock)
    peers, pool = engines_for(named, own)
    app = App(named, peers, own, Log("error"), own.server.public_url or url, pool=pool)
    await app.start()
    listener = GranianServer(app.route, sock, own.limits, own.tls, app.server.trusts)
    listener.begin()
    try:
        yield url, app.service(FilesService).door
    finally:
        await wind_down(app, listener)
        sock.close()


async def test_a_file_is_downloaded_as_an_attachment_that_no_browser_shows(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as (url, door), httpx2.AsyncClient() as http:
        link = await door.offer(PAGE, task_id=TASK)
        assert link.url.startswith(f"{url}/files/")
        assert (link.filename, link.media_type) == ("page.html", "text/html")
        got = await http.get(link.url)
        assert (got.status_code, got.content) == (200, PAGE.content)
        assert got.headers["content-type"] == "text/html"
        assert got.headers["content-disposition"].startswith('attachment; filename="page.html"')
        assert got.headers["x-content-type-options"] == "nosniff"
        assert "sandbox" in got.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in got.headers["content-security-policy"]
        assert got.headers["cache-control"] == "private, no-store"
        head = await http.head(link.url)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == str(len(PAGE.content))


async def test_a_media_type_that_is_none_and_a_name_that_is_a_path_do_no_harm(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path)) as (_, door), httpx2.AsyncClient() as http:
        bad = Blob(b"x", filename="../../etc/p\r\nSet-Cookie: a=b", media_type="a\r\nb: c")
        got = await http.get((await door.offer(bad, task_id="../..")).url)
        assert got.status_code == 200
        assert got.headers["content-type"] == "application/octet-stream"
        assert "set-cookie" not in got.headers
        assert "/" not in got.headers["content-disposition"].partition("filename*")[0]
        (kept,) = door.stored.folder.glob("*/*")
        assert kept.parent.parent == tmp_path / "tasks.db.files"


async def test_no_forged_address_opens_a_file(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as (url, door), httpx2.AsyncClient() as http:
        mine = (await door.offer(PAGE, task_id=TASK)).url
        other = (await door.offer(Blob(b"other", filename="page.html"), task_id="task-2")).url
        where, query = mine.split("?")
        foreign = other.split("?")[1]
        later = query.replace("expires=", "expires=9")
        forged = [
            where,
            f"{where}?{foreign}",  # the signature of another file
            f"{where}?{later}",  # a later end
            f"{where}?{query[:-1]}{'0' if query[-1] != '0' else '1'}",
            f"{where}?{query}&{query}",
            f"{where}?expires=-1&signature=",
            f"{where}?expires=٣&signature=x",
            f"{where.replace('page.html', 'other.html')}?{query}",  # another name
            f"{url}/files/?{query}",
            f"{url}/files/..%2f..%2fdragoman.key/x?{query}",
            f"{url}/files/%2e%2e/tasks.db?{query}",
            f"{url}/files/../tasks.db?{query}",
            f"{url}/files",
            f"{url}/files/",
        ]
        for address_ in forged:
            got = await http.get(address_)
            assert got.status_code == 404, address_
            assert b"script" not in got.content
        assert (await http.post(mine)).status_code in (404, 405)
        assert (await http.get(mine)).status_code == 200


async def test_traversal_is_refused_even_if_it_were_signed(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as (url, door), httpx2.AsyncClient() as http:
        for bad in ("..", "../dragoman.key", f"{'0' * 32}-../x", "0" * 65, ""):
            assert await door.find(bad) is None
            signed = door.signer.sign(bad, "x", int(time.time()) + 60)
            # A client takes `..` out of a path, unless it is written like this.
            got = await http.get(f"{url}{signed.replace('..', '%2e%2e')}")
            assert got.status_code == 404, bad


@pytest.mark.slow  # takes two seconds
async def test_an_expired_address_is_gone_and_its_file_is_deleted(tmp_path: Path) -> None:
    async with running(settings(tmp_path, expires=2)) as (_, door), httpx2.AsyncClient() as http:
        link = await door.offer(PAGE, task_id=TASK)

        async def expired() -> bool:
            return (await http.get(link.url)).status_code == 410

        await until(expired)
        folder = tmp_path / "tasks.db.files"
        await until(lambda: not list(folder.iterdir()))


async def test_an_address_holds_after_a_restart_and_is_the_same(tmp_path: Path) -> None:
    public = replace(settings(tmp_path).server, public_url="http://127.0.0.1:1")
    own = replace(settings(tmp_path), server=public)
    async with running(own) as (_, door):
        before = (await door.offer(PAGE, task_id=TASK)).url
    async with running(own) as (url, door), httpx2.AsyncClient() as http:
        assert (await door.offer(PAGE, task_id=TASK)).url == before
        parts = urlsplit(before)
        got = await http.get(f"{url}{parts.path}?{parts.query}")
        assert got.content == PAGE.content


async def test_ranges_are_served_one_at_a_time(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as (_, door), httpx2.AsyncClient() as http:
        link = await door.offer(Blob(b"0123456789"), task_id=TASK)

        async def get(text: str) -> tuple[int, bytes, str]:
            got = await http.get(link.url, headers={"range": text})
            return got.status_code, got.content, got.headers.get("content-range", "")

        assert await get("bytes=2-4") == (206, b"234", "bytes 2-4/10")
        assert await get("bytes=7-") == (206, b"789", "bytes 7-9/10")
        assert await get("bytes=-3") == (206, b"789", "bytes 7-9/10")
        assert await get("bytes=5-99999") == (206, b"56789", "bytes 5-9/10")
        assert await get("bytes=10-") == (416, b"", "bytes */10")
        assert await get("bytes=-0") == (416, b"", "bytes */10")
        for ignored in ("bytes=" + ",".join("0-1" for _ in range(500)), "bytes=4-2", "lines=1-2"):
            assert (await get(ignored))[:2] == (200, b"0123456789")


async def test_no_more_downloads_at_once_than_there_may_be(tmp_path: Path) -> None:
    async with running(settings(tmp_path, downloads=2)) as (url, door):
        link = await door.offer(Blob(os.urandom(8 << 20)), task_id=TASK)
        parts = urlsplit(link.url)
        ask = f"GET {parts.path}?{parts.query} HTTP/1.1\r\nhost: {parts.netloc}\r\n\r\n".encode()
        slow = []
        for _ in range(2):  # they read nothing of it
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=1024)
            writer.write(ask)
            await reader.readline()
            slow.append(writer)
        async with httpx2.AsyncClient() as http:
            refused = await http.head(link.url)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
            assert (await http.get(f"{url}/healthz")).status_code == 200
            for writer in slow:
                writer.transport.abort()

            async def free() -> bool:
                return (await http.head(link.url)).status_code == 200

            await until(free)


async def test_a_flood_of_forged_requests_touches_no_disk(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as (url, _), httpx2.AsyncClient() as http:
        address_ = f"{url}/files/{'0' * 32}-{'0' * 32}/x?expires=9999999999&signature=00"
        for verb in ("GET", "HEAD"):
            for _ in range(200):
                got = await http.request(verb, address_, headers={"range": "bytes=0-0"})
                assert got.status_code == 404
        assert not (tmp_path / "tasks.db.files").exists()


async def test_files_are_private_on_disk_and_whole_or_not_there(tmp_path: Path) -> None:
    async with running(settings(tmp_path, max_size=1000)) as (_, door):
        await door.offer(PAGE, task_id=TASK)
        with pytest.raises(TooLarge):
            await door.offer(Blob(b"x" * 1001), task_id="task-2")
        folder = tmp_path / "tasks.db.files"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (kept,) = folder.glob("*/*")
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600


async def test_all_files_together_have_a_size(tmp_path: Path) -> None:
    async with running(settings(tmp_path, max_total=2000)) as (_, door):
        await door.offer(Blob(b"a" * 1500), task_id=TASK)
        await door.offer(Blob(b"a" * 1500), task_id=TASK)  # the same file
        with pytest.raises(TooMany):
            await door.offer(Blob(b"b" * 1500), task_id=TASK)


async def test_files_of_a_store_in_memory_are_gone_with_the_server(tmp_path: Path) -> None:
    known = settings(tmp_path)
    own = replace(known, server=replace(known.server, store="memory:"))
    async with running(own) as (_, door):
        await door.offer(PAGE, task_id=TASK)
        folder = door.stored.folder
        assert folder.is_dir()
    assert not folder.exists()


async def test_files_are_at_the_hosts_of_agents_too_and_no_agent_is_in_their_way(
    tmp_path: Path,
) -> None:
    from dragoman.settings import HostedAgent

    known = settings(tmp_path)
    hosted = {"one": HostedAgent(file="x", host="one.test"), "files": HostedAgent(file="x")}
    own = replace(known, agents=hosted)
    agents = {"one": agent("One"), "files": agent("Files")}
    async with running(own, agents) as (url, door), httpx2.AsyncClient() as http:
        link = await door.offer(PAGE, task_id=TASK)
        got = await http.get(link.url, headers={"host": "one.test"})
        assert got.content == PAGE.content
        card = "/agents/files/.well-known/agent-card.json"
        assert (await http.get(f"{url}{card}")).json()["name"] == "Files"
        assert (await http.get(link.url)).content == PAGE.content


def test_files_is_nobodys_tenant() -> None:
    with pytest.raises(ConfigError, match="'files' cannot be a tenant"):
        check_naming("one", Naming(tenant="files"), {}, ())


async def test_a_mounted_server_has_its_files_below_its_mount_point(tmp_path: Path) -> None:
    from dragoman.app import create_app

    known = settings(tmp_path)
    own = replace(known, server=replace(known.server, public_url="http://test/inner"))
    app = create_app(agent(), own)
    await app.start()
    try:
        link = await app.service(FilesService).door.offer(PAGE, task_id=TASK)
        assert link.url.startswith("http://test/inner/files/")
        parts = urlsplit(link.url)
        sent: list[dict[str, Any]] = []

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        async def receive() -> dict[str, Any]:
            return {"type": "http.disconnect"}

        for path in (parts.path, parts.path.removeprefix("/inner")):
            scope = {
                "type": "http",
                "method": "GET",
                "path": path,
                "root_path": "/inner",
                "query_string": parts.query.encode(),
                "headers": [(b"host", b"test")],
                "scheme": "http",
            }
            sent.clear()
            await app(scope, receive, send)
            assert sent[0]["status"] == 200
            assert b"".join(each.get("body", b"") for each in sent) == PAGE.content
    finally:
        await app.stop()


async def test_a_link_is_downloaded_once_and_stays_the_same(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as (url, door):
        link = Link(f"{url}/healthz", filename="state.json", media_type="application/json")
        got = await door.fetch(link, task_id=TASK)
        assert (got.filename, got.media_type) == ("state.json", "application/json")
        gone = replace(link, url=f"{url}/nothing")
        with pytest.raises(PeerRefused, match="is not there"):
            await door.fetch(gone, task_id=TASK)
    async with running(settings(tmp_path)) as (_, door):  # the address is gone
        assert (await door.fetch(link, task_id=TASK)).content == got.content


async def test_links_are_downloaded_within_limits_and_never_from_private_addresses(
    tmp_path: Path,
) -> None:
    known = settings(tmp_path)
    strict = replace(known, server=replace(known.server, allow_private=False))
    async with running(strict) as (url, door):
        with pytest.raises(BadParams):
            await door.fetch(Link(f"{url}/healthz"), task_id=TASK)
    async with running(settings(tmp_path, max_size=1)) as (url, door):
        with pytest.raises(TooLarge):
            await door.fetch(Link(f"{url}/healthz"), task_id=TASK)
    async with running(settings(tmp_path, types=("image/*",))) as (url, door):
        with pytest.raises(BadParams, match="is of the type"):
            await door.fetch(Link(f"{url}/healthz"), task_id=TASK)
