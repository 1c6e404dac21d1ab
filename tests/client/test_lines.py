"""Which way is taken when one fails, what is tried again, and who learns who we are."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from client.cutter import cutting
from client.our_server import QUICK, make_agent, open_server
from client.test_cards import answering, said
from dragoman import Link, State, Task, connect
from dragoman.client import ClientLimits, Credentials
from dragoman.client.credentials import Certificate, origin_of
from dragoman.core.auth_schemes import Known, Secret, Tokens
from dragoman.core.card import Card, Interface, Requirement
from dragoman.core.errors import (
    BadParams,
    NotCancelable,
    PeerMisbehaved,
    PeerRefused,
    PeerUnreachable,
    TaskNotFound,
    TooLarge,
    TooMany,
    Unauthenticated,
    UnknownMethod,
    Unsupported,
)
from ports import own_port
from waiting import until


def at(*interfaces: tuple[str, str, str]) -> Card:
    return Card(
        name="x",
        description="",
        version="",
        interfaces=tuple(
            Interface(url=url, binding=binding, version=version)
            for url, binding, version in interfaces
        ),
    )


@pytest.mark.parametrize("streamed", [False, True])
async def test_if_one_way_fails_another_is_taken(streamed: bool) -> None:
    """Spec 0.3 §5.6.3: nobody there, not spoken there, nothing there; then the one that works."""

    def other(path: str, head: str) -> bytes:
        return said("404 Not Found", b"<html>nothing</html>", "content-type: text/html")

    async with open_server() as served, answering(other) as (wrong, _):
        dead = f"http://127.0.0.1:{own_port()}"
        card = at(
            (f"{dead}/", "JSONRPC", "1.0"),
            (dead.removeprefix("http://"), "GRPC", "1.0"),
            (wrong, "HTTP+JSON", "1.0"),
            (f"{wrong}/", "JSONRPC", "1.0"),
            (served.url + "/", "JSONRPC", "0.3"),
        )
        async with connect(served.url, card=card, limits=QUICK) as agent:
            if streamed:
                assert (await agent.stream("hi").result()).text == "HI"
            else:
                assert (await agent.send("hi")).text == "HI"
            assert agent.dialect == "a2a-0.3"  # and it stays there


async def test_the_preferred_way_is_taken_again_when_it_is_back() -> None:
    """A refused connection says nothing about later; a dialect that is not spoken does."""

    def other(path: str, head: str) -> bytes:
        return said("404 Not Found", b"<html>nothing</html>", "content-type: text/html")

    async with open_server() as served, answering(other) as (wrong, _):
        port = own_port()
        card = at(
            (f"{wrong}/", "JSONRPC", "1.0"),
            (f"http://127.0.0.1:{port}", "HTTP+JSON", "1.0"),
            (f"{served.url}/", "JSONRPC", "0.3"),
        )
        limits = replace(QUICK, prefer_again=0.2)
        async with connect(served.url, card=card, limits=limits) as agent:
            assert (await agent.send("hi")).text == "HI"
            assert agent.dialect == "a2a-0.3"
            async with cutting(served.port, 1, port=port) as (proxy, _):
                proxy.on = False

                async def is_back() -> bool:
                    assert (await agent.send("hi")).text == "HI"
                    return agent.dialect == "a2a-1.0-rest"

                await until(is_back)
                assert (await agent.stream("hi").result()).text == "HI"
                assert agent.dialect == "a2a-1.0-rest"


async def test_an_old_agent_is_found_out() -> None:
    """A card that does not say its version: 0.3 is refused as unknown, 0.1 works."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        asked = msgspec.json.decode(await reader.readexactly(size))
        answer: dict[str, object] = {"jsonrpc": "2.0", "id": asked["id"]}
        if asked["method"] == "tasks/send":
            answer["result"] = {"id": asked["params"]["id"], "status": {"state": "completed"}}
        else:
            answer["error"] = {"code": -32601, "message": "Method not found"}
        writer.write(said("200 OK", msgspec.json.encode(answer), "content-type: application/json"))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    card = msgspec.json.encode({"name": "Old", "url": url})
    async with connect(url, card=card) as agent:
        assert isinstance(await agent.send("hi"), Task)
        assert agent.dialect == "a2a-0.1"
    server.close()


