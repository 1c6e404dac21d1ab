"""Contract: sessions are found only at their agent, can be revoked, and end."""
# ruff: noqa: S101 (this is a test suite, only it ships)

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from dragoman.core.card import Tool
from dragoman.store.sessions import TokenSession

from .base import StoreTests
from .fixture import AGENT, START

HOUR = 3_600_000
READ = Tool(name="read", description="Reads.", parameters={"type": "object"})


def session(
    key: bytes, who: str = "host-1", *, since: int = START, agent: str = AGENT
) -> TokenSession:
    """Makes a session that lasts an hour."""
    return TokenSession(
        key=key,
        agent=agent,
        who=who,
        since=since,
        until=since + HOUR,
        tenant="acme",
        principal=f"iat:{who}",
        tenants=("acme", "other"),
        scopes=("read",),
        schemes=("iat",),
        tools=(READ,),
    )


def bare(found: list[TokenSession]) -> list[TokenSession]:
    """Returns the sessions without the revision that the store adds."""
    return [replace(one, revision=0) for one in found]


class SessionTests(StoreTests):
    """Tests of `Store.sessions`."""

    async def test_a_session_is_found_as_it_was_kept(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            sessions = fixture.store.sessions
            kept = session(b"k1")
            await sessions.keep(kept)
            assert await sessions.find(AGENT, b"k2") is None
            assert await sessions.find("another", b"k1") is None
            later = replace(kept, until=kept.until + 5, granted=(READ,))
            await sessions.keep(later)
            if self.durable:
                await fixture.reopen()
                sessions = fixture.store.sessions
            found = await sessions.find(AGENT, b"k1")
            assert found is not None
            assert bare([found]) == [later]

    async def test_sessions_are_listed_by_name_and_door(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            sessions = fixture.store.sessions
            third, first = session(b"k3", since=START + 2), session(b"k1")
            second = session(b"k2", "host-2", agent="another", since=START + 1)
            for one in (third, first, second):
                await sessions.keep(one)
            assert bare(await sessions.list_valid(None, None)) == [first, second, third]
            assert bare(await sessions.list_valid(AGENT, None)) == [first, third]
            assert bare(await sessions.list_valid(None, "host-2")) == [second]
            assert await sessions.list_valid(AGENT, "host-2") == []

    async def test_what_is_revoked_is_found_no_more(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            sessions = fixture.store.sessions
            for key, agent in ((b"k1", AGENT), (b"k2", AGENT), (b"k3", "another")):
                await sessions.keep(session(key, agent=agent))
            await sessions.keep(session(b"k4", "host-2"))
            assert await sessions.revoke("host-1", AGENT) == 2
            assert await sessions.revoke("host-1", AGENT) == 0
            assert await sessions.revoke("nobody") == 0
            # A process that has not learned of the revocation may still want to renew a session.
            latest = (await sessions.news(0))[-1].revision
            await sessions.keep(replace(session(b"k1"), until=START + 2 * HOUR))
            assert await sessions.news(latest) == []
            if self.durable:
                await fixture.reopen()
                sessions = fixture.store.sessions
            assert await sessions.find(AGENT, b"k1") is None
            assert await sessions.find(AGENT, b"k2") is None
            assert [one.key for one in await sessions.list_valid(None, None)] == [b"k3", b"k4"]
            assert await sessions.revoke("host-1") == 1
            assert [one.key for one in await sessions.list_valid(None, None)] == [b"k4"]

    async def test_changes_are_news_once(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            sessions = fixture.store.sessions
            assert await sessions.news(0) == []
            await sessions.keep(session(b"k1"))
            await sessions.keep(session(b"k2", "host-2"))
            first, second = await sessions.news(0)
            assert (first.key, second.key) == (b"k1", b"k2")
            assert 0 < first.revision < second.revision
            assert await sessions.news(second.revision) == []
            await sessions.keep(replace(session(b"k1"), granted=(READ,)))
            (changed,) = await sessions.news(second.revision)
            assert (changed.key, changed.granted, changed.revoked) == (b"k1", (READ,), False)
            await sessions.revoke("host-2")
            (gone,) = await sessions.news(changed.revision)
            assert (gone.key, gone.revoked) == (b"k2", True)

    async def test_what_is_over_is_swept(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            sessions = fixture.store.sessions
            await sessions.keep(session(b"k1"))
            await sessions.keep(session(b"k2"))
            latest = (await sessions.news(0))[-1].revision
            fixture.clock.tick(HOUR - 1)
            assert await sessions.find(AGENT, b"k1") is not None
            fixture.clock.tick(1)
            assert await sessions.find(AGENT, b"k1") is None
            assert await sessions.list_valid(None, None) == []
            assert await sessions.revoke("host-1") == 0
            await sessions.keep(session(b"k3", since=fixture.clock.now))
            left = await sessions.news(0)
            assert [one.key for one in left] == [b"k3"]
            # Otherwise a process that knows the older ones would not learn of this one.
            assert left[0].revision > latest

    async def test_no_revision_is_given_out_twice(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            sessions = fixture.store.sessions
            await sessions.keep(session(b"k1"))
            await sessions.revoke("host-1")
            await sessions.keep(replace(session(b"k2", "host-2"), until=START + 1))
            latest = (await sessions.news(0))[-1].revision
            fixture.clock.tick(1)
            await sessions.keep(
                session(b"k1")
            )  # it changes nothing, but drops sessions that have ended
            await sessions.keep(session(b"k3"))
            assert [one.key for one in await sessions.news(latest)] == [b"k3"]

    async def test_what_is_good_once_is_good_once(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            sessions = fixture.store.sessions
            until = fixture.clock.now + 1000
            assert await sessions.first(b"s1", until)
            assert await sessions.first(b"s2", until)
            assert not await sessions.first(b"s1", until)
            assert await sessions.seen(b"s1")
            assert not await sessions.seen(b"s3")
            if self.durable:
                await fixture.reopen()
                sessions = fixture.store.sessions
            assert not await sessions.first(b"s1", until + 1)
            assert await sessions.seen(b"s1")
            fixture.clock.tick(1001)
            assert not await sessions.seen(b"s1")
            assert await sessions.first(b"s1", until + 2000)
