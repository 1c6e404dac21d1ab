"""Webhooks from the engine to a receiver: what is said, in which order, and how often."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from pathlib import Path

import pytest
from msgspec.structs import replace

from dialects.pair import CODECS
from dragoman.core.dialect import Dialect
from dragoman.core.errors import BadParams, HookNotFound, PushUnsupported, TaskNotFound, TooMany
from dragoman.core.model import Message, Role, State, Task, Text
from dragoman.core.operations import DeleteHook, GetHook, ListHooks, SendMessage, SetHook
from dragoman.core.peer import Context
from dragoman.net.webhooks import WebhookSender
from dragoman.security.outbound.guarded_http import GuardedHttp, Rules
from dragoman.security.secret_box import SecretBox
from dragoman.settings import Push
from dragoman.store import Store, open_store
from dragoman.store.interface import Delivery
from dragoman.testing import Client
from dragoman.testing.stores import HandClock
from waiting import forever, stays, until
from webhooks.harness import ALICE, BOB, QUICK, SECRET, agent, empty, engine, hook, send
from webhooks.receiver import Heard, Receiver

TOKEN = "a token of sixteen"
KEY = "whsec_" + base64.b64encode(b"k" * 24).decode()


@pytest.mark.parametrize("store", ["memory:", "sqlite:///{}/tasks.db", "file://{}/tasks"])
async def test_everything_is_told_in_order(store: str, tmp_path: Path) -> None:
    place = store.format(tmp_path)
    async with Receiver() as receiver, engine(store=place) as running:
        task = await send(running, "3", hook(receiver.url, "h"))
        heard = await receiver.until(6)
        await empty(running)
        assert [one.seq for one in heard] == [1, 2, 3, 4, 5, 6]
        assert len({one.id for one in heard}) == 6
        assert heard[0].json["task"]["id"] == task.id
        assert [next(iter(one.json)) for one in heard[1:]] == [
            *("statusUpdate", "artifactUpdate", "artifactUpdate", "artifactUpdate", "statusUpdate")
        ]
        assert heard[-1].json["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
        assert heard[0].headers["content-type"] == "application/json"


async def test_older_versions_are_told_the_task_as_it_stands() -> None:
    async with Receiver() as receiver, engine() as running:
        ctx = replace(ALICE, dialect="a2a-0.3")
        await send(running, "2", hook(receiver.url), ctx=ctx)
        await empty(running)
        (one,) = receiver.heard  # all of it was ready together, so it is told together
        assert (one.json["kind"], one.seq) == ("task", 5)
        assert one.json["status"]["state"] == "completed"
        assert one.json["artifacts"][0]["parts"][0]["text"] == "0 1 "


@pytest.mark.parametrize("token", [TOKEN, KEY])
async def test_the_receiver_can_tell_who_calls(token: str) -> None:
    async with Receiver() as receiver, engine() as running:
        at = hook(receiver.url, token=token, scheme="Bearer", credentials="cred")
        await send(running, "1", at)
        for one in await receiver.until(4):
            headers = one.headers
            assert headers["authorization"] == "Bearer cred"
            assert headers["x-a2a-notification-token"] == token
            assert headers["a2a-notification-token"] == token
            assert headers["host"] == f"127.0.0.1:{receiver.port}"
            key = b"k" * 24 if token == KEY else token.encode()
            signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + one.body
            proof = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
            assert headers["webhook-signature"] == f"v1,{proof}"


async def test_without_a_token_calls_are_signed_too_but_not_tokened() -> None:
    async with Receiver() as receiver, engine() as running:
        await send(running, "1", hook(receiver.url))
        heard = await receiver.until(4)
        assert "authorization" not in heard[0].headers
        assert "x-a2a-notification-token" not in heard[0].headers
        assert heard[0].headers["webhook-signature"].startswith("v1,")


async def test_failures_are_tried_again_and_keep_the_order() -> None:
    failed: dict[str, int] = {}

    def answer(one: Heard) -> tuple[int, dict[str, str]]:
        failed[one.id] = failed.get(one.id, 0) + 1
        return (500, 0, 204)[failed[one.id] - 1], {}

    async with Receiver(answer) as receiver, engine(replace(QUICK, failures=99)) as running:
        await send(running, "1", hook(receiver.url, "h"))
        heard = await receiver.until(12)
        await empty(running)
        assert [one.seq for one in heard] == [n for n in (1, 2, 3, 4) for _ in range(3)]
        for one in range(0, 12, 3):
            same = heard[one : one + 3]
            assert len({(call.id, call.body) for call in same}) == 1


async def test_what_never_arrives_is_a_dead_letter_and_can_be_redelivered() -> None:
    down = True

    def answer(one: Heard) -> tuple[int, dict[str, str]]:
        return (404 if down and one.seq == 2 else 200), {}

    async with Receiver(answer) as receiver, engine() as running:
        await send(running, "1", hook(receiver.url))
        await empty(running)
        assert [one.seq for one in receiver.heard] == [1, 2, 2, 2, 3, 4]
        (dead,) = await running.store.outbox(dead=True, limit=9)
        assert (dead.seq, dead.status, dead.attempt) == (2, 404, 3)
        down = False
        assert await running.store.redeliver(dead.id)
        heard = await receiver.until(7)
        assert heard[6].seq == 2
        assert heard[6].id == heard[1].id
        await empty(running)
        assert await running.store.outbox(dead=True, limit=9) == []


async def test_gone_ends_the_hook() -> None:
    async with Receiver(lambda one: (410, {})) as receiver, engine() as running:
        task = await send(running, "3", hook(receiver.url))
        await empty(running)
        assert [one.seq for one in receiver.heard] == [1]
        assert await running.store.outbox(dead=True, limit=9) == []
        with pytest.raises(HookNotFound):
            await running.call(GetHook(task_id=task.id), ALICE)


async def test_a_redirect_is_not_followed() -> None:
    async with Receiver() as canary:
        elsewhere = {"location": canary.url}
        async with Receiver(lambda one: (307, elsewhere)) as receiver, engine() as running:
            await send(running, "0", hook(receiver.url))
            await empty(running)
            assert len(receiver.heard) == 3 * 3
        assert canary.connections == 0
        assert len(receiver.heard) == 9


@pytest.mark.slow  # a pause of two seconds
async def test_a_receiver_may_ask_for_a_pause() -> None:
    times: list[float] = []

    def answer(one: Heard) -> tuple[int, dict[str, str]]:
        times.append(asyncio.get_running_loop().time())
        return (503, {"retry-after": "1"}) if len(times) == 1 else (204, {})

    async with Receiver(answer) as receiver, engine() as running:
        await send(running, "0", hook(receiver.url))
        await receiver.until(2)
        assert times[1] - times[0] >= 1.0


async def test_a_failing_host_is_left_alone_but_for_probes() -> None:
    push = Push(schedule=(0, *[0.001] * 200), timeout=60.0, failures=3, probe=0.3)
    down = True

    def answer(one: Heard) -> tuple[int, dict[str, str]]:
        return (500 if down else 204), {}

    async with Receiver(answer) as receiver, engine(push) as running:
        for _ in range(8):
            await send(running, "1", hook(receiver.url))
        await until(lambda: len(receiver.heard) >= 3)
        # At most eight go out before the third failure is known, and then two or three probes.
        await stays(lambda: len(receiver.heard) <= 14, 0.7)
        down = False
        await empty(running)
        arrived = {one.id for one in receiver.heard}
        assert len(arrived) == 8 * 4
        # Being put off costs no attempts: nothing was given up.
        assert await running.store.outbox(dead=True, limit=9) == []


async def test_one_slow_hook_does_not_hold_up_another() -> None:
    async def slow(one: Heard) -> tuple[int, dict[str, str]]:
        await forever()
        return 204, {}

    async with Receiver(slow) as stuck, Receiver() as receiver, engine() as running:
        await send(running, "1", hook(stuck.url))
        await send(running, "1", hook(receiver.url))
        await receiver.until(4)


async def test_a_hook_set_later_hears_what_comes_then() -> None:
    async with Receiver() as receiver, engine() as running:
        task = await send(running, "", skill="wait")
        assert task.state is State.INPUT_REQUIRED
        at = replace(hook(receiver.url), task_id=task.id)
        shown = await running.call(SetHook(hook=at), ALICE)
        assert (shown.hook_id, shown.dialect) == (task.id, "a2a-1.0")
        await stays(lambda: receiver.heard == [])
        said = Message(message_id="a", role=Role.USER, parts=(Text("that"),), task_id=task.id)
        done = await running.call(SendMessage(message=said), ALICE)
        assert isinstance(done, Task)
        await empty(running)
        assert [one.seq for one in receiver.heard] == [4, 5, 6]


async def test_a_hook_set_after_the_end_hears_the_end_once() -> None:
    async with Receiver() as receiver, engine() as running:
        task = await send(running, "2")
        at = replace(hook(receiver.url), task_id=task.id)
        for _ in range(2):
            await running.call(SetHook(hook=at), ALICE)
            await empty(running)
        assert [one.seq for one in receiver.heard] == [5]
        assert receiver.heard[0].json["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_deleted_hook_hears_nothing_more() -> None:
    push = replace(QUICK, schedule=(0, *[0.03] * 99), failures=999)
    async with Receiver(lambda one: (500, {})) as receiver, engine(push) as running:
        task = await send(running, "3", hook(receiver.url))
        await receiver.until(3)
        op = DeleteHook(task_id=task.id, hook_id=task.id)
        await running.call(op, ALICE)
        await running.call(op, ALICE)
        count = len(receiver.heard)
        await stays(lambda: len(receiver.heard) <= count + 1, 0.3)


async def test_hooks_are_shown_masked_and_only_to_their_owner() -> None:
    async with engine() as running:
        task = await send(running, "", skill="wait")
        url = "http://127.0.0.1:9/hook"
        at = replace(hook(url, "a", token=TOKEN, scheme="Bearer", credentials="short"))
        shown = await running.call(SetHook(hook=replace(at, task_id=task.id)), ALICE)
        assert (shown.token, shown.credentials) == (TOKEN, "short")
        await running.call(SetHook(hook=replace(at, task_id=task.id, hook_id="b")), ALICE)
        found = await running.call(GetHook(task_id=task.id, hook_id="a"), ALICE)
        assert (found.url, found.scheme) == (url, "Bearer")
        assert (found.token, found.credentials) == ("****teen", "****")
        page = await running.call(ListHooks(task_id=task.id, page_size=1), ALICE)
        assert [one.hook_id for one in page.hooks] == ["a"]
        rest = ListHooks(task_id=task.id, page_size=1, page_token=page.next_token)
        page = await running.call(rest, ALICE)
        assert ([one.hook_id for one in page.hooks], page.next_token) == (["b"], "")
        with pytest.raises(BadParams):
            await running.call(replace(rest, page_token="x"), ALICE)
        with pytest.raises(HookNotFound):
            await running.call(GetHook(task_id=task.id, hook_id="c"), ALICE)
        for op in (
            GetHook(task_id=task.id),
            ListHooks(task_id=task.id),
            DeleteHook(task_id=task.id, hook_id="a"),
            SetHook(hook=replace(at, task_id=task.id)),
        ):
            for stranger in (BOB, Context(principal="alice", tenant="other")):
                with pytest.raises(TaskNotFound):
                    await running.call(op, stranger)
        assert len((await running.call(ListHooks(task_id=task.id), ALICE)).hooks) == 2


async def test_a_task_has_only_so_many_hooks() -> None:
    async with engine(Push(max_hooks=2)) as running:
        task = await send(running, "", skill="wait")
        for name in ("a", "b", "a"):
            at = replace(hook("http://127.0.0.1:9/", name), task_id=task.id)
            await running.call(SetHook(hook=at), ALICE)
        with pytest.raises(TooMany):
            await running.call(SetHook(hook=replace(at, hook_id="c")), ALICE)


@pytest.mark.parametrize(
    "about",
    [
        {"token": "a\r\nx-evil: 1"},
        {"scheme": "Bearer\n"},
        {"scheme": "Bearer", "credentials": "ü"},
        {"token": "x" * 5000},
        {"hook_id": "x" * 513},
        {"hook_id": "h\n2026-01-01T00:00:00.000Z error all is lost"},
    ],
)
async def test_what_cannot_stand_in_a_header_is_refused(about: dict[str, str]) -> None:
    async with engine() as running:
        with pytest.raises(BadParams):
            await send(running, "1", replace(hook("http://127.0.0.1:9/"), **about))
        assert await running.counts() == {"runnable": 0}


async def test_without_a_courier_there_are_no_hooks() -> None:
    async with Client(agent) as client:
        task = await client.send("1")
        with pytest.raises(PushUnsupported):
            await client.engine.call(GetHook(task_id=task.id), client.context)
        with pytest.raises(PushUnsupported):
            await send(client.engine, "1", hook("https://example.com/"))


def on_disk(folder: Path) -> bytes:
    """All that is in the files of a folder."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