async def test_no_way_at_all_is_said() -> None:
    card = at(("https://x.example/", "SOAP", "1.0"))
    with pytest.raises(Unsupported, match="SOAP"):
        async with connect("https://x.example", card=card):
            pass
    with pytest.raises(PeerUnreachable, match="cannot be reached"):
        async with connect(f"http://127.0.0.1:{own_port()}"):
            pass


async def test_a_send_that_may_have_arrived_is_not_sent_twice() -> None:
    """Without idempotency on the card; reading is tried again."""
    async with answering(lambda path, head: b"") as (url, heads):
        card = at((url + "/", "JSONRPC", "1.0"))
        limits = replace(QUICK, retries=3)
        async with connect(url, card=card, limits=limits) as agent:
            with pytest.raises(PeerUnreachable) as caught:
                await agent.send("hi")
            assert caught.value.sent
            assert len(heads) == 1
            assert "idempotency-key" in heads[0].lower()
            with pytest.raises(PeerUnreachable):
                await agent.get("t")
            assert len(heads) == 1 + 1 + 3


async def test_too_many_waits_as_it_is_told() -> None:
    answers = [said("429 Slow down", b"", "retry-after: 1")] * 2

    def answer(path: str, head: str) -> bytes:
        return answers.pop() if answers else said("200 OK", b'{"id":"t","status":{"state":3}}')

    async with answering(answer) as (url, _):
        card = at((url, "HTTP+JSON", "1.0"))
        limits = replace(QUICK, backoff_most=0.2)  # nobody is believed without limit
        async with connect(url, card=card, limits=limits) as agent:
            began = asyncio.get_running_loop().time()
            assert (await agent.get("t")).id == "t"
            assert asyncio.get_running_loop().time() - began >= 0.4
        answers[:] = [said("429 Slow down")] * 9
        async with connect(url, card=card, limits=replace(QUICK, retries=1)) as agent:
            with pytest.raises(TooMany):
                await agent.get("t")


# Who we are.


