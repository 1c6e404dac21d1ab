"""`dragoman xiaoyi link` in a process of its own: it answers, is killed, and ends as it should."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cli.run import ENVIRON
from waiting import until
from xiaoyi.phone import AGENT, AK, SK, PhoneServer, phone_server, text_of

KEYS = {"DRAGOMAN_XIAOYI_AK": AK, "DRAGOMAN_XIAOYI_SK": SK}
KILLS = 20 if os.environ.get("DRAGOMAN_FULL") else 3
SOURCE = """
import asyncio
from pathlib import Path
from dragoman import Agent, Turn

agent = Agent("Phone agent", description="Answers phones.")

@agent.skill("talk")
async def talk(turn: Turn) -> None:
    await turn.artifact("Well, ", last=False)
    if not Path("go").exists():
        await asyncio.Event().wait()  # until it is killed
    await turn.artifact(turn.text, append=True)
"""


@asynccontextmanager
async def command(
    folder: Path, *flags: str, environ: dict[str, str] | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """The command, which is ended with the test."""
    (folder / "phone_agent.py").write_text(SOURCE)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dragoman", "xiaoyi", "link", "phone_agent.py"),
        *("--agent-id", AGENT, *flags),
        cwd=folder,
        env={**ENVIRON, **(KEYS if environ is None else environ)},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def told(phone: PhoneServer, task: str) -> bool:
    return any("artifact" in each for each in phone.results(task))


@pytest.mark.slow
async def test_a_killed_agent_goes_on_where_it_was_and_a_phone_sees_one_answer(
    tmp_path: Path,
) -> None:
    async with phone_server() as phone:
        for number in range(KILLS):
            task = f"tk-{number}"
            (tmp_path / "go").unlink(missing_ok=True)
            async with command(tmp_path, "--server", phone.url) as process:
                await phone.ask(f"number {number}", task, f"se-{number}")
                await until(lambda task=task: told(phone, task))
                process.send_signal(signal.SIGKILL)
                await process.wait()
            await until(lambda: not phone.links)
            phone.frames.clear()
            (tmp_path / "go").touch()
            async with command(tmp_path, "--server", phone.url):
                final = await phone.final(task)
                assert text_of(final) == f"Well, number {number}"
                # When a later one is answered, so would be an earlier one a second time.
                await phone.ask("after", f"after-{number}")
                await phone.final(f"after-{number}")
            await until(lambda: not phone.links)
            phone.frames.clear()
        assert [len(phone.finals(f"tk-{number}")) for number in range(KILLS)] == [1] * KILLS


@pytest.mark.slow
async def test_files_of_phones_are_kept_beside_the_store(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    file = {"name": "../a.txt", "bytes": base64.b64encode(b"hello").decode()}
    message = {"role": "user", "messageId": "ms-1", "parts": [{"kind": "file", "file": file}]}
    params = {"id": "tk-1", "sessionId": "se-1", "message": message}
    flags = ("--media-text", "100")
    async with phone_server() as phone, command(tmp_path, "--server", phone.url, *flags):
        await phone.say("message/stream", params=params)
        assert text_of(await phone.final("tk-1")) == "Well, hello"
    (kept,) = tmp_path.glob("dragoman.db.files/*/*.txt")  # noqa: ASYNC240  nothing else runs
    assert kept.read_text() == "hello"


@pytest.mark.slow
async def test_an_agent_that_is_killed_while_it_downloads_a_file_answers_nevertheless(
    tmp_path: Path,
) -> None:
    (tmp_path / "go").touch()
    (tmp_path / "dragoman.toml").write_text("[server]\nallow_private = true\n")
    asked: list[bytes] = []
    arrives = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe")
        if await within_its_life(reader, arrives):
            writer.write(b"llo")
        writer.close()

    async def within_its_life(reader: asyncio.StreamReader, event: asyncio.Event) -> bool:
        """Whether something happens before the agent closes its connection."""
        closed = asyncio.ensure_future(reader.read())
        happens = asyncio.ensure_future(event.wait())
        await asyncio.wait((closed, happens), return_when=asyncio.FIRST_COMPLETED)
        closed.cancel()
        happens.cancel()
        return event.is_set()

    host = await asyncio.start_server(answer, "127.0.0.1", 0)
    uri = f"http://127.0.0.1:{host.sockets[0].getsockname()[1]}/a.txt"
    message = {"role": "user", "messageId": "ms-1", "parts": [_file(uri)]}
    params = {"id": "tk-1", "sessionId": "se-1", "message": message}
    async with phone_server() as phone, host:
        flags = ("--server", phone.url, "--media-text", "100")
        async with command(tmp_path, *flags) as process:
            await phone.say("message/stream", params=params)
            await until(lambda: asked)
            await until(lambda: "working" in phone.states("tk-1"))
            process.kill()
            await process.wait()
        await until(lambda: not phone.links)
        arrives.set()
        async with command(tmp_path, *flags):
            assert text_of(await phone.final("tk-1")) == "Well, hello"
    assert len(asked) == 2


def _file(uri: str) -> dict[str, object]:
    return {"kind": "file", "file": {"name": "a.txt", "mimeType": "text/plain", "uri": uri}}


@pytest.mark.slow
async def test_it_stops_at_once_when_it_is_told_to(tmp_path: Path) -> None:
    async with phone_server() as phone, command(tmp_path, "--server", phone.url) as process:
        await phone.linked()
        process.send_signal(signal.SIGTERM)
        await process.wait()
        assert process.returncode == 0


@pytest.mark.slow
async def test_keys_come_from_files_and_a_refusal_is_a_line_and_an_exit_code(
    tmp_path: Path,
) -> None:
    (tmp_path / "ak").write_text(AK)
    (tmp_path / "sk").write_text("another")
    files = ("--access-key-file", "ak", "--secret-key-file", "sk")
    async with phone_server() as phone:
        flags = (*files, "--server", phone.url, "--store", "memory:")
        async with command(tmp_path, *flags, environ={}) as process:
            _, line = await process.communicate()
        assert process.returncode == 77
        assert b"does not accept the keys (401)" in line
        assert b"another" not in line


@pytest.mark.slow
async def test_without_keys_it_does_not_dial(tmp_path: Path) -> None:
    async with phone_server() as phone:
        async with command(tmp_path, "--server", phone.url, environ={}) as process:
            _, line = await process.communicate()
        assert process.returncode == 2
        assert b"DRAGOMAN_XIAOYI_AK" in line
        assert phone.handshakes == 0


@pytest.mark.slow
async def test_a_served_agent_has_its_link_beside_its_port(tmp_path: Path) -> None:
    async with phone_server() as phone:
        (tmp_path / "phone_agent.py").write_text(SOURCE)
        (tmp_path / "go").touch()
        (tmp_path / "dragoman.toml").write_text(
            '[agents.phone]\nfile = "phone_agent.py"\n'
            f'[agents.phone.xiaoyi]\nagent_id = "{AGENT}"\nservers = ["{phone.url}"]\n'
        )
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "dragoman", "serve", "--port", "0"),
            cwd=tmp_path,
            env={**ENVIRON, **KEYS, "PATH": os.environ["PATH"]},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            await phone.ask("hello", "tk-1")
            assert text_of(await phone.final("tk-1")) == "Well, hello"
            phone.refuse = 401
            await phone.links[0].close()
            await until(lambda: phone.handshakes == 2)
            assert process.returncode is None  # other services go on
        finally:
            process.terminate()
            out, _ = await process.communicate()
        assert SK.encode() not in out
        assert process.returncode == 0
