"""What an author switches off is off in every binding: the card says so, the operations too."""

from __future__ import annotations

import pytest

from dragoman import Agent, Turn
from dragoman.core.auth_schemes import Known, Secret, Tokens
from dragoman.core.errors import ConfigError, NoExtendedCard, PushUnsupported, Unsupported
from dragoman.core.model import Hook, Task
from dragoman.core.operations import DeleteHook, GetExtendedCard, GetHook, ListHooks, SetHook, Watch
from dragoman.settings import Push
from semantics.ways import WAYS, RunningServer, Way, said, served

ways = pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
TOKEN = "token-of-alice-0123456789"
HOOK = Hook(hook_id="h", task_id="t", url="http://127.0.0.1:9/x")


def desk(**switches: bool) -> Agent:
    agent = Agent("Desk", **switches)  # type: ignore[arg-type]

    @agent.skill("echo")
    async def echo(turn: Turn) -> str:
        return turn.text

    return agent


def code(way: Way, rpc: int, rest: dict[str, int], grpc: int) -> int:
    """What this way says for it."""
    kind, _, version = way.name.partition(" ")
    return {"JSON-RPC": rpc, "REST": rest.get(version, 0), "gRPC": grpc}[kind]


@ways
async def test_without_streaming_there_are_no_streams(way: Way) -> None:
    async with served(desk(streaming=False)) as server:
        for op in (said("hi"), Watch(task_id="t")):
            heard = await way.ask(server, op, stream=True)
            assert type(heard.error) is Unsupported
            # gRPC 0.3 as its SDKs did: UNIMPLEMENTED; 1.0 FAILED_PRECONDITION.
            grpc = 9 if way.name == "gRPC 1.0" else 12
            assert heard.code == code(way, -32004, {"1.0": 400, "0.3": 501}, grpc)
        heard = await way.ask(server, said("hi"))
        assert isinstance(heard.answer, Task)
        assert heard.answer.text == "hi"


@ways
async def test_without_push_there_are_no_webhooks(way: Way) -> None:
    async with served(desk(push=False)) as server:
        grpc = 9 if way.name == "gRPC 1.0" else 12
        asked = 0
        for op in (
            SetHook(hook=HOOK),
            GetHook(task_id="t", hook_id="h"),
            ListHooks(task_id="t"),
            DeleteHook(task_id="t", hook_id="h"),
            said("hi", hook=HOOK),
        ):
            heard = await way.ask(server, op)
            if heard.unasked:
                continue
            asked += 1
            assert type(heard.error) is PushUnsupported, op
            assert heard.code == code(way, -32003, {"1.0": 400, "0.3": 501}, grpc)
        assert asked >= 3  # 0.1 has neither list nor delete


@ways
async def test_an_inline_webhook_is_refused_in_a_stream_too(way: Way) -> None:
    async with served(desk(push=False)) as server:
        heard = await way.ask(server, said("hi", hook=HOOK), stream=True)
        assert type(heard.error) is PushUnsupported


@ways
async def test_the_operator_can_switch_push_off(way: Way) -> None:
    async with served(desk(), push=Push(enabled=False)) as server:
        heard = await way.ask(server, SetHook(hook=HOOK))
        assert type(heard.error) is PushUnsupported


@ways
@pytest.mark.parametrize("locked", [False, True])
async def test_without_extended_card_there_is_none(
    way: Way, locked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN_OF_ALICE", TOKEN)
    agent = desk(extended_card=False)
    agent.skill("hidden", extended=True)(agent.skills["echo"].function)
    if locked:
        agent.auth["key"] = Tokens(callers={"alice": Known(secret=Secret(env="TOKEN_OF_ALICE"))})
    async with served(agent) as server:
        headers = {"authorization": f"Bearer {TOKEN}"} if locked else {}
        heard = await way.ask(server, GetExtendedCard(), headers=headers)
        if way.name == "JSON-RPC 0.1":
            assert heard.unasked  # it has no such method
            return
        if way.name == "gRPC 0.3":  # its rpc asks for the card, whichever there is
            assert heard.answer is not None
            assert "hidden" not in [skill.id for skill in heard.answer.skills]
            return
        # A capability that is absent is an unsupported operation in 1.0 (§3.1.11); 0.3 has one
        # error for all of it.
        new = way.name.endswith("1.0")
        assert type(heard.error) is (Unsupported if new else NoExtendedCard)
        assert heard.code == code(
            way, -32004 if new else -32007, {"1.0": 400, "0.3": 404}, 9 if new else 12
        )


async def capabilities(server: RunningServer, version: str) -> dict[str, object]:
    headers = {"a2a-version": version} if version else {}
    reply = await server.client.get("/.well-known/agent-card.json", headers=headers)
    return reply.json()["capabilities"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("version", ["1.0", ""])
async def test_the_card_says_what_is_on(version: str) -> None:
    async with served(desk()) as server:
        can = await capabilities(server, version)
        assert (can["streaming"], can["pushNotifications"]) == (True, True)
    async with served(desk(streaming=False, push=False, extended_card=False)) as server:
        can = await capabilities(server, version)
        assert (can["streaming"], can["pushNotifications"]) == (False, False)
        assert can["extendedAgentCard"] is False


def test_a_card_that_is_off_cannot_be_written() -> None:
    with pytest.raises(ConfigError, match="switched off"):
        desk(extended_card=False).extended_card(lambda caller: None)
