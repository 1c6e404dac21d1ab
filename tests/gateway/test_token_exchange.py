"""A gateway that acts for its callers: their tokens are exchanged (RFC 8693), not passed on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from dragoman import Agent, Task, Turn, connect
from dragoman.cli import main
from dragoman.client.agent import RemoteAgent
from dragoman.client.limits import ClientLimits
from dragoman.core.auth_schemes import ApiKeys, Jwt, Known, Scheme, Secret, Tokens
from dragoman.core.errors import DragomanError, Forbidden, PeerRefused, TaskNotFound
from dragoman.core.lifecycle import FINAL
from dragoman.core.model import State
from dragoman.settings import Settings
from dragoman.testing import served
from gateway.behind import gateway, section, settings
from gateway.liar import chunk, lying, status
from gateway.liar import task as task_told
from gateway.test_border import recorded
from gateway.token_server import CLIENT, SECRET, TokenServer, token_server
from iat.stranger import envelope
from ports import own_port
from security.issuer import AUDIENCE, ISSUER, Issuer
from waiting import forever, until

LIMIT = 240.0
FOR_ALICE, FOR_BOB = "exchanged-for-alice-0123456789", "exchanged-for-bob-0123456789"


def desk(begun: list[str] | None = None, canceled: list[str] | None = None) -> Agent:
    agent = Agent("Desk", description="Says for whom it works.")

    @agent.skill("who", default=True)
    async def who(turn: Turn) -> str:
        return turn.caller.principal

    @agent.skill("ask")
    async def ask(turn: Turn) -> str:
        return f"{turn.caller.principal} said {await turn.ask('What?')}"

    @agent.skill("slow")
    async def slow(turn: Turn) -> None:
        if begun is not None:
            begun.append(turn.caller.principal)
        await turn.artifact("begun")
        try:
            await forever()
        finally:
            if canceled is not None:
                canceled.append(turn.caller.principal)

    return agent


class Border:
    """A gateway with one agent behind it, which knows alice and bob by exchanged tokens only."""

    def __init__(self, folder: Path, tokens: TokenServer, issuer: Issuer) -> None:
        self.folder, self.tokens, self.issuer = folder, tokens, issuer
        self.subject = {
            name: issuer.token(issuer.claims(sub=name)) for name in ("alice", "bob", "carol")
        }
        tokens.tokens = {self.subject["alice"]: FOR_ALICE, self.subject["bob"]: FOR_BOB}
        (folder / "client").write_text(SECRET)
        (folder / "key").write_text("a-key-of-dave-0123456789")

    def behind(self, grpc_port: int = 0) -> Settings:
        callers = {}
        for name, token in {"al": FOR_ALICE, "bo": FOR_BOB}.items():
            (self.folder / name).write_text(token)
            callers[name] = Known(secret=Secret(file=str(self.folder / name)))
        own = settings(self.folder, name="worker", grpc_port=grpc_port)
        return replace(own, auth={"token": Tokens(callers=callers)})

    def front(self, store: str = "memory:") -> Settings:
        dave = {"dave": Known(secret=Secret(file=str(self.folder / "key")))}
        schemes: dict[str, Scheme] = {
            "sso": Jwt(
                issuer=ISSUER, audience=(AUDIENCE,), keys_file=self.issuer.save(self.folder)
            ),
            "keys": ApiKeys(location="header", name="x-api-key", callers=dave),
        }
        return settings(self.folder, store=store, auth=schemes)

    def section(self, url: str, dialect: str = "a2a-1.0", grpc_port: int = 0) -> dict[str, Any]:
        exchange = {
            "token_url": self.tokens.url,
            "client_id": CLIENT,
            "client_secret": {"file": str(self.folder / "client")},
            "audience": "https://desk.example.com",
            "resource": "https://desk.example.com/agent",
            "scopes": ["book", "look"],
        }
        return {
            **section(self.folder, url, dialect, grpc_port),
            "auth": {"exchange": exchange},
            "patience": 1.0,
        }


@pytest.fixture
async def border(tmp_path: Path) -> AsyncIterator[Border]:
    async with asyncio.timeout(LIMIT), token_server() as tokens:
        yield Border(tmp_path, tokens, Issuer())


async def one_id_for_all(method: str, params: dict[str, Any]) -> AsyncIterator[Any]:
    """An agent that gives the tasks of all its callers one id."""
    if method == "SendStreamingMessage":
        yield task_told("WORKING")
        await forever()
    elif method == "CancelTask":
        yield task_told("CANCELED")["task"]


async def test_a_cancel_is_made_with_the_token_that_the_caller_shows_with_it(
    border: Border,
) -> None:
    later = border.issuer.token(border.issuer.claims(sub="alice", jti="later"))
    border.tokens.tokens[later] = "exchanged-for-alice-later"
    async with (
        lying(one_id_for_all) as liar,
        gateway({"desk": border.section(liar.url)}, border.front()) as door,
        calling(door.url, border.subject["alice"]) as alice,
        calling(door.url, border.subject["bob"]) as bob,
        calling(door.url, later) as alice_later,
    ):
        tasks = [await each.send("x", wait=False) for each in (alice, bob, alice)]
        await until(lambda: liar.count("SendStreamingMessage") == 3)
        for caller, task in zip((alice, bob, alice_later), tasks, strict=True):
            assert (await caller.cancel(task)).state is State.CANCELED
        await until(lambda: liar.count("CancelTask") == 3)
        canceled = [
            headers["authorization"]
            for (method, _), headers in zip(liar.asked, liar.headers, strict=True)
            if method == "CancelTask"
        ]
        tokens = (FOR_ALICE, FOR_BOB, "exchanged-for-alice-later")
        assert canceled == [f"Bearer {token}" for token in tokens]


class IatSession:
    """A caller that showed its token once, and has a session of IAT since then."""

    def __init__(self, url: str, token: str = "") -> None:
        self.url, self.token = url, token

    async def ask(self, action: str, bearer: str = "", **payload: Any) -> dict[str, Any]:
        said = {"action": action, **payload}
        body = envelope("request", said, sender="desk-caller", to="", token=self.token)
        headers = {"authorization": f"Bearer {bearer}"} if bearer else {}
        async with httpx2.AsyncClient() as client:
            reply = await client.post(f"{self.url}/iat", json=body, headers=headers, timeout=60)
        found = reply.json()["payload"]
        assert isinstance(found, dict)
        return found

    async def register(self, bearer: str) -> None:
        about = {"agent_id": "desk-caller", "manifest": {"name": "Desk caller", "tools": []}}
        self.token = (await self.ask("register", bearer, **about))["session_token"]


async def patient(method: str, params: dict[str, Any]) -> AsyncIterator[Any]:
    """An agent that asks back, or works until it is canceled."""
    if method == "SendStreamingMessage" and params["message"]["parts"][0]["text"] == "ask":
        yield task_told("WORKING", "its-question")
        yield status("INPUT_REQUIRED", "What?", "its-question")
    elif method == "SendStreamingMessage":
        yield task_told("WORKING", "its-work")
        yield chunk("begun", "its-work")
        await forever()
    elif method == "CancelTask":
        yield task_told("CANCELED", params["id"])["task"]


@pytest.mark.slow  # takes several seconds
async def test_a_cancel_without_a_token_after_a_restart_is_refused_in_words(
    border: Border, tmp_path: Path
) -> None:
    front = border.front(f"sqlite:///{tmp_path}/tasks.db")
    async with lying(patient) as liar:
        sections = {"desk": border.section(liar.url)}
        async with (
            gateway(sections, front) as door,
            calling(door.url, border.subject["alice"]) as alice,
        ):
            asking, slow = await alice.send("ask"), await running(alice)
            session = IatSession(door.url)
            await session.register(border.subject["alice"])
        async with (
            gateway(sections, front) as door,
            calling(door.url, border.subject["alice"]) as alice,
        ):
            session.url = door.url
            refused = await session.ask("terminate", task_id=asking.id)
            assert "show a token of an issuer to cancel" in refused["error"]["message"], refused
            await settled(alice, slow)  # it failed, and our own credentials canceled nothing
            assert (await alice.get(asking)).state is State.INPUT_REQUIRED
            assert not liar.count("CancelTask")
            assert (await alice.cancel(asking)).state is State.CANCELED
            await until(lambda: liar.count("CancelTask") == 1)
            other = await running(alice)
            await session.ask("terminate", task_id=other.id)  # of this one we have the token
            assert (await settled(alice, other)).state is State.CANCELED
            await until(lambda: liar.count("CancelTask") == 2)
    canceled = [
        (params["id"], headers.get("authorization"))
        for (method, params), headers in zip(liar.asked, liar.headers, strict=True)
        if method == "CancelTask"
    ]
    assert canceled == [(id, f"Bearer {FOR_ALICE}") for id in ("its-question", "its-work")]


async def running(caller: RemoteAgent) -> Task:
    """A task of this caller that goes on until it is canceled."""
    task = await caller.send("work", wait=False)
    assert isinstance(task, Task)

    async def has_begun() -> bool:
        return bool((await caller.get(task)).artifacts)

    await until(has_begun)
    return task


@pytest.mark.slow  # takes several seconds
async def test_nobody_lends_a_token_to_the_task_of_somebody_else(
    border: Border, tmp_path: Path
) -> None:
    front = border.front(f"sqlite:///{tmp_path}/tasks.db")
    async with recorded(border.behind(), desk()) as (url, seen):
        sections = {"desk": border.section(url)}
        async with (
            gateway(sections, front) as door,
            calling(door.url, border.subject["alice"]) as alice,
        ):
            asking = await alice.send("x", skill="ask")
            session = IatSession(door.url)
            await session.register(border.subject["alice"])
        async with (
            gateway(sections, front) as door,
            calling(door.url, border.subject["alice"]) as alice,
            calling(door.url, border.subject["bob"]) as bob,
        ):
            with pytest.raises(TaskNotFound):
                await bob.cancel(asking)
            session.url = door.url
            await session.ask("execute", task_id=asking.id, query="yes")
            assert reason_of(await settled(alice, asking)) == "caller_token_missing"
    assert not [each for each in seen if FOR_BOB in each]


@pytest.mark.parametrize("code", [429, 500, 503])
async def test_a_token_server_that_cannot_answer_is_away(border: Border, code: int) -> None:
    async with (
        served(desk(), border.behind()) as url,
        gateway({"desk": border.section(url)}, border.front()) as door,
        connect(door.url, auth=border.subject["alice"], limits=ClientLimits(retries=0)) as alice,
    ):
        border.tokens.status = code
        with pytest.raises(DragomanError) as caught:
            await alice.send("x")
        assert not isinstance(caught.value, Forbidden | PeerRefused), caught.value
        assert caught.value.retry
        assert "cannot be reached" in caught.value.message
        border.tokens.status = 0
        assert (await alice.send("x")).text == "al"


def reason_of(task: Task) -> object:
    message = task.status.message
    assert message is not None
    return (message.metadata or {}).get("reason")


async def settled(caller: RemoteAgent, task: Task) -> Task:
    """The task, when it has ended."""

    async def ended() -> Task | None:
        found = await caller.get(task)
        return found if found.state in FINAL else None

    found = await until(ended)
    assert isinstance(found, Task)
    return found


def stored(folder: Path) -> bytes:
    files = (each for each in folder.glob("tasks.db*") if each.is_file())
    return b"".join(each.read_bytes() for each in files)


@asynccontextmanager
async def calling(url: str, token: str) -> AsyncIterator[RemoteAgent]:
    async with connect(url, auth=token) as caller:
        yield caller


@pytest.mark.parametrize("dialect", ["a2a-1.0", "a2a-1.0-rest", "a2a-1.0-grpc", "a2a-0.3"])
async def test_each_caller_is_acted_for_with_a_token_of_its_own(
    border: Border, dialect: str
) -> None:
    grpc_port = own_port() if "grpc" in dialect else 0
    begun: list[str] = []
    canceled: list[str] = []
    async with (
        recorded(border.behind(grpc_port), desk(begun, canceled)) as (url, seen),
        gateway({"desk": border.section(url, dialect, grpc_port)}, border.front()) as door,
        calling(door.url, border.subject["alice"]) as alice,
        calling(door.url, border.subject["bob"]) as bob,
    ):
        for _ in range(2):
            for caller, name in ((alice, "al"), (bob, "bo")):
                done = await caller.send("x", skill="who")
                assert isinstance(done, Task)
                assert done.text == name
        asking = await alice.send("x", skill="ask")
        assert isinstance(asking, Task)
        answered = await alice.answer(asking, "yes")
        assert answered.text == "al said yes"
        slow = await bob.send("x", skill="slow", wait=False)
        assert isinstance(slow, Task)
        await until(lambda: begun)
        assert (await bob.cancel(slow)).state is State.CANCELED
        await until(lambda: canceled == ["bo"])
    assert [each for each in seen if FOR_ALICE in each]
    for each in seen:  # the agent saw none of the tokens that our callers showed
        assert not any(token in each for token in border.subject.values())
    first, second = border.tokens.asked  # each token was exchanged once
    assert {first["subject_token"], second["subject_token"]} == set(border.tokens.tokens)
    assert first["subject_token_type"] == "urn:ietf:params:oauth:token-type:access_token"
    assert first["audience"] == "https://desk.example.com"
    assert first["resource"] == "https://desk.example.com/agent"
    assert first["scope"] == "book look"


@pytest.mark.slow  # takes two seconds
async def test_a_token_is_exchanged_again_when_it_has_expired_or_was_refused(
    border: Border,
) -> None:
    border.tokens.life = 1
    async with (
        served(desk(), border.behind()) as url,
        gateway({"desk": border.section(url)}, border.front()) as door,
        calling(door.url, border.subject["alice"]) as alice,
    ):
        sent, refused = await alice.send("x"), list[PeerRefused]()

        async def asked_again() -> bool:
            nonlocal sent
            before = len(border.tokens.asked)
            try:
                sent = await alice.send("x")
            except PeerRefused as exc:
                refused.append(exc)
            return len(border.tokens.asked) > before

        await until(asked_again)
        assert isinstance(sent, Task)
        assert sent.text == "al"
        border.tokens.life = 3600
        border.tokens.tokens[border.subject["alice"]] = "a-token-that-desk-does-not-know"
        await until(asked_again)
        assert refused
        border.tokens.tokens[border.subject["alice"]] = FOR_ALICE
        done = await alice.send("x")
        assert isinstance(done, Task)
        assert done.text == "al"


async def test_callers_that_cannot_be_acted_for_are_refused_and_nothing_of_ours_is_used(
    border: Border,
) -> None:
    async with (
        served(desk(), border.behind()) as url,
        gateway({"desk": border.section(url)}, border.front()) as door,
        connect(door.url, auth={"x-api-key": "a-key-of-dave-0123456789"}) as dave,
        calling(door.url, border.subject["carol"]) as carol,
    ):
        missing, refused = "show a token of an issuer", "cannot be called for this caller"
        for caller, words in ((dave, missing), (carol, refused)):
            with pytest.raises(Forbidden, match=words) as caught:
                await caller.send("x")
            for secret in (border.subject["carol"], SECRET, FOR_ALICE):
                assert secret not in repr((caught.value, caught.value.public))


@pytest.mark.slow  # takes several seconds
async def test_a_task_goes_on_after_a_restart_when_its_caller_shows_a_token_again(
    border: Border, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    front = border.front(f"sqlite:///{tmp_path}/tasks.db")
    async with served(desk(), border.behind()) as url:
        sections = {"desk": border.section(url)}
        async with (
            gateway(sections, front) as door,
            calling(door.url, border.subject["alice"]) as alice,
        ):
            asking = await alice.send("x", skill="ask")
            assert isinstance(asking, Task)
            assert asking.state is State.INPUT_REQUIRED
            slow = await alice.send("x", skill="slow", wait=False)

            async def is_followed() -> bool:
                return bool((await alice.get(slow)).artifacts)

            await until(is_followed)
        async with (
            gateway(sections, front) as door,
            calling(door.url, border.subject["alice"]) as alice,
        ):
            answered = await alice.answer(asking, "yes")
            assert answered.text == "al said yes"
            # Nobody has shown a token for this one, so it cannot be followed.
            failed = await settled(alice, slow)
            assert failed.state is State.FAILED
            assert reason_of(failed) == "caller_token_missing"
    kept = stored(tmp_path)
    out, err = capfd.readouterr()
    for secret in (border.subject["alice"], FOR_ALICE, SECRET):
        assert secret.encode() not in kept
        assert secret not in out + err


async def test_a_client_that_the_server_does_not_know_is_our_mistake(
    border: Border, tmp_path: Path
) -> None:
    (tmp_path / "client").write_text("another-secret")
    async with (
        served(desk(), border.behind()) as url,
        gateway({"desk": border.section(url)}, border.front()) as door,
        calling(door.url, border.subject["alice"]) as alice,
    ):
        with pytest.raises(PeerRefused, match="desk cannot be called for its callers"):
            await alice.send("x")


HEAD = '[agents.a]\nurl = "https://a.example"\n[agents.a.auth.exchange]\n'
GOOD = 'token_url = "https://id.example/token"\nclient_id = "us"\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (HEAD + 'client_id = "us"\n', "toml:3: [agents.a]: Object missing required field `token_"),
        (HEAD + GOOD + 'scope = "x"\n', "unknown field `scope`; did you mean `scopes`?"),
        (HEAD + GOOD + 'client_secret = "geheim"\n', "a secret is never written here"),
        (
            HEAD + 'token_url = "http://id.example/token"\nclient_id = "us"\n',
            "toml:3: [agents.a] auth: exchange.token_url must begin with https://",
        ),
        (
            HEAD.replace("https://a.example", "iat+https://a.example/iat") + GOOD,
            "toml:3: [agents.a] auth: exchange: one connection of IAT serves all callers",
        ),
    ],
)
def test_a_mistake_is_told_with_its_line(
    tmp_path: Path,
    text: str,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "dragoman.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["gateway", "check"])
    err = capsys.readouterr().err
    assert ended.value.code == 2
    assert says in err
    assert "geheim" not in err
