"""The credentials of a webhook: what is kept, what is sent, and what a mask must never become."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from dialects.pair import CODECS, Pair
from dragoman.core.dialect import Dialect
from dragoman.core.errors import BadParams
from dragoman.core.model import Hook, Message, Role, Task, Text
from dragoman.core.operations import GetHook, SendMessage, SetHook
from dragoman.core.session import Call, Result
from dragoman.engine import Engine
from webhooks.harness import ALICE, empty, engine, hook, send
from webhooks.receiver import Heard, Receiver

TOKEN = "a token of sixteen"
CREDENTIALS = "credentials-of-alice"
VERSIONS = [dialect for dialect in CODECS if dialect.name.startswith("a2a")]
OLDER = [dialect for dialect in VERSIONS if not dialect.name.startswith("a2a-1")]


async def answered(running: Engine, task: Task, receiver: Receiver) -> list[Heard]:
    """What the webhooks of a waiting task hear when it is answered."""
    await empty(running)
    before = len(receiver.heard)
    words = Message(message_id="a", role=Role.USER, parts=(Text("that"),), task_id=task.id)
    await running.call(SendMessage(message=words), ALICE)
    await empty(running)
    return receiver.heard[before:]


async def test_a_masked_config_that_is_set_again_keeps_its_secrets() -> None:
    async with Receiver() as receiver, engine() as running:
        at = hook(receiver.url, "h", token=TOKEN, scheme="Bearer", credentials=CREDENTIALS)
        task = await send(running, "", at, skill="wait")
        shown = await running.call(GetHook(task_id=task.id, hook_id="h"), ALICE)
        assert (shown.token, shown.credentials) == ("****teen", "****lice")
        again = await running.call(SetHook(hook=shown), ALICE)
        assert (again.token, again.credentials) == ("****teen", "****lice")
        heard = await answered(running, task, receiver)
        assert heard
        assert {one.headers["authorization"] for one in heard} == {f"Bearer {CREDENTIALS}"}
        assert {one.headers["x-a2a-notification-token"] for one in heard} == {TOKEN}


async def test_one_secret_may_be_new_while_the_other_is_kept() -> None:
    async with Receiver() as receiver, engine() as running:
        at = hook(receiver.url, "h", token=TOKEN, scheme="Bearer", credentials="short")
        task = await send(running, "", at, skill="wait")
        shown = await running.call(GetHook(task_id=task.id, hook_id="h"), ALICE)
        assert shown.credentials == "****"
        await running.call(SetHook(hook=replace(shown, token="another token")), ALICE)
        heard = await answered(running, task, receiver)
        assert {one.headers["authorization"] for one in heard} == {"Bearer short"}
        assert {one.headers["x-a2a-notification-token"] for one in heard} == {"another token"}


@pytest.mark.parametrize(
    "about",
    [
        {"hook_id": "another"},
        {"token": "****else"},
        {"url": "http://127.0.0.2:9/hook"},
        {"url": "http://127.0.0.1:10/hook"},
    ],
    ids=["another config", "another mask", "another host", "another port"],
)
async def test_a_mask_of_something_else_is_refused(about: dict[str, str]) -> None:
    async with engine() as running:
        task = await send(running, "", skill="wait")
        at = replace(hook("http://127.0.0.1:9/hook", "h", token=TOKEN), task_id=task.id)
        await running.call(SetHook(hook=at), ALICE)
        shown = await running.call(GetHook(task_id=task.id, hook_id="h"), ALICE)
        with pytest.raises(BadParams, match="masked"):
            await running.call(SetHook(hook=replace(shown, **about)), ALICE)


async def test_a_mask_cannot_come_with_a_new_task() -> None:
    async with engine() as running:
        with pytest.raises(BadParams, match="masked"):
            await send(running, "1", hook("http://127.0.0.1:9/", token="****teen"))
        assert await running.counts() == {"runnable": 0}


@pytest.mark.parametrize(
    ("schemes", "credentials", "header"),
    [
        (("Bearer",), CREDENTIALS, f"Bearer {CREDENTIALS}"),
        (("Digest", "Bearer", "Basic"), CREDENTIALS, f"Bearer {CREDENTIALS}"),
        (("SCRAM-SHA-256", "negotiate", "ApiKey"), CREDENTIALS, f"ApiKey {CREDENTIALS}"),
        (("Bearer",), "", None),
        (("Digest",), "", None),
        ((), CREDENTIALS, None),
    ],
)
async def test_the_first_scheme_that_we_can_do_is_used(
    schemes: tuple[str, ...], credentials: str, header: str | None
) -> None:
    async with Receiver() as receiver, engine() as running:
        first, *others = schemes or ("",)
        at = hook(receiver.url, scheme=first, credentials=credentials)
        await send(running, "0", replace(at, other_schemes=tuple(others)))
        await empty(running)
        assert {one.headers.get("authorization") for one in receiver.heard} == {header}


@pytest.mark.parametrize("schemes", [("Digest",), ("Digest", "Negotiate"), ("not a token",)])
async def test_credentials_that_could_never_be_sent_are_refused(schemes: tuple[str, ...]) -> None:
    async with engine() as running:
        at = hook("http://127.0.0.1:9/", scheme=schemes[0], credentials=CREDENTIALS)
        with pytest.raises(BadParams):
            await send(running, "0", replace(at, other_schemes=schemes[1:]))


@pytest.mark.parametrize("dialect", OLDER, ids=lambda dialect: dialect.name)
def test_every_scheme_is_heard_and_told_again(dialect: Dialect) -> None:
    pair = Pair(dialect)
    given = Hook(
        hook_id="t",
        task_id="t",
        url="https://example.com/",
        scheme="Digest",
        other_schemes=("Bearer", "Basic"),
        credentials="c",
    )
    (call,) = pair.caller_says(Call("1", SetHook(hook=given)))
    assert isinstance(call, Call)
    assert isinstance(call.op, SetHook)
    assert call.op.hook.schemes == ("Digest", "Bearer", "Basic")
    (told,) = pair.callee_says(Result(call.id, given))
    assert isinstance(told, Result)
    assert isinstance(told.value, Hook)
    assert told.value.schemes == ("Digest", "Bearer", "Basic")


@pytest.mark.parametrize("dialect", VERSIONS, ids=lambda dialect: dialect.name)
def test_schemes_are_required_so_they_are_never_left_out(dialect: Dialect) -> None:
    pair = Pair(dialect)
    given = Hook(hook_id="t", task_id="t", url="https://example.com/", credentials="c")
    (frame,) = pair.caller.send(Call("1", SetHook(hook=given)))
    name = '"scheme":""' if dialect.name.startswith("a2a-1") else '"schemes":[]'
    assert name in frame.body.decode()
    (call,) = pair._heard(frame)
    assert isinstance(call, Call)
    (answer,) = pair.callee.send(Result(call.id, given))
    assert name in answer.body.decode()
    assert msgspec.json.decode(answer.body)
