"""Workspaces over the wire: told when both sides meet, narrowed by `execute`, widened by nobody."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from dragoman import Agent, State, Turn
from dragoman.core.model import Message, Role, Text
from dragoman.core.operations import GetTask, SendMessage
from dragoman.core.session import Call
from dragoman.dialects.iat.caller import IatCaller
from dragoman.dialects.iat.wire import Envelope, Kind, envelope_in, envelope_out
from dragoman.iat import Host
from dragoman.iat.host import OPERATOR
from dragoman.testing.served import served
from dragoman.workspace import Space
from iat.team import SECRET as SHARED
from iat.team import WAYS, joining, settings, story, team
from net.iat.sub_agent import SECRET, RunningAgent, open_server

OUT = "a secret outside"


def reader(root: Path, per: Any = "shared") -> Agent:
    """Reads what it is told to."""
    agent = Agent("reader", workspace=Space(root=str(root), per=per))

    @agent.skill("read", default=True)
    async def read(turn: Turn) -> str:
        if turn.text == "ask":
            return await turn.workspace.read_text(str(await turn.ask("Which file?")))
        if turn.text == "write":
            await turn.workspace.write_text("own.txt", "own")
            return await turn.workspace.read_text("own.txt")
        return await turn.workspace.read_text(turn.text)

    return agent


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with a folder in it, and something outside that nobody shall read."""
    found = tmp_path / "outer" / "space"
    (found / "sub" / "deep").mkdir(parents=True)
    (found / "x.txt").write_text("wide")
    (found / "sub" / "x.txt").write_text("narrow")
    (found / "sub" / "deep" / "x.txt").write_text("narrower")
    for place in (tmp_path, tmp_path / "outer"):
        (place / "x.txt").write_text(OUT)
    (found / "link").symlink_to(tmp_path)
    return found


class Asking:
    """`execute` and its answer, on one of the transports."""

    def __init__(self, running: RunningAgent, way: str) -> None:
        self.running, self.way = running, way
        self.socket: Any = None

    async def __call__(self, action: str, **payload: Any) -> dict[str, Any]:
        """The payload of the response."""
        inner = payload.pop("inner", None)  # the server's own `metadata` is that of the envelope
        said = self.running.envelope(action, **payload)
        if inner is not None:
            said["payload"]["metadata"] = inner
        if self.way == "http":
            return dict((await self.running.post(said)).json()["payload"])
        await self.socket.send(json.dumps(said))
        async with asyncio.timeout(60):
            while True:
                told = json.loads(await self.socket.recv())
                asks = told["payload"].get("action") == "require_input"
                if told["header"]["type"] == "response" or asks:
                    return dict(told["payload"])


@asynccontextmanager
async def asking(agent: Agent, way: str) -> AsyncIterator[Asking]:
    async with open_server(agent=agent) as running:
        ask = Asking(running, way)
        if way == "http":
            await running.join()
            yield ask
            return
        async with connect(running.ws) as socket:
            ask.socket = socket
            told = await ask("register", agent_id="host-1", token=SECRET)
            running.token = told["session_token"]
            yield ask


@pytest.mark.parametrize("way", WAYS)
async def test_an_execute_narrows(root: Path, way: str) -> None:
    async with asking(reader(root), way) as ask:
        assert (await ask("execute", query="x.txt"))["result_summary"] == "wide"
        for wish, found in (
            ("sub", "narrow"),
            (f"{root}/sub", "narrow"),
            (f"{root}/sub/deep", "narrower"),
            (str(root), "wide"),
        ):
            told = await ask("execute", query="x.txt", workspace_root=wish)
            assert told["result_summary"] == found
        # As narrow as was said: not even back to where it would be allowed without.
        told = await ask("execute", query="../x.txt", workspace_root="sub")
        assert told["error"]["code"] == "workspace_violation"


WIDER = (
    *("..", "/", "sub/../..", "../outer", "./../..", "/proc/self/cwd", "/proc/self/root"),
    *("\\..\\..", "C:/", "a\0b", "{root}/..", "{root}/../..", "{root}x", "//", "/../{root}"),
    *("{outer}", "{outer}/", "{outer}/./", "{root}/../space/../..", "{root}/sub/../../.."),
)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", ["payload", "metadata", "message"])
async def test_nothing_said_widens(root: Path, way: str, place: str) -> None:
    async with asking(reader(root), way) as ask:
        for wish in WIDER:
            said = wish.format(root=root, outer=root.parent)
            told = await ask("execute", **_placed(place, "x.txt", said))
            assert told["error"]["code"] == "workspace_violation", said
            assert OUT not in str(told)
        # By its name a link lies inside; it is refused when it is opened.
        told = await ask("execute", **_placed(place, "x.txt", "link"))
        assert told["error"]["code"] == "workspace_violation"
        for wrong in (5, ["sub"], {"a": 1}, True):
            told = await ask("execute", **_placed(place, "x.txt", wrong))
            assert told["error"]["code"] in ("bad_params", "workspace_violation"), wrong


