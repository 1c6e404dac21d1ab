"""Operations and skills that are open to anyone, while all else asks for credentials."""

from __future__ import annotations

from typing import Any

import pytest

from cards.served import app_for
from dragoman import Agent, Turn
from dragoman.core.auth_schemes import ApiKeys, Known, Secret, Tokens
from dragoman.core.errors import (
    BadParams,
    ConfigError,
    DragomanError,
    TaskNotFound,
    Unauthenticated,
)
from dragoman.core.model import Hook, Task
from dragoman.core.operations import (
    AnyOperation,
    CancelTask,
    GetExtendedCard,
    GetTask,
    Invoke,
    ListTasks,
    SendMessage,
    SetHook,
)
from dragoman.dialects.a2a.cards import documents
from dragoman.settings import Server
from semantics.ways import WAYS, Heard, RunningServer, Way, said, served

ways = pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
TOKEN = "token-of-alice-0123456789"
KNOWN = {"authorization": f"Bearer {TOKEN}"}
HOOK = Hook(hook_id="h", task_id="t", url="https://example.com/hook")


@pytest.fixture(autouse=True)
def tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN_OF_ALICE", TOKEN)


def desk(**options: Any) -> Agent:
    alice = {"alice": Known(secret=Secret(env="TOKEN_OF_ALICE"), scopes=("book",))}
    agent = Agent("Desk", auth={"robots": Tokens(callers=alice)}, **options)

    @agent.skill("book", default=True)
    async def book(turn: Turn) -> str:
        return "booked"

    @agent.skill("faq", anonymous=True)
    async def faq(turn: Turn) -> str:
        return await turn.ask("Which city?") if turn.text == "ask" else "From nine to five"

    @agent.skill("audit", extended=True)
    async def audit(turn: Turn) -> str:
        return "well"

    @agent.skill("pay", scopes=["book"])
    async def pay(turn: Turn) -> str:
        return "paid"

    @agent.method("desk.x/hours")
    async def hours(caller: Any) -> str:
        return "9-17"

    return agent


def to(skill: str, text: str = "hi", task: str = "", **more: Any) -> SendMessage:
    return said(text, task=task, noted={"skillId": skill} if skill else None, **more)


async def asked(way: Way, running: RunningServer, op: AnyOperation, **headers: str) -> Heard | None:
    heard = await way.ask(running, op, headers=headers)
    return None if heard.unasked else heard


def task_in(heard: Heard | None) -> Task:
    assert heard is not None
    assert isinstance(heard.answer, Task), heard
    return heard.answer


@ways
async def test_an_open_skill_is_used_without_credentials_and_nothing_else_is(way: Way) -> None:
    async with served(desk()) as running:
        opened = task_in(await asked(way, running, to("faq", "ask")))
        assert opened.state.value == "input-required"
        theirs = task_in(await asked(way, running, to("book"), **KNOWN))
        # To its own task a stranger may do what the skill is there for.
        assert task_in(await asked(way, running, GetTask(task_id=opened.id))).id == opened.id
        answered = task_in(await asked(way, running, to("", "Kyoto", opened.id)))
        assert answered.state.value == "completed"
        for closed in (
            to("book"),
            to("pay"),
            to(""),
            GetTask(task_id=theirs.id),
            GetTask(task_id="nobody"),
            CancelTask(task_id=theirs.id),
            ListTasks(),
            SetHook(hook=HOOK),
            to("faq", hook=HOOK),
            GetExtendedCard(),
            Invoke(method="desk.x/hours"),
        ):
            heard = await asked(way, running, closed)
            if heard is not None:
                assert type(heard.error) is Unauthenticated, closed
        wrong = await asked(way, running, to("faq"), authorization="Bearer nobody-has-this-one")
        assert wrong is not None
        assert type(wrong.error) is Unauthenticated  # wrong credentials are not taken for none
        other = await asked(way, running, to("faq"), authorization="Negotiate abc")
        assert other is not None
        assert type(other.error) is Unauthenticated