def guarded(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.setenv("TOKEN_OF_ANN", "s3cret-of-ann-123")
    agent = make_agent()
    agent.auth["token"] = Tokens(callers={"ann": Known(secret=Secret(env="TOKEN_OF_ANN"))})
    return open_server(agent)


@pytest.mark.parametrize("dialect", ["a2a-1.0", "a2a-0.3-rest", "a2a-1.0-grpc"])
async def test_credentials_open_the_door(monkeypatch: pytest.MonkeyPatch, dialect: str) -> None:
    async with guarded(monkeypatch) as served:
        grpc = f"http://127.0.0.1:{served.app.ports['grpc']}"
        async with connect(
            served.url, dialect=dialect, auth="s3cret-of-ann-123", origins=[grpc]
        ) as agent:
            assert (await agent.send("hi")).text == "HI"
            assert (await agent.stream("hi").result()).text == "HI"
        async with connect(served.url, dialect=dialect) as agent:
            with pytest.raises(Unauthenticated):
                await agent.send("hi")


async def test_refused_credentials_are_renewed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Renewing:
        def __init__(self) -> None:
            self.asked: list[tuple[str, str | None]] = []

        async def credentials(
            self,
            origin: str,
            card: Card | None,
            required: tuple[Requirement, ...],
            *,
            refused: str | None,
        ) -> Credentials:
            assert card is not None
            assert [*required[0]] == ["token"]
            self.asked.append((origin, refused))
            token = "old" if refused is None else "s3cret-of-ann-123"
            return Credentials(headers={"authorization": f"Bearer {token}"})

        def certificate(self, origin: str) -> Certificate | None:
            return None

    async with guarded(monkeypatch) as served:
        auth = Renewing()
        async with connect(served.url, dialect="a2a-1.0", auth=auth) as agent:
            assert (await agent.send("hi")).text == "HI"
            assert (await agent.send("hi")).text == "HI"
        (first, none), (second, challenge) = auth.asked
        assert (first, none) == (origin_of(served.url), None)
        assert second == first
        assert challenge is not None
        assert "Bearer" in challenge


async def test_credentials_stay_at_the_origin_that_was_typed() -> None:
    """A card may name any address; another port is another origin already."""

    def answer(path: str, head: str) -> bytes:
        return said("200 OK", b'{"id":"t","status":{"state":3}}')

    async with answering(answer) as (home, at_home), answering(answer) as (other, elsewhere):
        for url, heads in ((home, at_home), (other, elsewhere)):
            card = at((url, "HTTP+JSON", "1.0"))
            async with connect(home, card=card, auth="s3cret-of-ann-123") as agent:
                await agent.get("t")
            assert ("s3cret-of-ann-123" in heads[-1]) == (url == home)
        async with connect(home, card=card, auth="s3cret-of-ann-123", origins=[other]) as agent:
            await agent.get("t")
        assert "s3cret-of-ann-123" in elsewhere[-1]
        assert "s3cret-of-ann-123" not in repr(
            Credentials(headers={"authorization": "s3cret-of-ann-123"})
        )


async def test_credentials_go_where_the_scheme_wants_them() -> None:
    class Everywhere:
        async def credentials(
            self,
            origin: str,
            card: Card | None,
            required: tuple[Requirement, ...],
            *,
            refused: str | None,
        ) -> Credentials:
            return Credentials(headers={"cookie": "a=1"}, query={"key": "x y"}, until=0)

        def certificate(self, origin: str) -> Certificate | None:
            return None

    def answer(path: str, head: str) -> bytes:
        return said("200 OK", b'{"id":"t","status":{"state":3}}')

    async with answering(answer) as (url, heads):
        card = at((f"{url}/base?v=1", "JSONRPC", "1.0"), (url, "HTTP+JSON", "1.0"))
        async with connect(url, card=card, auth=Everywhere(), prefer=["HTTP+JSON"]) as agent:
            await agent.get("t", history_length=2)
        assert heads[-1].split()[1] == "/tasks/t?historyLength=2&key=x+y"
        assert "cookie: a=1" in heads[-1]


async def test_a_card_is_fetched_through_broken_connections() -> None:
    async with open_server() as served, cutting(served.port, 3) as (cutter, port):
        left = [3]

        def fewer() -> int:
            left[0] -= 1
            return 400 if left[0] > 0 else 10**9

        cutter.after = fewer
        async with connect(f"http://127.0.0.1:{port}/", limits=QUICK) as agent:
            assert agent.card.name == "Desk"
        assert cutter.cuts == 2


async def test_addresses_of_a_card_are_guarded() -> None:
    card = at(("http://127.0.0.1:1/", "JSONRPC", "1.0"))
    with pytest.raises(BadParams, match="may not be called"):
        async with connect("https://agent.example.com", card=card):
            pass
    card = at(("https://169.254.169.254/", "JSONRPC", "1.0"))
    with pytest.raises(BadParams, match="may not be called"):
        async with connect("https://agent.example.com", card=card, allow_private=True):
            pass


# Limits.


async def test_answers_have_a_size_a_depth_and_a_time() -> None:
    bodies = [b"x" * 5000, b'{"id":"t","status":' + b"[" * 100 + b"]" * 100 + b"}"]

    def answer(path: str, head: str) -> bytes:
        return said("200 OK", bodies.pop(0))

    async with answering(answer) as (url, _):
        card = at((url, "HTTP+JSON", "1.0"))
        async with connect(
            url, card=card, limits=ClientLimits(answer_size=4096, retries=0)
        ) as agent:
            with pytest.raises(PeerMisbehaved, match="larger"):
                await agent.get("t")
            with pytest.raises(PeerMisbehaved, match="deeper"):
                await agent.get("t")

    given_up = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # until the other side gives up
        writer.close()
        given_up.set()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    card = at((url, "HTTP+JSON", "1.0"))
    limits = ClientLimits(retries=0)
    async with connect(url, card=card, limits=limits, timeout=0.2) as agent:
        with pytest.raises(PeerUnreachable, match="in time"):
            await agent.get("t")
    await given_up.wait()
    server.close()


async def test_files_elsewhere_are_fetched_within_limits(tmp_path: Path) -> None:
    def answer(path: str, head: str) -> bytes:
        return said("200 OK", b"x" * 1000) if path == "/a/b.bin" else said("404 No")

    async with answering(answer) as (url, heads), open_server() as served:
        seen: list[tuple[int, int | None]] = []
        async with connect(served.url, auth="s3cret-of-ann-123") as agent:
            part = Link(f"{url}/a/b.bin")
            content = await agent.fetch(part, progress=lambda *told: seen.append(told))
            assert len(content) == 1000
            assert seen[-1] == (1000, 1000)
            assert "s3cret-of-ann-123" not in heads[-1]
            (path,) = await agent.save(part, tmp_path)
            assert path.name == "b.bin"
            with pytest.raises(TooLarge):
                await agent.fetch(part, max_size=999)
            with pytest.raises(PeerRefused):
                await agent.fetch(Link(f"{url}/nothing"))
            with pytest.raises(BadParams):
                await agent.fetch(Link("http://10.0.0.1/x"))
            with pytest.raises(BadParams):
                await agent.fetch(Link("file:///etc/passwd"))
            big = tmp_path / "big"
            big.write_bytes(b"x" * 100)
        async with connect(served.url, limits=ClientLimits(file_size=50)) as agent:
            with pytest.raises(TooLarge):
                await agent.send(big)


# 404 over REST: of a path that is not served, or of a task.


@pytest.mark.parametrize(
    "nothing",
    [
        (b"<html>nothing</html>", "text/html"),
        (b'{"detail":"Not Found"}', "application/json"),
        (b'{"error":{"code":404,"message":"Method not found.","status":"NOT_FOUND"}}', "x/json"),
        (b"", "text/plain"),
    ],
    ids=["html", "fastapi", "google", "empty"],
)
async def test_a_404_that_names_no_task_is_a_way_that_is_not_there(
    nothing: tuple[bytes, str],
) -> None:
    body, kind = nothing

    def other(path: str, head: str) -> bytes:
        return said("404 Not Found", body, f"content-type: {kind}")

    async with open_server() as served, answering(other) as (wrong, _):
        card = at((wrong, "HTTP+JSON", "1.0"), (f"{served.url}/", "JSONRPC", "1.0"))
        async with connect(served.url, card=card, limits=QUICK) as agent:
            task = await agent.send("hi")
            assert isinstance(task, Task)
        async with connect(served.url, card=card, limits=QUICK) as agent:
            with pytest.raises(NotCancelable):
                await agent.cancel(task)
            with pytest.raises(Unsupported):
                await agent.extended_card()
            assert (await agent.list()).total == 1
            assert agent.dialect == "a2a-1.0"
        for look in ("get", "watch"):
            async with connect(served.url, card=card, limits=QUICK) as agent:
                seen = agent.get(task) if look == "get" else agent.watch(task).result()
                assert (await seen).text == "HI"
        alone = at((wrong, "HTTP+JSON", "1.0"))
        async with connect(wrong, card=alone, limits=QUICK) as agent:
            for asked in (agent.get("t"), agent.send("hi"), agent.send("hi", task="t")):
                with pytest.raises(UnknownMethod):
                    await asked


async def test_a_task_that_is_not_there_is_no_reason_to_try_another_way() -> None:
    no_task = msgspec.json.encode({"message": "Task not found"})
    async with (
        answering(lambda path, head: said("404 Not Found", no_task)) as (url, heads),
        answering(lambda path, head: said("500 Oops")) as (other, others),
    ):
        card = at((url, "HTTP+JSON", "0.3"), (f"{other}/", "JSONRPC", "0.3"))
        async with connect(url, card=card, limits=QUICK) as agent:
            with pytest.raises(TaskNotFound, match="Task not found"):
                await agent.get("t")
        assert (len(heads), others) == (1, [])


async def test_a_stream_that_has_no_path_is_told_by_looking() -> None:
    """Its 404 is about the method, so the message goes another way to the same agent."""
    states = ["TASK_STATE_WORKING", "TASK_STATE_COMPLETED"]

    def answer(path: str, head: str) -> bytes:
        if path == "/message:stream":
            return said("404 Not Found", b'{"detail":"Not Found"}')
        state = states.pop(0) if len(states) > 1 else states[0]
        task = {"id": "t", "contextId": "c", "status": {"state": state}}
        return said("200 OK", msgspec.json.encode({"task": task} if "send" in path else task))

    async with answering(answer) as (url, _):
        card = replace(at((url, "HTTP+JSON", "1.0")), streaming=True)
        async with connect(url, card=card, limits=QUICK) as agent:
            result = await agent.stream("hi").result()
            assert isinstance(result, Task)
            assert result.state is State.COMPLETED
