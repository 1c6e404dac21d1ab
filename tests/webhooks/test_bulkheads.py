"""Receivers and name servers that hang hold up their own webhooks, not those of others."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.net.webhooks import WebhookSender
from dragoman.security.outbound import resolver
from dragoman.security.outbound.guarded_http import GuardedHttp, Rules
from dragoman.security.outbound.resolver import Resolver, Unreachable
from dragoman.security.secret_box import SecretBox
from dragoman.settings import Push
from waiting import until
from webhooks.harness import ALICE, BOB, SECRET, engine, hook, send
from webhooks.receiver import Heard, Receiver

SMALL = Push(parallel=12, per_principal=4, per_host=3, timeout=600.0)
STUCK = 40
LONG = 60.0
"""Seconds within which something happens on the slowest of machines."""


async def named(host: str, port: int) -> list[str]:
    """Every name leads here."""
    return ["127.0.0.1"]


def patient() -> WebhookSender:
    """One that waits for receivers for ever, so that nothing gets better by itself."""
    return WebhookSender(GuardedHttp(Rules(allow_private=True), named), SecretBox(SECRET), 600.0)


@asynccontextmanager
async def tarpit() -> AsyncGenerator[Receiver, None]:
    """Takes every call and answers none."""
    release = asyncio.Event()

    async def hang(one: Heard) -> tuple[int, dict[str, str]]:
        pit.heard.append(one)
        await release.wait()
        return 204, {}

    pit = Receiver(hang)
    async with pit:
        yield pit


async def test_tarpits_of_one_principal_do_not_delay_another() -> None:
    async with tarpit() as pit, Receiver() as receiver, engine(SMALL, by=patient()) as running:
        for n in range(STUCK):
            await send(running, "1", hook(f"http://pit{n}.example:{pit.port}/"))
        await pit.until(SMALL.per_principal, LONG)
        await send(running, "1", hook(f"http://good.example:{receiver.port}/"), ctx=BOB)
        await receiver.until(4, LONG)
        assert len(pit.heard) == SMALL.per_principal


async def test_tarpits_at_one_host_do_not_delay_another() -> None:
    push = replace(SMALL, per_principal=8)
    async with tarpit() as pit, Receiver() as receiver, engine(push, by=patient()) as running:
        for _ in range(STUCK):
            await send(running, "1", hook(f"http://pit.example:{pit.port}/"))
        await pit.until(push.per_host, LONG)
        await send(running, "1", hook(f"http://good.example:{receiver.port}/"))
        await receiver.until(4, LONG)
        assert len(pit.heard) == push.per_host


async def test_a_host_that_is_full_for_one_principal_is_open_for_another() -> None:
    """Many callers have their webhooks at one host of a cloud. What some of them leave hanging
    there, behind other ports or paths, is no reason to let the rest wait."""
    push = replace(SMALL, per_principal=8, parallel=32)
    async with tarpit() as pit, Receiver() as receiver, engine(push, by=patient()) as running:
        for n in range(STUCK):
            ctx = replace(ALICE, principal=f"caller{n % 3}")
            await send(running, "1", hook(f"http://shared.example:{pit.port}/"), ctx=ctx)
        await pit.until(3 * push.per_host, LONG)
        await send(running, "1", hook(f"http://shared.example:{receiver.port}/"), ctx=BOB)
        await receiver.until(4, LONG)
        assert len(pit.heard) == 3 * push.per_host


async def test_failures_of_one_principal_do_not_close_a_host_to_another() -> None:
    push = replace(SMALL, schedule=(0, 0.01, 0.01, 0.01, 3600), failures=2, probe=3600.0)

    async def fail(one: Heard) -> tuple[int, dict[str, str]]:
        broken.heard.append(one)
        return 500, {}

    broken = Receiver(fail)
    async with broken, Receiver() as receiver, engine(push, by=patient()) as running:
        await send(running, "1", hook(f"http://shared.example:{broken.port}/"))
        await until(lambda: running.webhooks._breaker.open == 1)
        await send(running, "1", hook(f"http://shared.example:{receiver.port}/"), ctx=BOB)
        await receiver.until(4, LONG)


class Silent:
    """A name server that says nothing about names with `silent` in them until it is released."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.asked: list[str] = []
        self.known: set[str] = set()
        self._system = socket.getaddrinfo

    def __call__(self, host: str, *args: Any, **options: Any) -> Any:
        if not host.endswith(".example"):
            return self._system(host, *args, **options)
        self.asked.append(host)
        if "silent" in host:
            self.release.wait()
            if host not in self.known:
                raise socket.gaierror("no answer")
        return self._system("127.0.0.1", *args, **options)


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Silent]:
    found = Silent()
    monkeypatch.setattr(socket, "getaddrinfo", found)
    yield found
    found.release.set()


@asynccontextmanager
async def asking(*calls: Coroutine[Any, Any, Any]) -> AsyncGenerator[None, None]:
    """While these are under way."""
    under_way = [asyncio.ensure_future(call) for call in calls]
    try:
        yield
    finally:
        for call in under_way:
            call.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


async def test_slow_name_servers_do_not_stop_the_others(silent: Silent) -> None:
    egress = GuardedHttp(Rules(allow_private=True))
    async with Receiver() as receiver:
        slow = [f"http://name{n}.silent{n % 6}.example:{receiver.port}/" for n in range(24)]
        async with asking(*(egress.request("POST", url, seconds=600) for url in slow)):
            async with asyncio.timeout(LONG):
                url = f"http://good.example:{receiver.port}/"
                reply = await egress.request("POST", url, seconds=600)
                # The threads that everyone shares are free too.
                assert await asyncio.to_thread(lambda: 7) == 7
            assert reply.status == 204
        await egress.close()


async def asked_for(count: int, silent: Silent) -> None:
    """Waits until so many names were looked up."""
    await until(lambda: len(silent.asked) >= count)


async def test_a_domain_has_only_so_many_lookups(silent: Silent) -> None:
    resolve = Resolver()
    names = [f"name{n}.silent.example" for n in range(40)]
    async with asking(*(resolve(name, 80) for name in names)):
        await asked_for(resolver.PER_DOMAIN, silent)
        assert await resolve("good.example", 80) == ["127.0.0.1"]
        assert len(silent.asked) == resolver.PER_DOMAIN + 1
    # Those that nobody waits for any more are not looked up later.
    silent.release.set()
    assert await resolve("other.example", 80) == ["127.0.0.1"]
    assert len(silent.asked) == resolver.PER_DOMAIN + 2


async def test_a_name_is_looked_up_once_for_all_that_ask(silent: Silent) -> None:
    resolve = Resolver()
    asked = asyncio.gather(*(resolve("name.silent.example", 80) for _ in range(9)))
    given_up = asyncio.ensure_future(resolve("name.silent.example", 80))
    await asked_for(1, silent)
    given_up.cancel()
    silent.known.add("name.silent.example")
    silent.release.set()
    assert await asked == [["127.0.0.1"]] * 9
    assert await resolve("name.silent.example", 443) == ["127.0.0.1"]
    assert silent.asked == ["name.silent.example"]


async def test_a_name_that_is_not_known_is_asked_for_again(silent: Silent) -> None:
    resolve = Resolver()
    silent.release.set()
    for _ in range(2):
        with pytest.raises(Unreachable):
            await resolve("name.silent.example", 80)
    assert len(silent.asked) == 2