async def test_secrets_are_sealed_at_rest_and_survive_a_restart(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/tasks.db"
    async with Receiver() as receiver:
        receiver_url = receiver.url
        await receiver.down()
        push = replace(QUICK, schedule=(0, *[0.05] * 99), failures=999)
        async with engine(push, store) as running:
            at = hook(receiver_url, token=TOKEN, scheme="Bearer", credentials="very secret")
            await send(running, "1", at)
        raw = on_disk(tmp_path)
        assert TOKEN.encode() not in raw
        assert b"very secret" not in raw
        assert receiver_url.encode() in raw, "or this test looks in the wrong place"
        await receiver.up()
        async with engine(push, store) as running:
            await receiver.until(4)
            assert receiver.heard[0].headers["authorization"] == "Bearer very secret"
            assert [one.seq for one in receiver.heard] == [1, 2, 3, 4]


async def test_a_stop_gives_back_what_was_under_way(tmp_path: Path) -> None:
    release = asyncio.Event()

    async def stuck(one: Heard) -> tuple[int, dict[str, str]]:
        receiver.heard.append(one)
        await release.wait()
        return 204, {}

    store = open_store(f"sqlite:///{tmp_path}/tasks.db")
    async with Receiver(stuck) as receiver:
        async with engine(QUICK, store) as running:
            await send(running, "1", hook(receiver.url))
            await receiver.until(1)
        release.set()
        async with engine(QUICK, open_store(f"sqlite:///{tmp_path}/tasks.db")) as running:
            await empty(running, 2.0)
        assert {one.seq for one in receiver.heard} == {1, 2, 3, 4}


@pytest.mark.parametrize("dialect", CODECS, ids=lambda dialect: dialect.name)
async def test_every_dialect_has_words_for_a_webhook(dialect: Dialect) -> None:
    async with Receiver() as receiver, engine() as running:
        ctx = replace(ALICE, dialect=dialect.name)
        task = await send(running, "1", hook(receiver.url), ctx=ctx)
        await empty(running)
        told = receiver.heard[-1].json
        # IAT cannot set webhooks; whoever sets one for such a task is told in 1.0.
        if dialect.name.startswith(("a2a-1.", "iat")):
            told = told["statusUpdate"]
            assert told["taskId"] == task.id
        else:
            assert told["id"] == task.id
            parts = told["artifacts"][0]["parts"]
            assert parts[0]["text"] == "0 "
            assert parts[0]["type" if dialect.name in ("a2a-0.1", "a2a-go") else "kind"] == "text"
        assert told["status"]["state"].lower().endswith("completed")


async def test_a_hook_is_called_once_at_a_time_though_the_clock_is_set() -> None:
    clock = HandClock()
    called, release = asyncio.Event(), asyncio.Event()

    async def stuck(one: Heard) -> tuple[int, dict[str, str]]:
        called.set()
        await release.wait()
        return 204, {}

    store = open_store("memory:", clock=clock)
    by = WebhookSender(GuardedHttp(Rules(allow_private=True)), SecretBox(SECRET), 600.0)
    async with Receiver(stuck) as receiver, engine(Push(timeout=600.0), store, by) as running:
        await send(running, "1", hook(receiver.url))
        async with asyncio.timeout(60):
            await called.wait()
        for _ in range(3):
            clock.set(3_600_000)  # what is held seems to be free
            assert running.webhooks is not None
            running.webhooks.wake()
            await until(lambda: _put_off(store, clock))
        assert len(running.webhooks._flights) == 1
        release.set()
        await empty(running, 60)
        assert [one.seq for one in receiver.heard] == [1, 2, 3, 4]


async def _put_off(store: Store, clock: HandClock) -> bool:
    return (await _first(store)).due_at > clock()


async def _first(store: Store) -> Delivery:
    (found,) = await store.outbox(dead=False, limit=1)
    return found
