"""Bells between processes: what one rings the others hear, and a bell that was cut rings again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from dragoman.bell import SharedBell
from dragoman.bell.nats import NatsBell
from dragoman.bell.postgres import PostgresBell
from dragoman.bell.shared import ConnectedBell
from dragoman.core.errors import ConfigError
from dragoman.store.postgres.address import parse_address
from dragoman.store.postgres.pool import connect
from nats_server import NatsServer
from ports import own_port
from postgres import server_url
from security.certs import Authority
from waiting import before_again, stays, turns, until

EVERYTHING = ["everything"]


class Ear:
    """A bell, and what it has heard."""

    def __init__(self, bell: SharedBell) -> None:
        self.bell = bell
        self.heard: list[list[str]] = []

    def hear(self, task_ids: Sequence[str] | None) -> None:
        self.heard.append(EVERYTHING if task_ids is None else list(task_ids))


class PostgresPlace:
    """Bells on one channel of PostgreSQL."""

    def __init__(self, folder: Path) -> None:
        self._channel = f"bells_{abs(hash(folder))}"
        self._address = parse_address(server_url())

    def bell(self) -> SharedBell:
        return PostgresBell(partial(connect, self._address, direct=True), self._channel)

    async def cut(self) -> None:
        """Ends the connections of all bells."""
        connection = await asyncpg.connect(self._address.dsn)
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'dragoman'"
        )
        await connection.close()

    def end(self) -> None:
        """The server is that of all tests."""


class NatsPlace:
    """Bells on one subject of a NATS server."""

    def __init__(self, folder: Path) -> None:
        self._server = NatsServer(folder)

    def bell(self) -> SharedBell:
        return NatsBell(self._server.url, "dragoman.test")

    async def cut(self) -> None:
        """Kills the server, and starts it again."""
        self._server.kill()
        self._server.start()

    def end(self) -> None:
        self._server.kill()


Place = PostgresPlace | NatsPlace


@pytest.fixture(
    params=[
        pytest.param(PostgresPlace, id="postgres", marks=pytest.mark.slow),
        pytest.param(NatsPlace, id="nats", marks=pytest.mark.slow),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    made: Place = request.param(tmp_path)
    yield made
    made.end()


@asynccontextmanager
async def ears(place: Place, count: int) -> AsyncIterator[list[Ear]]:
    """Bells that are connected. Each has been told to look at everything once."""
    made = [Ear(place.bell()) for _ in range(count)]
    for ear in made:
        await ear.bell.start(ear.hear)
    try:
        await until(lambda: all(ear.heard == [EVERYTHING] for ear in made))
        yield made
    finally:
        for ear in made:
            await ear.bell.stop()


async def test_what_one_rings_all_others_hear(place: Place) -> None:
    async with ears(place, 3) as (one, two, three):
        one.bell.ring(["a", 'odd "id", 🐢'])
        await until(lambda: len(two.heard) == len(three.heard) == 2)
        assert two.heard[1] == three.heard[1] == ["a", 'odd "id", 🐢']
        two.bell.ring(["b"])
        await until(lambda: one.heard[1:] == [["b"]])
        await stays(lambda: len(two.heard) == 2)


async def test_what_is_rung_together_is_one_message(place: Place) -> None:
    async with ears(place, 2) as (one, two):
        for number in range(100):
            one.bell.ring([f"t{number % 50}"])
        await until(lambda: len(two.heard) > 1)
        assert two.heard[1] == [f"t{number}" for number in range(50)]


async def test_too_many_tasks_are_everything(place: Place) -> None:
    async with ears(place, 2) as (one, two):
        one.bell.ring([f"task-{number}" for number in range(10_000)])
        await until(lambda: two.heard[1:] == [EVERYTHING])


async def test_a_bell_that_was_cut_rings_for_everything_and_goes_on(place: Place) -> None:
    async with ears(place, 2) as (one, two):
        for _ in range(3):
            one.heard.clear()
            two.heard.clear()
            await place.cut()
            await until(lambda: one.heard[:1] == two.heard[:1] == [EVERYTHING])

            async def arrives() -> bool:
                one.bell.ring(["again"])
                await before_again()
                return ["again"] in two.heard

            await until(arrives)


@pytest.mark.slow  # starts NATS
async def test_a_bell_without_a_server_does_not_hold_anyone_up(tmp_path: Path) -> None:
    server = NatsServer(tmp_path)
    server.kill()
    ear = Ear(NatsBell(server.url, "dragoman.test"))
    await ear.bell.start(ear.hear)
    ear.bell.ring(["a"])
    server.start()
    try:
        await until(lambda: ear.heard == [EVERYTHING])
        await ear.bell.stop()
    finally:
        server.kill()


def test_the_address_of_a_nats_bell_is_checked(tmp_path: Path) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    for wrong in (
        "nats://",
        "nats://host/path",
        "nats://host?user=me",
        "nats://host?credentials=/nowhere",
        "nats://host?ca=/nowhere",
        "tls://host?ca=/nowhere",
        f"tls://host?ca={broken}",
    ):
        with pytest.raises(ConfigError):
            NatsBell(wrong, "x")


@asynccontextmanager
async def pair(*urls: str) -> AsyncIterator[list[Ear]]:
    made = [Ear(NatsBell(url, "dragoman.test")) for url in urls]
    for ear in made:
        await ear.bell.start(ear.hear)
    try:
        yield made
    finally:
        for ear in made:
            await ear.bell.stop()


@pytest.mark.slow  # starts NATS
async def test_bells_on_nats_use_tls_and_a_password(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("nats")
    server = NatsServer(
        tmp_path, "--tls", "--tlscert", cert, "--tlskey", key, "--user", "me", "--pass", "secret"
    )
    at = f"127.0.0.1:{server.port}"
    trusted = f"?ca={authority.ca}"
    try:
        async with pair(f"tls://me:secret@{at}{trusted}", f"tls://me:secret@{at}{trusted}") as (
            one,
            two,
        ):
            await until(lambda: one.heard == two.heard == [EVERYTHING])
            one.bell.ring(["a"])
            await until(lambda: two.heard[1:] == [["a"]])
        async with pair(
            f"tls://me:wrong@{at}{trusted}", f"tls://me:secret@{at}", f"nats://me:secret@{at}"
        ) as refused:
            await stays(lambda: not any(ear.heard for ear in refused))
    finally:
        server.kill()


@pytest.mark.slow  # starts NATS
async def test_a_bell_goes_on_at_another_server_of_its_cluster(tmp_path: Path) -> None:
    routes = own_port()
    first = NatsServer(tmp_path, "--cluster_name", "c", "--cluster", f"nats://127.0.0.1:{routes}")
    second = NatsServer(
        tmp_path,
        *("--cluster_name", "c", "--cluster", f"nats://127.0.0.1:{own_port()}"),
        *("--routes", f"nats://127.0.0.1:{routes}"),
    )
    both = f"nats://127.0.0.1:{first.port},127.0.0.1:{second.port}"
    try:
        async with pair(both, second.url) as (one, two):
            await until(lambda: one.heard[:1] == two.heard[:1] == [EVERYTHING])
            for server in (None, first):
                if server is not None:
                    server.kill()

                async def arrives() -> bool:
                    two.bell.ring(["again"])
                    await before_again()
                    return ["again"] in one.heard

                one.heard.clear()
                await until(arrives)
    finally:
        first.kill()
        second.kill()


@pytest.mark.slow  # starts PostgreSQL
async def test_a_notification_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    """The change that it tells of is on the disk already."""
    opened: list[asyncpg.Connection[Any]] = []

    async def connected() -> asyncpg.Connection[Any]:
        opened.append(await connect(parse_address(server_url()), direct=True))
        return opened[-1]

    ear = Ear(PostgresBell(connected, "bells_on_disk"))
    await ear.bell.start(ear.hear)
    await until(lambda: ear.heard)
    assert await opened[-1].fetchval("SHOW synchronous_commit") == "off"
    await ear.bell.stop()


class _Stubborn(ConnectedBell):
    """Its client loses a cancellation that arrives together with a failure, as asyncio.wait_for of
    Python 3.11 does."""

    lost = 0

    async def _connect(self) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.lost += 1
            if self.lost > 1:
                raise
            raise OSError("refused") from None

    async def _send(self, message: bytes) -> None: ...

    async def _check(self) -> None: ...

    async def _disconnect(self) -> None: ...


async def test_a_bell_stops_although_its_client_loses_the_cancellation() -> None:
    bell = _Stubborn()
    await bell.start(lambda task_ids: None)
    await turns(2)  # it begins to connect
    async with asyncio.timeout(20):
        await bell.stop()
    assert bell.lost == 2
