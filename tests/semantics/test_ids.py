"""One rule for ids: whatever the door and the store, an id that must not be stored is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from dragoman import Agent, Turn
from dragoman.core.errors import BadParams, TaskNotFound
from dragoman.core.ids import MAX_ID_LENGTH
from dragoman.core.model import Hook
from dragoman.core.operations import CancelTask, GetTask, ListTasks, SendMessage
from dragoman.settings import Server
from net.iat.sub_agent import open_server
from postgres import store_url
from semantics.ways import WAYS, Way, said, served

ways = pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
stores = pytest.mark.parametrize(
    "store", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)]
)
BAD = {
    "NUL": "a\0b",
    "line end": "a\nb",
    "escape": "a\x1b[2J",
    "C1": "a\x85b",
    "delete": "a\x7f",
    "too long": "x" * (MAX_ID_LENGTH + 1),
}


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_SECRET_KEY", "k" * 32)  # processes on PostgreSQL share one


def settings(store: str, folder: Path) -> Server:
    url = store_url(folder) if store == "postgresql" else f"sqlite:///{folder}/tasks.db"
    return Server(store=url, grpc=True, grpc_port=0, allow_private=True)


def desk() -> Agent:
    agent = Agent("Desk")

    @agent.skill("echo")
    async def echo(turn: Turn) -> str:
        return turn.text

    return agent


def sends(way: Way, bad: str) -> dict[str, SendMessage]:
    op = said("hi")
    hook = Hook(hook_id=bad, task_id="", url="http://127.0.0.1:9/")
    if way.name.endswith("0.1"):  # it names tasks and conversations, and nothing else
        return {
            "task": replace(op, open_as=bad),
            "context": replace(op, message=replace(op.message, context_id=bad)),
        }
    found = {
        "message": replace(op, message=replace(op.message, message_id=bad)),
        "context": replace(op, message=replace(op.message, context_id=bad)),
        "webhook": replace(op, hook=hook),
    }
    if way.name not in ("REST 0.3", "gRPC 0.3"):  # their messages refer to no tasks
        found["reference"] = replace(op, message=replace(op.message, references=(bad,)))
    return found


@ways
@stores
async def test_an_id_that_must_not_be_stored_is_refused_at_every_door(
    way: Way, store: str, tmp_path: Path
) -> None:
    async with served(desk(), server=settings(store, tmp_path)) as server:
        for kind, bad in BAD.items():
            for what, op in sends(way, bad).items():
                for stream in (False, True):
                    heard = await way.ask(server, op, stream=stream)
                    where = (kind, what, stream, heard)
                    assert isinstance(heard.error, BadParams), where
        fine = await way.ask(server, said("hi", context="订单 42"))
        assert fine.answer.context_id == "订单 42"


@ways
@stores
async def test_a_look_up_by_such_an_id_finds_nothing(way: Way, store: str, tmp_path: Path) -> None:
    async with served(desk(), server=settings(store, tmp_path)) as server:
        for kind, bad in BAD.items():
            for op in (GetTask(task_id=bad), CancelTask(task_id=bad), said("hi", task=bad)):
                heard = await way.ask(server, op)
                # 0.1 calls an id wrong that no task of it can have.
                assert isinstance(heard.error, TaskNotFound | BadParams), (kind, op, heard)
            listed = await way.ask(server, ListTasks(context_id=bad))
            assert listed.unasked or listed.answer.tasks == (), (kind, listed)


async def test_an_iat_envelope_is_refused_likewise(tmp_path: Path) -> None:
    async with open_server(tmp_path) as server:
        await server.join()
        for kind, bad in BAD.items():
            for more in ({"msg_id": bad}, {"context_id": bad}, {"open_as": bad}):
                reply = await server.post(server.envelope("execute", query="hi", **more))
                assert reply.status_code < 500, (kind, reply.text)
                assert "printable" in reply.text, (kind, more, reply.text)
