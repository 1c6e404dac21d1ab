"""Answers of other frameworks, wherever they put them, are found: in Python and on the terminal."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cli.run import ENVIRON, dragoman
from client.auth.http_server import LittleHttp, Request, Response, as_json
from client.our_server import QUICK
from dragoman import Blob, Message, State, Task, connect
from dragoman.core.events import Stamped

pytestmark = pytest.mark.slow  # starts processes

ANSWER = "Oslo is fine"


def message(text: str, id: str = "a1", role: str = "agent", **more: Any) -> dict[str, Any]:
    parts = [{"kind": "text", "text": text}]
    return {"kind": "message", "messageId": id, "role": role, "parts": parts, **more}


def task(state: str, **members: Any) -> dict[str, Any]:
    said = members.pop("said", None)
    status: dict[str, Any] = {"state": state} | ({"message": said} if said else {})
    return {"kind": "task", "id": "t1", "contextId": "c1", "status": status, **members}


def status(state: str, said: dict[str, Any] | None = None) -> dict[str, Any]:
    told: dict[str, Any] = {"state": state} | ({"message": said} if said else {})
    final = state in ("completed", "failed")
    ids = {"taskId": "t1", "contextId": "c1"}
    return {"kind": "status-update", "status": told, "final": final, **ids}


ASKED = message("Is it fine?", "u1", "user")
IN_STATUS = task("completed", said=message(ANSWER), history=[ASKED])
"""AG2."""
IN_HISTORY = task("completed", history=[ASKED, message("Let me see", "a0"), message(ANSWER)])
"""Microsoft agent-framework's default executor."""


def stranger(answer: dict[str, Any], *events: dict[str, Any]) -> LittleHttp:
    """An agent of 0.3 that answers a send with the task, and a stream with these events."""

    def respond(request: Request) -> Response:
        if request.method == "GET":
            return as_json(card(request.base, streaming=bool(events)))
        asked = msgspec.json.decode(request.body)
        told = {"jsonrpc": "2.0", "id": asked["id"]}
        if asked["method"] != "message/stream":
            return as_json(told | {"result": answer})
        lines = (msgspec.json.encode(told | {"result": event}) for event in events)
        body = b"".join(b"data: " + line + b"\n\n" for line in lines)
        return Response(200, body, {"content-type": "text/event-stream"})

    return LittleHttp(respond)


def card(base: str, *, streaming: bool) -> dict[str, Any]:
    return {
        "name": "Stranger",
        "description": "Speaks as it likes",
        "version": "1",
        "url": f"{base}/",
        "protocolVersion": "0.3.0",
        "capabilities": {"streaming": streaming},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [],
    }


async def said(agent: LittleHttp) -> Task | Message:
    async with connect(agent.url, limits=QUICK) as found:
        return await found.send("Is it fine?")


async def streamed(agent: LittleHttp) -> tuple[Task, list[Stamped | Message]]:
    async with connect(agent.url, limits=QUICK) as found:
        events = found.stream("Is it fine?")
        told = [event async for event in events]
        return await events.result(), told


@pytest.mark.parametrize("answer", [IN_STATUS, IN_HISTORY], ids=["status", "history"])
async def test_the_text_of_a_task_without_artifacts_is_what_the_agent_said_last(
    answer: dict[str, Any],
) -> None:
    async with stranger(answer) as agent:
        assert (await said(agent)).text == ANSWER


@pytest.mark.parametrize("answer", [IN_STATUS, IN_HISTORY], ids=["status", "history"])
@pytest.mark.parametrize("streaming", [False, True])
async def test_the_terminal_shows_an_answer_that_is_no_artifact(
    answer: dict[str, Any], streaming: bool, tmp_path: Path
) -> None:
    ending = answer["status"].get("message")
    events = (
        task("submitted", history=[ASKED]),
        status("working", None if ending else message(ANSWER)),
        status("completed", ending),
    )
    async with stranger(answer, *(events if streaming else ())) as agent:
        sent = await asyncio.to_thread(dragoman, "send", agent.url, "hi", cwd=tmp_path)
        grown = await asyncio.to_thread(dragoman, "send", agent.url, "x", "--stream", cwd=tmp_path)
        chat = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "dragoman", "chat", agent.url),
            env=ENVIRON,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        talked, _ = await chat.communicate(b"hi\n")
    assert (sent.stdout, sent.returncode) == (f"{ANSWER}\n", 0), sent.stderr
    before = "Let me see\n" if answer is IN_HISTORY and not streaming else ""
    assert (grown.stdout, grown.returncode) == (f"{before}{ANSWER}\n", 0), grown.stderr
    assert talked.decode() == f"{ANSWER}\n"


async def test_a_skill_that_answers_in_a_message_can_be_called() -> None:
    async with stranger(IN_STATUS) as agent, connect(agent.url, limits=QUICK) as found:
        assert await found.call("any") == ANSWER


