"""An agent on its links: what phones ask and see, and what becomes of it when links break."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from msgspec.structs import replace
from websockets.utils import accept_key

from dragoman import Agent, Turn
from dragoman.core.model import Blob
from dragoman.core.session import Frame
from dragoman.engine import Engine, EngineSettings
from dragoman.files import FileDoor
from dragoman.net.reconnect_policy import ReconnectPolicy
from dragoman.security.authorization import AuthorizingPeer
from dragoman.security.rate_limits import Meter
from dragoman.settings import Rates, Settings
from dragoman.store import open_store, owed_answers
from dragoman.store.clock import wall_clock
from dragoman.store.interface import AdminFilter
from dragoman.store.owed_answers import OwedAnswers
from dragoman.xiaoyi.agent_links import AgentLinks
from dragoman.xiaoyi.answers import SentMarks
from dragoman.xiaoyi.outbound_link import (
    LinkEnded,
    LinkRefused,
    LinkServer,
    OutboundLink,
    SigningKeys,
)
from waiting import until
from xiaoyi.phone import AGENT, AK, SK, PhoneServer, phone_server, text_of

KEYS = SigningKeys(AGENT, AK, SK)


class QuickPolicy(ReconnectPolicy):
    """The same policy, a hundred times as fast."""

    def next_pause(self, held: float) -> float | None:
        pause = super().next_pause(held)
        return None if pause is None else pause / 100


def an_agent() -> Agent:
    agent = Agent("Phone agent", description="Answers phones.")
    agent.gate = asyncio.Event()  # type: ignore[attr-defined]

    @agent.skill("talk")
    async def talk(turn: Turn) -> str | None:
        match turn.text:
            case "wait":
                await agent.gate.wait()  # type: ignore[attr-defined]
            case "ask":
                return f"You said {await turn.ask('几点？')}"
            case "fail":
                raise RuntimeError("broken")
            case "long":
                return "长" * 9000
            case "where":
                about = turn.metadata
                ids = (about["deviceId"], about["conversationId"], about["agentLoginSessionId"])
                return f"{turn.context_id} {' '.join(ids)} {turn.caller.principal}"
            case "stream":
                await turn.think("checking")
                await turn.artifact("HE")
                await turn.artifact("LLO", append=True)
                return None
        return f"echo: {turn.text}"

    return agent


async def test_calls_per_minute_are_counted_for_each_session() -> None:
    meter = Meter(Rates(calls_per_minute=2))
    async with phone_server() as phone, linked(phone, meter=meter):
        for number in (1, 2, 3):
            await phone.ask("hello", f"tk-{number}")
        await phone.final("tk-1")
        await phone.final("tk-2")
        await until(lambda: phone.answers.get("tk-3"))
        (refused,) = phone.answers["tk-3"]
        assert "Too many calls" in refused["error"]["message"]
        for method in ("tasks/cancel", "clearContext"):
            id = await phone.say(method, task="tk-2", params={"id": "tk-2", "sessionId": "se-1"})
            (told,) = await until(lambda id=id: phone.told(id))
            assert told["result"]["status"]["state"] == "failed"
        await phone.ask("hello", "tk-4", "se-2")  # another phone
        assert text_of(await phone.final("tk-4")) == "echo: hello"
        # The refused message is not forgotten for ever: it may be sent again.
        meter.rates = Rates()
        await phone.ask("hello", "tk-3")
        assert text_of(await phone.final("tk-3")) == "echo: hello"


@asynccontextmanager
async def linked(
    *servers: PhoneServer, url: str = "memory:", agent: Agent | None = None, **more: Any
) -> AsyncIterator[AgentLinks]:
    """An agent that has dialled these servers."""
    store = open_store(url)
    engine = Engine(agent or an_agent(), store, EngineSettings())
    if (media := more.get("media")) is not None:
        engine.receive_with(media.receive)
    await engine.start()
    links = AgentLinks(
        engine,
        more.pop("keys", KEYS),
        [LinkServer(server.url) for server in servers],
        store.sessions,
        wall_clock,
        store=store,
        kept_as=engine.name,
        policy=more.pop("policy", QuickPolicy),
        **more,
    )
    await links.start()
    try:
        yield links
    finally:
        await links.drain()
        await engine.stop(1.0)
        await links.stop()


async def test_a_phone_gets_its_answer_as_the_source_document_has_it() -> None:
    async with phone_server() as phone, linked(phone):
        await phone.ask("hello", "tk-1")
        final = await phone.final("tk-1")
        assert text_of(final) == "echo: hello"
        assert (final["append"], final["lastChunk"]) == (False, True)
        assert phone.states("tk-1") == ["submitted", "working", "completed"]
        assert phone.frames[0] == {"msgType": "clawd_bot_init", "agentId": AGENT}
        assert {frame["sessionId"] for frame in phone.frames[1:]} == {"se-1"}


@pytest.mark.parametrize("offers", [True, False])
async def test_files_are_offered_by_their_address_where_phones_can_reach_us(offers: bool) -> None:
    made = Blob(b"%PDF-1.7", filename="trip.pdf", media_type="application/pdf")
    agent = Agent("Phone agent", description="Makes files.")

    @agent.skill("make")
    async def make(turn: Turn) -> Blob:
        return made

    known = Settings()
    own = replace(known, server=replace(known.server, store="memory:"))
    door = FileDoor(own, "https://agents.example") if offers else None
    async with phone_server() as phone, linked(phone, agent=agent, files=door):
        await phone.ask("make", "tk-1")
        await until(lambda: "completed" in phone.states("tk-1"))
        parts = [
            part
            for each in phone.results("tk-1")
            if each["kind"] == "artifact-update"
            for part in each["artifact"]["parts"]
            if part["kind"] == "file"
        ]
        file = parts[0]["file"]
        assert file["name"] == "trip.pdf"
        if door is None:
            assert base64.b64decode(file["bytes"]) == made.content
        else:
            assert file["uri"].startswith("https://agents.example/files/")
            address = urlsplit(file["uri"])
            signed = door.signer.verify(unquote(address.path), address.query.encode())
            assert signed is not None
            found = await door.find(signed.file_id)
            assert found is not None
            assert found.content() == made.content
    if door is not None:
        await door.close()


async def test_a_stream_is_first_increments_and_final() -> None:
    async with phone_server() as phone, linked(phone):
        await phone.ask("stream", "tk-1")
        final = await phone.final("tk-1")
        pieces = [each for each in phone.results("tk-1") if each["kind"] == "artifact-update"]
        thoughts = [p for p in pieces if "reasoningText" in p["artifact"]["parts"][0]]
        texts = [each for each in pieces if each not in thoughts and not each["final"]]
        assert [each["artifact"]["parts"][0]["reasoningText"] for each in thoughts] == ["checking"]
        assert texts[0]["append"] is False
        assert all(each["append"] for each in texts[1:])
        assert "".join(map(text_of, texts)) == text_of(final) == "HELLO"


async def test_what_the_phone_tells_of_itself_is_metadata_and_its_session_a_principal() -> None:
    async with phone_server() as phone, linked(phone):
        await phone.ask("where", "tk-1", "se-9")
        text = text_of(await phone.final("tk-1"))
        assert text == f"se-9 dev-1 cv-1 ls-1 xiaoyi:{AGENT}:se-9"


@pytest.mark.parametrize("scopes", [(), ("talk",)])
async def test_a_phone_has_the_scopes_of_the_link_and_no_others(scopes: tuple[str, ...]) -> None:
    agent = Agent("Guarded", description="For some.", scopes=["talk"])

    @agent.skill("talk")
    async def talk(turn: Turn) -> str:
        return "hi"

    store = open_store("memory:")
    engine = Engine(agent, store, EngineSettings())
    await engine.start()
    guarded = AuthorizingPeer(agent, engine, Meter(Rates()))
    async with phone_server() as phone:
        server = [LinkServer(phone.url)]
        links = AgentLinks(guarded, KEYS, server, store.sessions, wall_clock, scopes=scopes)
        await links.start()
        await phone.ask("hello", "tk-1")
        if scopes:
            assert text_of(await phone.final("tk-1")) == "hi"
        else:
            await until(lambda: phone.answers.get("tk-1"))
            assert phone.answers["tk-1"][0]["error"]["code"] == "FORBIDDEN"
        await links.stop()
    await engine.stop(1.0)


async def test_a_long_text_comes_in_safe_frames() -> None:
    async with phone_server() as phone, linked(phone):
        await phone.ask("long", "tk-1")
        await phone.final("tk-1")
        texts = [text_of(each) for each in phone.results("tk-1") if "artifact" in each]
        assert max(map(len, texts)) <= 4000
        assert "".join(texts) == "长" * 9000


async def test_a_question_is_input_required_and_the_next_message_answers_it() -> None:
    async with phone_server() as phone, linked(phone):
        await phone.ask("ask", "tk-1")
        asked = await phone.final("tk-1")
        assert (asked["status"]["state"], text_of(asked)) == ("input-required", "几点？")
        await phone.ask("八点", "tk-2")
        assert text_of(await phone.final("tk-2")) == "You said 八点"


async def test_a_failure_is_told_with_its_state() -> None:
    async with phone_server() as phone, linked(phone):
        await phone.ask("fail", "tk-1")
        assert (await phone.final("tk-1"))["status"]["state"] == "failed"


async def test_a_foreign_session_reaches_no_task_of_another() -> None:
    async with phone_server() as phone, linked(phone):
        await phone.ask("wait", "tk-1")
        await until(lambda: "working" in phone.states("tk-1"))
        for method in ("tasks/cancel", "tasks/resubscribe"):
            id = await phone.say(method, "se-2", task="tk-1", params={"sessionId": "se-2"})
            (told,) = await until(lambda id=id: phone.told(id))
            assert "error" in told or told["result"]["status"]["state"] == "unknown", told
        await phone.say("clearContext", "se-2", params={"sessionId": "se-2"})
        await phone.ask("hello", "tk-1", "se-2")  # the same name, but another task
        await until(lambda: any(text_of(each) == "echo: hello" for each in phone.finals("tk-1")))
        assert "canceled" not in phone.states("tk-1")
        await phone.say("tasks/cancel", task="tk-1")
        await until(lambda: "canceled" in phone.states("tk-1"))


async def test_a_cancel_reaches_the_running_task() -> None:
    async with phone_server() as phone, linked(phone):
        await phone.ask("wait", "tk-1")
        await until(lambda: "working" in phone.states("tk-1"))
        id = await phone.say("tasks/cancel", task="tk-1")
        await until(lambda: any(each["id"] == id for each in phone.answers["tk-1"]))
        (answer,) = (each for each in phone.answers["tk-1"] if each["id"] == id)
        assert answer["result"] == {"id": "tk-1", "status": {"state": "canceled"}}
        assert (await phone.final("tk-1"))["status"]["state"] == "canceled"
        unknown = await phone.say("tasks/cancel", task="tk-7")
        await until(lambda: phone.answers.get("tk-7"))
        (answer,) = phone.answers["tk-7"]
        assert (answer["id"], answer["result"]["status"]["state"]) == (unknown, "unknown")


async def test_a_cancel_right_behind_its_message_reaches_the_task() -> None:
    async with phone_server() as phone, linked(phone):
        await phone.ask("wait", "tk-1")
        id = await phone.say("tasks/cancel", task="tk-1")
        await until(lambda: any(each["id"] == id for each in phone.answers.get("tk-1", ())))
        (answer,) = (each for each in phone.answers["tk-1"] if each["id"] == id)
        assert answer["result"]["status"]["state"] == "canceled"
        assert (await phone.final("tk-1"))["status"]["state"] == "canceled"


async def test_a_clear_right_behind_a_message_ends_its_task() -> None:
    async with phone_server() as phone, linked(phone):
        await phone.ask("wait", "tk-1")
        id = await phone.say("clearContext")
        await until(lambda: phone.answers.get(id))
        assert (await phone.final("tk-1"))["status"]["state"] == "canceled"


async def test_a_clear_ends_the_running_task_drops_the_route_and_begins_the_context_anew() -> None:
    async with phone_server() as phone, linked(phone) as links:
        await phone.ask("wait", "tk-1")
        await until(lambda: "working" in phone.states("tk-1"))
        assert "se-1" in links.session_routes
        id = await phone.say("clearContext")
        await until(lambda: phone.answers.get(id))
        assert phone.answers[id][0]["result"] == {"status": {"state": "cleared"}}
        assert (await phone.final("tk-1"))["status"]["state"] == "canceled"
        assert "se-1" not in links.session_routes
        await phone.ask("where", "tk-2")
        assert text_of(await phone.final("tk-2")).startswith("se-1~1 ")


async def test_after_a_restart_only_open_answers_are_read_however_many_were_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owed_answers, "PAGE", 3)
    url = f"sqlite:///{tmp_path}/tasks.db"
    async with phone_server() as phone:
        async with linked(phone, url=url):
            for number in range(8):
                await phone.ask("hello", f"tk-{number}")
                await phone.final(f"tk-{number}")
            store = open_store(url)
            await store.open()
            every = await store.find_in_all_scopes(AdminFilter(), 99)
            marks = SentMarks(store.sessions, wall_clock, "xiaoyi", AGENT)
            for row in every:
                await until(lambda row=row: marks.has("sent", row.task_id, ""))
        # The last answer was lost: the mark of another agent does not count for it.
        others = SentMarks(store.sessions, wall_clock, "xiaoyi", "another")
        owed = OwedAnswers(
            store, "Phone agent", "xiaoyi", lambda task_id: marks.has("sent", task_id, "")
        )
        assert [row async for row in owed.rows(wall_clock())] == []
        owed = OwedAnswers(
            store, "Phone agent", "xiaoyi", lambda task_id: others.has("sent", task_id, "")
        )
        assert {row.task_id async for row in owed.rows(wall_clock())} == {
            row.task_id for row in every
        }
        assert [row async for row in owed.rows(wall_clock() + 2 * 24 * 3600 * 1000)] == []
        await store.close()


async def test_a_cleared_session_stays_cleared_after_a_restart(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    async with phone_server() as phone:
        async with linked(phone, url=url):
            id = await phone.say("clearContext")
            await until(lambda: phone.answers.get(id))
        async with linked(phone, url=url):
            await until(lambda: phone.handshakes == 2 and phone.links)
            await phone.ask("where", "tk-2")
            assert text_of(await phone.final("tk-2")).startswith("se-1~1 ")


async def test_a_request_that_comes_over_two_links_is_answered_once() -> None:
    async with phone_server() as one, phone_server() as two, linked(one, two):
        await one.linked()
        await two.linked()
        await one.ask("hello", "tk-1")
        await two.ask("hello", "tk-1")
        await until(lambda: one.finals("tk-1") or two.finals("tk-1"))
        await one.ask("again", "tk-2")  # when it is answered, so would be the one before
        await one.final("tk-2")
        assert len(one.finals("tk-1") + two.finals("tk-1")) == 1


async def test_an_answer_goes_over_the_link_of_its_session_or_else_over_the_other() -> None:
    agent = an_agent()
    async with phone_server() as one, phone_server() as two, linked(one, two, agent=agent):
        await one.linked()
        await two.linked()
        for phone, session in ((one, "se-1"), (two, "se-2")):
            await phone.ask("hello", f"tk-{session}", session)
            await phone.final(f"tk-{session}")
        assert not one.answers.keys() & two.answers.keys()
        await one.ask("wait", "tk-3", "se-1")
        await until(lambda: "working" in one.states("tk-3"))
        await one.stop()
        agent.gate.set()  # type: ignore[attr-defined]
        assert text_of(await two.final("tk-3")) == "echo: wait"


async def test_an_answer_that_could_not_be_sent_is_sent_after_the_reconnect() -> None:
    agent = an_agent()
    async with phone_server() as phone, linked(phone, agent=agent) as links:
        await phone.ask("wait", "tk-1")
        await until(lambda: "working" in phone.states("tk-1"))
        await phone.stop()
        await until(lambda: not any(link.is_open for link in links.links.values()))
        agent.gate.set()  # type: ignore[attr-defined]
        await phone.start()
        assert text_of(await phone.final("tk-1")) == "echo: wait"
        assert len(phone.finals("tk-1")) == 1


async def test_a_process_that_starts_again_sends_what_phones_are_owed_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    async with phone_server() as phone:
        async with linked(phone, url=url):
            await phone.ask("hello", "tk-1")
            await phone.final("tk-1")
            await phone.ask("wait", "tk-2")
            await phone.ask("ask", "tk-3", "se-3")
            await phone.final("tk-3")
            await until(lambda: "working" in phone.states("tk-2"))
        agent = an_agent()
        agent.gate.set()  # type: ignore[attr-defined]
        async with linked(phone, url=url, agent=agent):
            assert text_of(await phone.final("tk-2")) == "echo: wait"
            await phone.ask("八点", "tk-4", "se-3")
            assert text_of(await phone.final("tk-4")) == "You said 八点"
        assert [len(phone.finals(task)) for task in ("tk-1", "tk-2", "tk-3")] == [1, 1, 1]


async def test_a_silent_task_is_kept_alive_without_a_message() -> None:
    agent = an_agent()
    async with phone_server() as phone, linked(phone, agent=agent, keep_alive=0.05):
        await phone.ask("wait", "tk-1")
        await until(lambda: phone.states("tk-1").count("working") >= 3)
        agent.gate.set()  # type: ignore[attr-defined]
        await phone.final("tk-1")
        working = [
            r for r in phone.results("tk-1") if r.get("status", {}).get("state") == "working"
        ]
        assert not any("message" in each["status"] for each in working)


async def test_heartbeats_are_sent() -> None:
    async with phone_server() as phone, linked(phone, heartbeat=0.02):
        beat = {"msgType": "heartbeat", "agentId": AGENT}
        await until(lambda: phone.frames.count(beat) >= 3)


async def test_bad_frames_are_survived() -> None:
    async with phone_server() as phone, linked(phone, message_size=100_000):
        link = await phone.linked()
        deep = json.dumps({"msgType": "data", "sessionId": "s", "msgDetail": "[" * 9000})
        for bad in ("nonsense", "[]", "[" * 5000, deep, '{"method":"nonsense","id":"1"}'):
            await link.send(bad)
        await link.send(json.dumps({"method": "message/stream", "agentId": "other", "id": "1"}))
        await link.send(b"\xff\xfe")
        await phone.ask("hello", "tk-1")
        await phone.final("tk-1")
        await link.send("x" * 200_000)  # too large: the link is dropped, and dialled again
        await until(lambda: phone.handshakes == 2 and phone.links)
        await phone.ask("again", "tk-2")
        await phone.final("tk-2")


@pytest.mark.parametrize("status", [401, 403])
async def test_a_server_that_refuses_ends_its_link_and_no_other(status: int) -> None:
    async with phone_server() as one, phone_server() as two:
        one.refuse = status
        async with linked(one, two) as links:
            await until(lambda: one.handshakes)
            await two.ask("hello", "tk-1")
            await two.final("tk-1")
            assert one.handshakes == 1
            assert links.ended is not None
            assert not links.ended.done()


async def test_wrong_keys_end_the_last_link_with_a_clear_line() -> None:
    async with phone_server() as phone, linked(phone, keys=SigningKeys(AGENT, AK, "no")) as links:
        assert links.ended is not None
        refused = await links.ended
        assert isinstance(refused, LinkRefused)
        assert "(401)" in refused.message
        assert refused.exit_code == 77


async def test_a_link_is_given_up_when_its_tries_are_used_up() -> None:
    def policy() -> ReconnectPolicy:
        return QuickPolicy(tries=3)

    async with phone_server() as phone:
        await phone.stop()
        async with linked(phone, policy=policy) as links:
            assert links.ended is not None
            ended = await links.ended
            assert type(ended) is LinkEnded
            assert "after 3 tries" in ended.message
            assert ended.exit_code == 69


class PingingServer:
    """A server that answers nothing, and may send pings of its own."""

    def __init__(self, *, pings: bool) -> None:
        self._pings = pings
        self.sent = 0

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        key = next(
            line for line in head.split("\r\n") if line.lower().startswith("sec-websocket-key")
        )
        accept = accept_key(key.partition(":")[2].strip())
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + accept.encode() + b"\r\n\r\n"
        )
        gone = asyncio.ensure_future(reader.read())
        while not (await asyncio.wait([gone], timeout=0.1))[0]:
            if self._pings:
                writer.write(b"\x89\x00")
                self.sent += 1
        writer.close()


@pytest.mark.parametrize("pings", [True, False])
@pytest.mark.slow  # takes several seconds
async def test_whatever_arrives_shows_that_a_server_is_there(pings: bool) -> None:
    async def hear(link: OutboundLink, frame: Frame) -> None: ...

    other = PingingServer(pings=pings)
    async with await asyncio.start_server(other.talk, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        link = OutboundLink(
            *(LinkServer(url), KEYS, hear, lambda: None),
            policy=QuickPolicy(),
            pings=(0.5, 1.5),
        )
        running = asyncio.ensure_future(link.run())
        await until(lambda: link.is_open)
        if pings:
            await until(lambda: other.sent > 50)  # five seconds, at least
            assert link.figures.status.failures == 0
        else:
            await until(lambda: link.figures.status.failures)
            assert "silent for" in link.figures.last_error
        running.cancel()
        await asyncio.wait([running])


async def test_a_server_that_stays_away_is_dialled_50_times() -> None:
    """To the end, a thousand times as fast: one dial, and 50 tries after it."""
    dials, pauses = 0, []

    class FastPolicy(ReconnectPolicy):
        def next_pause(self, held: float) -> float | None:
            pause = super().next_pause(held)
            if pause is not None:
                pauses.append(pause)
            return None if pause is None else pause / 10_000

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal dials
        dials += 1
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    class Address:
        url = f"ws://127.0.0.1:{port}/openclaw/v1/ws/link"

    async with (
        asyncio.timeout(240),
        server,
        linked(Address(), policy=FastPolicy) as links,  # type: ignore[arg-type]
    ):
        assert links.ended is not None
        ended = await links.ended
    assert type(ended) is LinkEnded
    assert "after 50 tries" in ended.message
    assert (dials, len(pauses)) == (51, 50)
    assert 1.8 <= pauses[0] <= 2.0
    assert 54.0 <= pauses[-1] <= 60.0


async def test_a_clear_deletes_the_route_and_the_next_message_sets_it_anew() -> None:
    """Two servers: the answer to each message goes to the one that asked, also after a clear that
    the other one has sent."""
    async with phone_server() as one, phone_server() as two, linked(one, two) as links:
        await one.linked()
        await two.linked()
        await one.ask("hello", "tk-1")
        await one.final("tk-1")
        id = await two.say("clearContext")
        await until(lambda: two.answers.get(id))
        assert id not in one.answers
        assert "se-1" not in links.session_routes
        await two.ask("hello", "tk-2")
        await two.final("tk-2")
        await one.ask("hello", "tk-3")
        await one.final("tk-3")
        assert (set(one.answers), set(two.answers)) == ({"tk-1", "tk-3"}, {id, "tk-2"})