def _placed(place: str, query: str, wish: Any) -> dict[str, Any]:
    """An execute that wishes for a folder in one of the places where that can be said."""
    wished = {"workspace_root": wish}
    parts = [{"kind": "text", "text": query}]
    return {
        "payload": {"query": query, **wished},
        "metadata": {"query": query, "inner": wished},
        "message": {
            "message": {"message_id": "m", "role": "user", "parts": parts, "metadata": wished}
        },
    }[place]


@pytest.mark.parametrize("way", WAYS)
async def test_who_goes_on_with_a_task_cannot_widen_it(root: Path, way: str) -> None:
    async with asking(reader(root), way) as ask:
        first = await ask("execute", query="ask", workspace_root="sub")
        task = first["task_id"]
        more = {"task_id": task, "workspace_root": str(root), "wait": False}
        await ask("execute", query="../x.txt", **more)
        async with asyncio.timeout(60):
            told = await ask("task_status", task_id=task)
            while told["status"] in ("working", "input-required"):
                told = await ask("task_status", task_id=task)
        assert told["status"] == "failed"
        assert told["error"]["code"] == "workspace_violation"


@pytest.mark.parametrize("way", WAYS)
async def test_the_root_is_told_to_who_introduces_itself_and_to_nobody_else(
    root: Path, way: str
) -> None:
    async with asking(reader(root), way) as ask:
        told = await ask("register", agent_id="host-1", token=SECRET)
        assert told["workspace_root"] == str(root)
        manifest = await ask.running.client.get("/manifest")
        assert manifest.json()["agent_id"] == "reader"
        assert str(root) not in manifest.text


@pytest.mark.parametrize("way", WAYS)
async def test_a_host_keeps_its_agents_to_its_folder(tmp_path: Path, root: Path, way: str) -> None:
    host = Host("engine", workspace_root=f"{root}/sub")
    async with team(tmp_path, host, {"reader": reader(root)}, way):
        assert (await host.find("reader")).workspace == str(root)
        _, task = await story(host, "x.txt")
        assert task.text == "narrow"
        _, task = await story(host, "x.txt", workspace_root="deep")
        assert task.text == "narrower"
        # Whoever gives the host work is kept to it too, in whatever dialect.
        for wish in (str(root), "/", "..", f"{root}/sub/..", str(root.parent)):
            task = await _given(host, "x.txt", wish)
            assert task.state is State.FAILED, wish
            assert "workspace_violation" in str(task.status)
        assert (await _given(host, "x.txt", f"{root}/sub/deep")).text == "narrower"
        assert (await _given(host, "x.txt", None)).text == "narrow"


@pytest.mark.parametrize("way", WAYS)
async def test_an_agent_of_any_kind_is_told_the_hosts_folder(tmp_path: Path, way: str) -> None:
    """One that told no folder of its own: what it hears in the payload is all that keeps it."""
    agent = Agent("Foreign")

    @agent.skill("tell")
    async def tell(turn: Turn) -> str:
        return str(turn.metadata.get("workspace_root"))

    host = Host("engine", workspace_root="/srv/ws")
    async with team(tmp_path, host, {"foreign": agent}, way):
        for wish, told in ((None, "/srv/ws"), ("a/b", "/srv/ws/a/b"), ("/srv/ws/c", "/srv/ws/c")):
            assert (await _given(host, "go", wish)).text == told
        for wish in ("/", "/srv", "/srv/wsx", "..", "/srv/ws/../x", 5):
            task = await _given(host, "go", wish)
            assert task.state is State.FAILED, wish
            assert "workspace_violation" in str(task.status)


def test_it_stands_where_the_requirement_has_it() -> None:
    said = Message(message_id="m", role=Role.USER, parts=(Text("go"),))
    op = SendMessage(message=said, metadata={"workspace_root": "/srv/ws"})
    (frame,) = IatCaller(now=lambda: 0, new_id=lambda: "m1").send(Call("1", op))
    assert envelope_in(frame.body).payload["workspace_root"] == "/srv/ws"


async def _given(host: Host, query: str, wish: Any) -> Any:
    """A task that somebody gives the host, past `host.execute`."""
    assert host.peer is not None
    said = Message(message_id="m", role=Role.USER, parts=(Text(query),))
    metadata = None if wish is None else {"workspace_root": wish}
    task: Any = await host.peer.call(SendMessage(message=said, metadata=metadata), OPERATOR)
    return await host.peer.call(GetTask(task_id=task.id), OPERATOR)