@ways
async def test_open_operations_are_those_that_are_named(way: Way) -> None:
    server = Server(
        store="memory:",
        grpc=True,
        grpc_port=0,
        anonymous=("SendMessage", "GetTask", "desk.x/hours"),
    )
    async with served(desk(), server=server) as running:
        booked = task_in(await asked(way, running, to("book")))
        assert task_in(await asked(way, running, GetTask(task_id=booked.id))).id == booked.id
        errors: list[tuple[AnyOperation, type[DragomanError]]] = [
            (GetTask(task_id="nobody"), TaskNotFound),
            (to("pay"), Unauthenticated),
            (to("audit"), BadParams),  # as if it did not exist
            (to("book", hook=HOOK), Unauthenticated),
            (ListTasks(), Unauthenticated),
            (CancelTask(task_id=booked.id), Unauthenticated),
        ]
        for closed, error in errors:
            heard = await asked(way, running, closed)
            if heard is not None:
                assert type(heard.error) is error, closed
        hours = await asked(way, running, Invoke(method="desk.x/hours"))
        assert hours is None or hours.answer == "9-17"
        # Who says its name has its own tasks only, as ever.
        theirs = await asked(way, running, GetTask(task_id=booked.id), **KNOWN)
        assert theirs is not None
        assert type(theirs.error) is TaskNotFound


async def test_a_stream_is_as_open_as_a_send() -> None:
    async with served(desk()) as running:
        way = WAYS["JSON-RPC 1.0"]
        heard = await way.ask(running, to("faq"), stream=True)
        assert heard.error is None
        assert heard.entries
        refused = await way.ask(running, to("book"), stream=True)
        assert type(refused.error) is Unauthenticated


async def test_who_is_refused_is_told_how_to_come_in() -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}
    async with served(desk()) as running:
        got = await running.client.post("/", json=body, headers={"a2a-version": "1.0"})
        assert got.status_code == 401
        assert got.headers["www-authenticate"] == 'Bearer realm="Desk"'
        # Nothing of this opens the dialects that have a door of their own.
        joined = await running.client.post("/iat", json={"kind": "request", "action": "register"})
        assert joined.status_code == 401


async def test_the_settings_replace_what_the_code_says() -> None:
    server = Server(store="memory:", grpc=True, grpc_port=0, anonymous=())
    async with served(desk(anonymous=["ListTasks"]), server=server) as running:
        for op in (to("faq"), ListTasks()):
            heard = await WAYS["REST 1.0"].ask(running, op)
            assert type(heard.error) is Unauthenticated
    async with served(desk(anonymous=["ListTasks"])) as running:
        assert (await WAYS["REST 1.0"].ask(running, ListTasks())).error is None


@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_the_card_says_what_is_open(version: str) -> None:
    form = documents.pure_1_0 if version == "1.0" else documents.merged

    def shown(**server: Any) -> tuple[Any, dict[str, Any]]:
        card = documents.card_in(
            form(app_for(desk(), server=server).mounts[""].card_at("https://desk.example"))
        )
        return card.security, {skill.id: skill.security for skill in card.skills}

    asked: dict[str, tuple[str, ...]] = {"robots": ()}
    assert shown() == ((asked,), {"book": (), "faq": ({},), "pay": (asked,)})
    opened = shown(anonymous=("SendMessage",))
    assert opened == ((asked, {}), {"book": (), "faq": (), "pay": (asked,)})
    assert shown(anonymous=("GetTask",)) == ((asked,), {"book": (), "faq": (), "pay": (asked,)})


@pytest.mark.parametrize(
    ("named", "why"),
    [
        ("GetExtendedAgentCard", "none of"),
        ("sendmessage", "none of"),
        ("pay", "scopes"),
        ("audit", "extended"),
    ],
)
def test_what_cannot_be_open_stops_the_start(named: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        app_for(desk(), server={"anonymous": (named,)})


async def test_a_key_that_is_shown_and_wrong_is_not_taken_for_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KEY", "k" * 20)
    agent = desk()
    agent.auth = {"keys": ApiKeys(callers={"bob": Known(secret=Secret(env="KEY"))})}
    async with served(agent) as running:
        way = WAYS["REST 1.0"]
        assert (await way.ask(running, to("faq"))).error is None
        wrong = await way.ask(running, to("faq"), headers={"x-api-key": "x" * 20})
        assert type(wrong.error) is Unauthenticated