async def test_a_file_in_an_answering_message_is_saved(tmp_path: Path) -> None:
    file = {"kind": "file", "file": {"name": "plan.txt", "bytes": "aGVsbG8="}}
    answer = task("completed", said=message(ANSWER) | {"parts": [file]})
    async with stranger(answer) as agent, connect(agent.url, limits=QUICK) as found:
        task_ = await found.send("hi")
        (path,) = await found.save(task_, tmp_path)
        assert (path.name, path.read_bytes()) == ("plan.txt", b"hello")
        args = ("send", agent.url, "hi", "--save", "out")
        done = await asyncio.to_thread(dragoman, *args, cwd=tmp_path)
    assert done.returncode == 0
    assert (tmp_path / "out" / "plan.txt").read_bytes() == b"hello"


@pytest.mark.parametrize("control", ["\u202e", "\u2066", "\u200f", "\u061c"])
async def test_a_name_that_is_read_backwards_is_saved_without_that(
    tmp_path: Path, control: str
) -> None:
    """A user sees `invoiceexe.pdf`, and opens a program."""
    file = {"kind": "file", "file": {"name": f"invoice{control}fdp.exe", "bytes": "aGVsbG8="}}
    answer = task("completed", said=message(ANSWER) | {"parts": [file]})
    async with stranger(answer) as agent, connect(agent.url, limits=QUICK) as found:
        (path,) = await found.save(await found.send("hi"), tmp_path)
    assert path.name == "invoicefdp.exe"


# Messages inside the stream of a task (agno), where A2A has status updates.


async def test_every_message_inside_a_stream_is_kept_and_pieces_of_one_are_joined(
    caplog: pytest.LogCaptureFixture,
) -> None:
    events = (
        status("working"),
        message("Hm, Norway.", "thought"),
        message("Oslo ", taskId="t1", contextId="c1"),
        message("is ", taskId="t1", contextId="c1"),
        message("fine", taskId="t1", contextId="c1"),
        status("completed"),
    )
    with caplog.at_level(logging.WARNING, "dragoman.client"):
        async with stranger(IN_STATUS, *events) as agent:
            result, told = await streamed(agent)
    assert isinstance(result, Task)
    assert (result.text, result.state) == (ANSWER, State.COMPLETED)
    assert [each.text for each in result.history[-2:]] == ["Hm, Norway.", ANSWER]
    assert all(isinstance(each, Stamped) for each in told)
    (warning,) = caplog.messages
    assert "message" in warning


async def test_the_terminal_shows_messages_inside_a_stream_and_warns(tmp_path: Path) -> None:
    events = (status("working"), message("Oslo "), message("is fine"), status("completed"))
    async with stranger(IN_STATUS, *events) as agent:
        done = await asyncio.to_thread(dragoman, "send", agent.url, "hi", cwd=tmp_path)
    assert (done.stdout, done.returncode) == (f"{ANSWER}\n", 0), done.stderr
    assert "message" in done.stderr


@pytest.mark.parametrize("ending", ["status", "artifact", "message"])
async def test_a_growing_result_has_every_message_inside_the_task(
    ending: str, tmp_path: Path
) -> None:
    last = {
        "status": [status("completed", message(ANSWER))],
        "artifact": [
            {
                "kind": "artifact-update",
                "taskId": "t1",
                "contextId": "c1",
                "artifact": {"artifactId": "x", "parts": [{"kind": "text", "text": ANSWER}]},
            },
            status("completed", message("Bye", "a9")),
        ],
        "message": [message(ANSWER)],
    }[ending]
    events = (
        task("submitted", history=[ASKED]),
        status("working", message("Let me see", "a2")),
        message("Hm, ", "a3"),
        message("Norway", "a3"),
        status("working", message("It is Oslo", "a4")),
        *last,
    )
    async with stranger(IN_STATUS, *events) as agent:
        grown = await asyncio.to_thread(dragoman, "send", agent.url, "x", "--stream", cwd=tmp_path)
        plain = await asyncio.to_thread(dragoman, "send", agent.url, "x", cwd=tmp_path)
    said = ["Let me see", "Hm, Norway", "It is Oslo", ANSWER]
    if ending == "artifact":
        said.append("Bye")
    assert (grown.stdout.splitlines(), grown.returncode) == (said, 0), grown.stderr
    assert (plain.stdout, plain.returncode) == (f"{ANSWER}\n", 0), plain.stderr


async def test_a_message_that_ends_the_stream_of_a_task_is_the_reply() -> None:
    """What SDKs make of an executor that opens a task and then answers directly."""
    events = (task("submitted", history=[ASKED]), message("Oslo "), message("is fine"))
    async with stranger(IN_STATUS, *events) as agent:
        result, told = await streamed(agent)
    assert isinstance(told[-1], Message)
    assert told[-1].text == result.text == ANSWER
    assert (result.id, result.answer) == ("", told[-1])


async def test_a_file_between_pieces_of_text_stays_between_them() -> None:
    file = {"kind": "file", "file": {"name": "x", "bytes": "eA=="}}
    events = (
        status("working"),
        message("a"),
        message("b") | {"parts": [{"kind": "text", "text": "b"}, file]},
        message("c"),
        status("completed"),
    )
    async with stranger(IN_STATUS, *events) as agent:
        result, _ = await streamed(agent)
    assert isinstance(result, Task)
    assert result.answer is not None
    first, middle, last = result.answer.parts
    assert isinstance(middle, Blob)
    assert (first.text, last.text) == ("ab", "c")  # type: ignore[union-attr]
