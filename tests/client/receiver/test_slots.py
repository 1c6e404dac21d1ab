"""Strangers with forged signatures do not take the slots of those whose signatures are right."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

import httpx2
import pytest

from client.receiver.calls import Diary, body_of, call, listening, task_1_0
from dragoman.client.receiver import Proof, Receiver
from dragoman.client.receiver.app import ADDRESS_SHARE
from waiting import until

SECRET = "a-secret-of-both-sides"
BODY = body_of(task_1_0())
PARALLEL = 16
SHARE = PARALLEL // ADDRESS_SHARE


@pytest.fixture(autouse=True)
def _refused_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of a refused body, which never comes, is not waited for."""
    monkeypatch.setattr("dragoman.net.http.request_body.LEFT_TIME", 0.1)


def secured(diary: Diary, **options: object) -> Receiver:
    """Where only the body shows who calls, and nobody's time is short."""
    about = {"parallel": PARALLEL, "read_timeout": 100.0, **options}
    return Receiver(diary, Proof(secrets=(SECRET,)), **about)  # type: ignore[arg-type]


@asynccontextmanager
async def forgers(
    app: Receiver, url: str, address: str, count: int, *headers: str
) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Calls that look signed, and whose bodies never come."""
    place = urlsplit(url)
    shown = call(b"", at=time.time(), key="guessed", token="")
    lines = [f"{name}: {value}" for name, value in shown.items() if "token" not in name]
    head = "\r\n".join(
        ("POST /hook HTTP/1.1", "host: localhost", "content-length: 1000", *lines, *headers, "", "")
    )
    readers = []
    async with AsyncExitStack() as stack:
        before = app._slots.taken
        for _ in range(count):
            reader, writer = await asyncio.open_connection(
                place.hostname, place.port, local_addr=(address, 0)
            )
            stack.callback(writer.close)
            writer.write(head.encode() + b"{")
            readers.append(reader)
        await until(lambda: app._slots.taken > before or any(r._buffer for r in readers))  # type: ignore[attr-defined]
        yield readers


async def refused(readers: list[asyncio.StreamReader]) -> None:
    """Waits until one of them is asked to come again."""
    await until(lambda: any(b" 503 " in r._buffer for r in readers))  # type: ignore[attr-defined]


async def honest(url: str, id: str, address: str = "127.0.0.1") -> int:
    transport = httpx2.AsyncHTTPTransport(local_address=address)
    async with httpx2.AsyncClient(transport=transport, timeout=60) as client:
        shown = call(BODY, id=id, at=time.time(), key=SECRET)
        return (await client.post(url, content=BODY, headers=shown)).status_code


async def test_strangers_of_one_address_have_a_share_of_the_slots() -> None:
    diary = Diary()
    app = secured(diary)
    async with (
        listening(app) as url,
        forgers(app, url, "127.0.0.2", 2 * PARALLEL) as readers,
    ):
        await refused(readers)
        assert app._slots.taken == SHARE
        assert [await honest(url, f"t.{n}") for n in range(3)] == [204] * 3
    assert len(diary.told) == 3


async def test_strangers_of_many_addresses_leave_half_to_whoever_was_proved_lately() -> None:
    diary = Diary()
    app = secured(diary)
    async with listening(app) as url, AsyncExitStack() as stack:
        assert await honest(url, "t.0") == 204
        for host in range(2, 6):
            readers = await stack.enter_async_context(
                forgers(app, url, f"127.0.0.{host}", SHARE + 1)
            )
            await refused(readers)
        assert app._slots.taken == PARALLEL // 2
        assert [await honest(url, f"t.{n}") for n in range(1, 4)] == [204] * 3
        # Another that nobody has heard of yet waits for its turn, as it is told.
        assert await honest(url, "t.9", "127.0.0.77") == 503
    assert len(diary.told) == 4


async def test_whoever_is_proved_needs_no_share() -> None:
    """A callback may take long: its slot is one of all then."""
    diary = Diary()
    diary.gate.clear()
    app = secured(diary)
    async with listening(app) as url, asyncio.TaskGroup() as group:
        calls = []
        for n in range(PARALLEL):
            calls.append(group.create_task(honest(url, f"t.{n}")))
            await until(lambda: diary.begun == len(calls))
        assert await honest(url, "t.99") == 503
        diary.gate.set()
    assert {each.result() for each in calls} == {204}


@pytest.mark.parametrize(
    ("trusted", "taken"), [((), SHARE), (("127.0.0.2/32",), PARALLEL // 2)], ids=["no", "yes"]
)
async def test_callers_behind_a_trusted_proxy_have_a_share_each(
    trusted: tuple[str, ...], taken: int
) -> None:
    app = secured(Diary(), trusted_proxies=trusted)
    async with listening(app) as url, AsyncExitStack() as stack:
        for host in range(1, 5):
            readers = await stack.enter_async_context(
                forgers(app, url, "127.0.0.2", SHARE + 1, f"x-forwarded-for: 192.0.2.{host}")
            )
            await refused(readers)
            assert app._slots.taken == min(host * SHARE, taken)


async def test_a_proxy_that_names_nobody_has_no_share() -> None:
    app = secured(Diary(), trusted_proxies=["127.0.0.2/32"])
    async with listening(app) as url, forgers(app, url, "127.0.0.2", PARALLEL) as readers:
        await refused(readers)
        assert app._slots.taken == PARALLEL // 2
