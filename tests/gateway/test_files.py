"""Files through a gateway: by value or by reference, whichever the other side takes."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cli.run import serving
from dragoman import Agent, Task, Turn, connect
from dragoman.app import App, create_app
from dragoman.core.errors import BadParams, ConfigError
from dragoman.core.events import ArtifactChunk, Stamped
from dragoman.core.model import AnyPart, Artifact, Blob, File, Link, State, Text
from dragoman.core.operations import SendMessage
from dragoman.core.session import Call, Signal, Update
from dragoman.dialects import DIALECTS
from dragoman.dialects.losses import FileForms, file_forms
from dragoman.files import FileDoor
from dragoman.files.service import FilesService
from dragoman.net.http.granian_server import GranianServer, bind
from dragoman.observability.log import Log
from dragoman.server.agent_names import by_name
from dragoman.server.engines import engines_for
from dragoman.server.serve import address, wind_down
from dragoman.settings import FileSettings, HostedAgent, Limits
from gateway.behind import gateway, section, settings
from ports import own_port

PHOTO = Blob(b"\x89PNG" + bytes(500), filename="photo.png", media_type="image/png")
LARGE = Blob(os.urandom(2 << 20), filename="large.bin", media_type="application/x-large")


class Behind:
    """An agent behind a gateway, and what it got."""

    def __init__(self) -> None:
        self.got: list[File] = []
        self.gives: list[AnyPart] = [PHOTO]
        self.url = ""
        self.door: FileDoor | None = None
        self.agent = Agent("Worker", description="Works with files.")

        @self.agent.skill("give", default=True)
        async def give(turn: Turn) -> None:
            self.got += turn.files
            await turn.artifact(*self.gives, name="made")

        @self.agent.skill("ask")
        async def ask(turn: Turn) -> str:
            answer = await turn.ask("Which file?")
            self.got += [part for part in answer.message.parts if isinstance(part, Blob | Link)]
            return "thanks"


@asynccontextmanager
async def behind(folder: Path, grpc_port: int = 0) -> AsyncIterator[Behind]:
    found = Behind()
    limits = Limits(body_size=8 << 20)
    own = settings(folder, name="worker", grpc_port=grpc_port, limits=limits)
    named = by_name(found.agent)
    sock = bind("127.0.0.1", 0, limits=own.limits)
    found.url = address(sock)
    peers, pool = engines_for(named, own)
    app = App(named, peers, own, Log("error"), found.url, pool=pool)
    await app.start()
    listener = GranianServer(app.route, sock, own.limits, own.tls, app.server.trusts)
    listener.begin()
    found.door = app.service(FilesService).door
    try:
        yield found
    finally:
        await wind_down(app, listener)
        sock.close()


@asynccontextmanager
async def through(
    tmp_path: Path, dialect: str = "a2a-1.0", about: dict[str, Any] | None = None, **more: Any
) -> AsyncIterator[tuple[Behind, str]]:
    """An agent, and the address of a gateway in front of it. `more` is of `[agents.NAME]`."""
    grpc_port = own_port() if "grpc" in dialect else 0
    own = settings(tmp_path, limits=Limits(body_size=8 << 20), **(about or {}))
    async with behind(tmp_path, grpc_port) as found:
        said = {**section(tmp_path, found.url, dialect, grpc_port), **more}
        async with gateway({"worker": said}, own) as front:
            yield found, front.url


async def sent(url: str, *parts: AnyPart) -> Task:
    async with connect(url, allow_private=True) as agent:
        done = await agent.send("look", *parts)
        assert isinstance(done, Task)
        assert done.state is State.COMPLETED, done.text
        return done


def made(task: Task) -> list[AnyPart]:
    return [part for artifact in task.artifacts for part in artifact.parts]


async def content(url: str, part: AnyPart) -> bytes:
    """What a caller of the gateway downloads."""
    async with connect(url, allow_private=True) as agent:
        return await agent.fetch(part)


@pytest.mark.parametrize(
    "dialect", ["a2a-1.0", "a2a-0.3-rest", "a2a-0.1", "iat", "iat-ws", "a2a-1.0-grpc"]
)
async def test_a_content_is_offered_to_an_agent_that_takes_references(
    tmp_path: Path, dialect: str
) -> None:
    async with through(tmp_path, dialect, files="reference") as (agent, url):
        await sent(url, PHOTO)
        (got,) = agent.got
        assert isinstance(got, Link)
        assert got.url.startswith(f"{url}/files/")
        assert (got.filename, got.media_type) == (PHOTO.filename, PHOTO.media_type)
        assert agent.door is not None
        assert (await agent.door.fetch(got, task_id="t")).content == PHOTO.content


@pytest.mark.parametrize(("dialect", "kind"), [("iat-ws", Link), ("a2a-1.0", Blob)])
async def test_a_content_too_large_for_the_messages_of_a_dialect_is_offered(
    tmp_path: Path, dialect: str, kind: type[File]
) -> None:
    async with through(tmp_path, dialect) as (agent, url):
        await sent(url, PHOTO, LARGE)
        small, large = agent.got
        assert small == PHOTO
        assert isinstance(large, kind)
        assert await content(url, large) == LARGE.content


async def test_the_settings_of_an_agent_say_from_which_size_on_files_are_references(
    tmp_path: Path,
) -> None:
    async with through(tmp_path, inline_size=600) as (agent, url):
        agent.gives = [Text("both"), PHOTO, replace(PHOTO, content=bytes(601))]
        done = await sent(url, PHOTO, PHOTO)
        assert [type(each) for each in agent.got] == [Blob, Link]  # together they are too large
        assert [type(each) for each in made(done)] == [Text, Blob, Link]


async def test_a_link_is_downloaded_for_an_agent_that_takes_contents(tmp_path: Path) -> None:
    async with through(tmp_path, files="value") as (agent, url):
        assert agent.door is not None
        link = await agent.door.offer(PHOTO, task_id="t")
        await sent(url, link)
        assert agent.got == [PHOTO]


async def test_a_link_that_cannot_be_downloaded_is_refused_with_the_reason(tmp_path: Path) -> None:
    async with through(tmp_path, files="value") as (agent, url):
        async with connect(url, allow_private=True) as client:
            with pytest.raises(BadParams, match=r"cannot be passed on.*not there"):
                await client.send("look", Link(f"{agent.url}/nothing"))
            assert not (await client.list()).tasks
        assert agent.got == []


async def test_a_caller_cannot_have_the_gateway_call_private_addresses(tmp_path: Path) -> None:
    server = replace(settings(tmp_path).server, allow_private=False)
    async with through(tmp_path, about={"server": server}, files="value") as (agent, url):
        assert agent.door is not None
        link = await agent.door.offer(PHOTO, task_id="t")
        async with connect(url, allow_private=True) as client:
            with pytest.raises(BadParams, match="cannot be passed on"):
                await client.send("look", link)
        assert agent.got == []


async def test_files_in_an_answer_to_a_question_are_converted_too(tmp_path: Path) -> None:
    async with through(tmp_path, files="reference") as (agent, url):
        async with connect(url, allow_private=True) as client:
            asked = await client.send("go", skill="ask")
            assert isinstance(asked, Task)
            done = await client.answer(asked, PHOTO)
            assert done.state is State.COMPLETED
        (got,) = agent.got
        assert isinstance(got, Link)
        assert await content(url, got) == PHOTO.content


async def test_results_are_offered_at_the_address_of_the_gateway(tmp_path: Path) -> None:
    async with through(tmp_path, result_files="reference") as (agent, url):
        assert agent.door is not None
        theirs = await agent.door.offer(LARGE, task_id="t")
        foreign = Link("https://example.com/a.pdf")
        agent.gives = [PHOTO, theirs, foreign]
        photo, large, other = made(await sent(url))
        assert isinstance(photo, Link)
        assert isinstance(large, Link)
        assert photo.url.startswith(f"{url}/files/")
        assert large.url.startswith(f"{url}/files/")
        assert other == foreign  # it is not the agent's
        assert await content(url, photo) == PHOTO.content
        assert await content(url, large) == LARGE.content


async def test_results_are_downloaded_for_callers_that_take_contents(tmp_path: Path) -> None:
    async with through(tmp_path, result_files="value") as (agent, url):
        assert agent.door is not None
        agent.gives = [await agent.door.offer(PHOTO, task_id="t")]
        assert made(await sent(url)) == [PHOTO]


async def test_a_result_that_cannot_be_downloaded_stays_a_link_and_the_task_says_so(
    tmp_path: Path,
) -> None:
    async with through(tmp_path, result_files="value") as (agent, url):
        gone = Link(f"{agent.url}/nothing")
        agent.gives = [gone]
        assert made(await sent(url)) == [gone]


def _without(kind: type[File]) -> Any:
    """The declared losses of a dialect that has no words for such files."""
    known = DIALECTS["a2a-1.0"].carried

    def kept(parts: tuple[AnyPart, ...]) -> tuple[AnyPart, ...]:
        return tuple(part for part in parts if not isinstance(part, kind))

    def carried(signal: Signal) -> Signal:
        signal = known(signal)
        if isinstance(signal, Call) and isinstance(signal.op, SendMessage):
            message = replace(signal.op.message, parts=kept(signal.op.message.parts))
            return replace(signal, op=replace(signal.op, message=message))
        if isinstance(signal, Update) and isinstance(signal.entry, Stamped):
            event = signal.entry.event
            if isinstance(event, ArtifactChunk):
                artifact: Artifact = event.artifact
                event = replace(event, artifact=replace(artifact, parts=kept(artifact.parts)))
                return replace(signal, entry=replace(signal.entry, event=event))
        return signal

    return carried


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch, request: Any) -> Iterator[type[File]]:
    """A2A 1.0 as if it had no words for files of one kind."""
    known = DIALECTS["a2a-1.0"]
    changed = replace(known, carried=_without(request.param))
    monkeypatch.setitem(DIALECTS, "a2a-1.0", changed)
    file_forms.cache_clear()
    yield request.param
    file_forms.cache_clear()


@pytest.mark.parametrize("limited", [Blob], indirect=True)
async def test_a_dialect_without_contents_gets_references_both_ways(
    tmp_path: Path, limited: type[File]
) -> None:
    assert file_forms("a2a-1.0") == (FileForms(by_value=False), FileForms(by_value=False))
    async with through(tmp_path) as (agent, url):
        done = await sent(url, PHOTO)
        (got,) = agent.got
        assert isinstance(got, Link)
        assert await content(url, got) == PHOTO.content
        (result,) = made(done)
        assert isinstance(result, Link)
        assert await content(url, result) == PHOTO.content


@pytest.mark.parametrize("limited", [Link], indirect=True)
async def test_a_dialect_without_addresses_gets_contents_both_ways(
    tmp_path: Path, limited: type[File]
) -> None:
    async with through(tmp_path) as (agent, url):
        assert agent.door is not None
        link = await agent.door.offer(PHOTO, task_id="t")
        agent.gives = [await agent.door.offer(PHOTO, task_id="another")]
        done = await sent(url, link)
        assert agent.got == [PHOTO]
        assert made(done) == [PHOTO]


def test_files_by_reference_need_the_address_of_the_server(tmp_path: Path) -> None:
    own = settings(tmp_path)
    hosted = {"worker": HostedAgent(url="http://127.0.0.1:1", files="reference")}
    with pytest.raises(ConfigError, match=r"\[agents.worker\].*public_url"):
        create_app(None, replace(own, agents=hosted))


async def test_a_message_without_files_touches_no_disk(tmp_path: Path) -> None:
    about = {"files": FileSettings(folder=str(tmp_path / "kept"))}
    async with through(tmp_path, about=about, files="reference") as (agent, url):
        agent.gives = [Text("done")]
        done = await sent(url)
        assert isinstance(done, Task)
        assert not (tmp_path / "kept").exists()


def _peak(pid: int) -> int:
    """The most memory that a process ever had, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.slow  # starts processes, and takes several seconds
async def test_a_file_of_ninety_megabytes_is_never_in_the_memory_of_the_gateway(
    tmp_path: Path,
) -> None:
    size = 90 << 20
    async with behind(tmp_path) as agent:
        assert agent.door is not None
        theirs = await agent.door.offer(Blob(os.urandom(size), filename="big"), task_id="t")
        (tmp_path / "dragoman.toml").write_text(
            '[server]\nstore = "sqlite:///tasks.db"\nallow_private = true\n'
            f'[agents.worker]\nurl = "{agent.url}"\nresult_files = "reference"\n'
        )
        with serving(cwd=tmp_path, command="gateway") as server:
            url, pid = server.url, server.process.pid
            agent.gives = [PHOTO, await agent.door.offer(PHOTO, task_id="t")]
            await sent(url)  # so that all code is loaded
            before = _peak(pid)
            agent.gives = [theirs]
            (link,) = made(await sent(url))
            assert isinstance(link, Link)
            assert link.url.startswith(f"{url}/files/")
            assert len(await content(url, link)) == size
            grown = _peak(pid) - before
            assert grown < size // 2, f"{grown >> 20} MiB for a file of {size >> 20} MiB"
