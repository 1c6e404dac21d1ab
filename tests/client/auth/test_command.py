"""`dragoman login` in a process of its own, against a real authorization server."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from msgspec.structs import replace

from cli.run import ENVIRON
from client.auth.guarded_agent import GuardedAgent, card, oauth, town
from dragoman.client.auth import CardAuth, TokenStore
from dragoman.client.credentials import Wallet
from dragoman.core.card import ApiKey, Card, Interface

pytestmark = pytest.mark.slow  # starts processes


@asynccontextmanager
async def started(
    folder: Path, *args: str
) -> AsyncGenerator[tuple[asyncio.subprocess.Process, asyncio.StreamReader], None]:
    """A login under way, and what it says to the person."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dragoman", "login", *args),
        env={**ENVIRON, "DRAGOMAN_CONFIG_DIR": str(folder)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(60):
            yield process, process.stderr
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def run(folder: Path, *args: str, typed: str = "") -> tuple[int, str, str]:
    async with started(folder, *args) as (process, _):
        out, err = await process.communicate(typed.encode())
    return process.returncode or 0, out.decode(), err.decode()


def publish(agent: GuardedAgent, told: Card) -> None:
    agent.card = replace(
        told, interfaces=(Interface(url=agent.url, binding="JSONRPC", version="1.0"),)
    )


async def test_login_with_a_browser_list_and_forget(tmp_path: Path) -> None:
    async with town() as (authority, agent, _):
        publish(agent, card(it=oauth(authority, "authorizationCode")))
        options = ("--client-id", "laptop", "--no-browser", "--json")
        async with started(tmp_path, agent.url, *options) as (process, stderr):
            said = [(await stderr.readline()).decode() for _ in range(2)]
            assert "Log in" in said[0]
            async with httpx2.AsyncClient(follow_redirects=True) as http:
                page = await http.get(said[1].strip())
            out, _err = await process.communicate()
        assert "You are logged in" in page.text
        assert process.returncode == 0
        (told,) = json.loads(out)
        assert (told["origin"], told["scheme"], told["scopes"]) == (agent.url, "it", ["ask"])
        assert told["renewable"]
        path = tmp_path / "tokens.json"
        assert path.stat().st_mode & 0o777 == 0o600
        (kept,) = TokenStore(path).all()
        assert authority.memory.valid(kept.secret)
        assert kept.secret not in out.decode() + "".join(said) + page.text

        auth = CardAuth.of({"DRAGOMAN_CONFIG_DIR": str(tmp_path)})
        wallet = Wallet(auth, [agent.url])
        wallet.card = agent.card
        given = await wallet.ask(agent.origin)
        assert given.headers == {"authorization": f"Bearer {kept.secret}"}
        await auth.close()

        code, out_text, _ = await run(tmp_path, "--list")
        assert code == 0
        assert f"{agent.url}  it: token (ask), until 20" in out_text
        assert kept.secret not in out_text
        assert (await run(tmp_path, "--forget", agent.url))[1].startswith("Logged out of")
        assert TokenStore(path).all() == ()
        assert json.loads((await run(tmp_path, "--list", "--json"))[1]) == []


async def test_login_with_a_device_code(tmp_path: Path) -> None:
    async with town() as (authority, agent, _):
        publish(agent, card(it=oauth(authority, "deviceCode")))
        options = ("--client-id", "laptop", "--device", "--no-browser")
        async with started(tmp_path, agent.url, *options) as (process, stderr):
            said = (await stderr.readline()).decode()
            assert authority.memory.devices, said
            (device,) = authority.memory.devices.values()
            assert device.user_code in said
            authority.memory.decisions[device.user_code] = True
            out, _ = await process.communicate()
        assert process.returncode == 0
        assert b"it: token" in out


async def test_a_key_comes_from_the_terminal_or_a_pipe_and_is_not_echoed(tmp_path: Path) -> None:
    async with town() as (_, agent, __):
        publish(agent, card(key=ApiKey(name="X-Key")))
        code, out, err = await run(tmp_path, agent.url, typed="k-4711\n")
        assert (code, "k-4711" in out + err) == (0, False)
        (kept,) = TokenStore(tmp_path / "tokens.json").all()
        assert (kept.kind, kept.secret) == ("key", "k-4711")


async def test_failures_have_their_own_codes(tmp_path: Path) -> None:
    async with town() as (authority, agent, _):
        publish(agent, card(it=oauth(authority, "clientCredentials")))
        assert (await run(tmp_path))[0] == 2
        code, _, err = await run(tmp_path, agent.url)
        assert (code, "--client-id" in err) == (2, True)
        code, out, err = await run(tmp_path, agent.url, "--client-id", "robot", "--json")
        assert (code, json.loads(out)["error"]) == (1, "unauthenticated")
        assert "Traceback" not in err
    code, _, err = await run(tmp_path, agent.url)
    assert code == 3
    code, _, err = await run(tmp_path, "http://agent.example.com")
    assert (code, "plain http" in err) == (2, True)
    assert os.listdir(tmp_path) in ([], ["tokens.json.lock"])