@pytest.mark.slow  # takes two seconds
@pytest.mark.parametrize("way", WAYS)
async def test_a_wide_host_takes_nothing_from_a_narrow_agent(
    tmp_path: Path, root: Path, way: str
) -> None:
    """The host's folder holds the agent's, or is the same; each task has its own in there."""
    for limit, per in ((root.parent, "shared"), (root, "task")):
        host = Host("engine", workspace_root=str(limit))
        async with team(tmp_path, host, {"reader": reader(root, per)}, way):
            _, task = await story(host, "../x.txt")
            assert task.state is State.FAILED
            assert "workspace_violation" in str(task.status)
            _, task = await story(host, "x.txt" if per == "shared" else "write")
            assert task.text == {"shared": "wide", "task": "own"}[per]


@pytest.mark.parametrize("way", WAYS)
async def test_an_agent_that_works_elsewhere_is_not_asked(
    tmp_path: Path, root: Path, way: str
) -> None:
    host = Host("engine", workspace_root=str(tmp_path / "elsewhere"))
    async with team(tmp_path, host, {"reader": reader(root)}, way):
        _, task = await story(host, "x.txt")
        assert task.state is State.FAILED
        assert "workspace_violation" in str(task.status)


async def test_a_foreign_host_that_names_its_folder_once_is_believed(
    tmp_path: Path, root: Path
) -> None:
    """In the answer to `register`, over a WebSocket; its executes say nothing of it."""
    heard: asyncio.Queue[Envelope] = asyncio.Queue()
    joined: asyncio.Queue[ServerConnection] = asyncio.Queue()

    async def host(socket: ServerConnection) -> None:
        said = envelope_in(str(await socket.recv()).encode())
        assert said.payload["workspace_root"] == str(root)
        welcome = {"session_token": "t" * 40, "workspace_root": f"{root}/sub"}
        await socket.send(_said(Kind.RESPONSE, "", welcome, parent=said.id))
        joined.put_nowait(socket)
        async for frame in socket:
            heard.put_nowait(envelope_in(str(frame).encode()))

    async def asked(socket: ServerConnection, id: str, **payload: Any) -> Envelope:
        await socket.send(_said(Kind.REQUEST, "execute", payload, id))
        while True:
            told = await heard.get()
            if told.kind is Kind.RESPONSE and told.parent == id:
                return told

    async with serve(host, "127.0.0.1", 0) as server, asyncio.timeout(60):
        port = server.sockets[0].getsockname()[1]
        own = settings(tmp_path, "reader", host=f"ws://127.0.0.1:{port}")
        async with served(reader(root), own):
            socket = await joined.get()
            told = await asked(socket, "e1", query="x.txt")
            assert told.payload["result_summary"] == "narrow"
            told = await asked(socket, "e2", query="x.txt", workspace_root="deep")
            assert told.payload["result_summary"] == "narrower"
            for number, wish in enumerate((str(root), "..", "/", f"{root}/sub/..")):
                told = await asked(socket, f"w{number}", query="x.txt", workspace_root=wish)
                assert told.payload["error"]["code"] == "workspace_violation"


async def test_the_same_when_the_host_calls_back(tmp_path: Path, root: Path) -> None:
    """The agent registered over HTTP; the host asks at its address, over HTTP/2."""
    host = Host("engine", workspace_root=f"{root}/sub")
    async with served(host, settings(tmp_path, "engine")) as url:
        own = settings(tmp_path, "reader", host=joining(url, "http"))
        async with served(reader(root), own) as agent_url:
            await host.find("reader", 8)
            async with httpx2.AsyncClient(base_url=agent_url, http1=False, http2=True) as client:
                token = ""

                async def asked(action: str, **payload: Any) -> dict[str, Any]:
                    said = _said(Kind.REQUEST, action, payload, "e1", token=token or SHARED)
                    head = {"content-type": "application/json"}
                    reply = await client.post("/iat", content=said, headers=head)
                    return dict(reply.json()["payload"])

                token = (await asked("HELO", agent_id="engine"))["session_token"]
                told: dict[str, Any] = {}
                async with asyncio.timeout(60):  # until the agent has read its welcome
                    while told.get("result_summary") != "narrow":
                        told = await asked("execute", query="x.txt")
                told = await asked("execute", query="x.txt", workspace_root=str(root))
                assert told["error"]["code"] == "workspace_violation"


def _said(
    kind: Kind, action: str, payload: Any, id: str = "m", parent: str = "", token: str = "t" * 40
) -> str:
    said = Envelope(
        kind=kind,
        action=action,
        payload=payload,
        id=id,
        parent=parent,
        sender="engine",
        token=token,
    )
    return envelope_out(said).decode()
