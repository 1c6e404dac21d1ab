"""The cards of agents behind a gateway: read, read again, and never believed too much."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cards.forge import public
from dragoman import State, Task, connect
from dragoman.client.limits import ClientLimits
from dragoman.core.errors import DragomanError
from dragoman.dialects.a2a.cards import signatures
from dragoman.security.card_signing import new_key
from dragoman.testing.served import served
from gateway.behind import gateway, settings, worker
from gateway.liar import lying, task
from ports import own_port
from waiting import until

LIMIT = 240.0


async def script(method: str, params: dict[str, Any]) -> AsyncIterator[Any]:
    yield task("COMPLETED")


async def test_a_changed_card_is_served_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with asyncio.timeout(LIMIT), lying(script) as liar:
        sections = {"liar": {"url": liar.url, "refresh": 0.05}}
        async with gateway(sections, settings(tmp_path)) as door, httpx2.AsyncClient() as client:
            where = f"{door.at('liar')}/.well-known/agent-card.json"
            first = await client.get(where)
            assert first.json()["description"] == "Lies."
            await until(lambda: liar.revalidated > 2)  # by its ETag
            same = await client.get(where, headers={"if-none-match": first.headers["etag"]})
            assert same.status_code == 304
            skill = {"id": "new", "name": "n", "description": "n", "tags": ["n"]}
            liar.more = {"description": "Lies better.", "skills": [skill]}

            async def changed() -> bool:
                shown = await client.get(where, headers={"if-none-match": first.headers["etag"]})
                return shown.status_code == 200 and "Lies better." in shown.text

            await until(changed)
            card = (await client.get(where)).json()
            assert [each["id"] for each in card["skills"]] == ["new"]
            said = caplog.text
            assert "The card of an agent changed" in said
            assert "description" in said
            assert "skill new is new" in said
            assert "skill s is gone" in said


async def test_an_agent_that_comes_late_is_there_then(tmp_path: Path) -> None:
    port = own_port()
    sections = {"late": {"url": f"http://127.0.0.1:{port}", "refresh": 0.1}}
    async with (
        asyncio.timeout(LIMIT),
        gateway(sections, settings(tmp_path), wait=False) as door,
        connect(door.at("late"), limits=ClientLimits(patience=1.0, backoff_most=0.1)) as caller,
    ):
        assert caller.card.name == "late"
        with pytest.raises(DragomanError, match="cannot be reached") as away:
            async for _ in caller.bearing().stream("hi"):
                pass
        assert str(port) not in away.value.message
        assert not (await caller.list()).tasks
        async with lying(script, port):
            await until(lambda: door.upstream("late").dialect)
            found = await caller.send("hi")
            assert isinstance(found, Task)
            assert found.state is State.COMPLETED
        async with connect(door.at("late")) as again:
            assert again.card.name == "Liar"


async def test_the_card_of_a_signed_agent_must_be_signed(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT), lying(script) as liar:
        keys = tmp_path / "keys.jwks"
        key = new_key("ES256", time.time())
        keys.write_text(json.dumps({"keys": [public(key)]}))
        sections = {
            "liar": {
                "url": liar.url,
                "refresh": 0.1,
                "card_signature": "require",
                "card_keys": [str(keys)],
            }
        }
        async with gateway(sections, settings(tmp_path), wait=False) as door:
            async with connect(door.at("liar")) as caller:
                with pytest.raises(DragomanError, match="is not trusted"):
                    async for _ in caller.stream("hi"):
                        pass
            made = signatures.sign(liar.card(), signatures.key_in(key), "")
            signature = {"protected": made.protected, "signature": made.signature}
            liar.more = {"signatures": [signature]}
            await until(lambda: door.upstream("liar").dialect)
            async with connect(door.at("liar")) as caller:
                assert caller.card.name == "Liar"
                assert not caller.card.signatures  # theirs is not ours


async def test_security_and_addresses_are_ours(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT), lying(script) as liar:
        liar.more = {
            "securitySchemes": {"k": {"apiKeySecurityScheme": {"location": "header", "name": "K"}}},
            "securityRequirements": [{"schemes": {"k": {"list": []}}}],
        }
        async with (
            gateway({"liar": {"url": liar.url}}, settings(tmp_path)) as door,
            httpx2.AsyncClient() as client,
        ):
            shown = (await client.get(f"{door.at('liar')}/.well-known/agent-card.json")).text
            assert liar.url not in shown
            assert "apiKey" not in shown


async def test_an_agent_here_and_one_elsewhere_stand_side_by_side(tmp_path: Path) -> None:
    (tmp_path / "here.py").write_text(
        "from dragoman import Agent, Turn\n"
        "agent = Agent('Here')\n"
        "@agent.skill('echo')\n"
        "async def echo(turn: Turn) -> str:\n"
        "    return turn.text\n"
    )
    async with asyncio.timeout(LIMIT), served(worker()) as far:
        sections = {"here": {"file": str(tmp_path / "here.py")}, "there": {"url": far}}
        async with gateway(sections, settings(tmp_path)) as door:
            for name, says in (("here", "hi"), ("there", "HI")):
                async with connect(door.at(name)) as caller:
                    found = await caller.send("hi")
                    assert isinstance(found, Task)
                    assert found.text == says
