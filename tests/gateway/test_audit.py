"""The audit log of a gateway: who asked whom what, and how it ended, without any contents."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from dragoman import Task, connect
from dragoman.cli import main
from dragoman.core.auth_schemes import Known, Secret, Tokens
from dragoman.core.errors import DragomanError, StoreUnavailable
from dragoman.settings import PolicyRule, Settings
from dragoman.testing import served
from gateway.behind import DIALECTS, gateway, section, settings, worker
from gateway.matrix import calling
from ports import own_port
from waiting import until

LIMIT = 240.0
TOKEN = "a-token-of-alice-0123456789"
CANARY = "the words of a message"


def audited(own: Settings, path: Path) -> Settings:
    return replace(own, server=replace(own.server, audit=str(path)))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def known(folder: Path) -> dict[str, Tokens]:
    (folder / "alice").write_text(TOKEN)
    secret = Secret(file=str(folder / "alice"))
    return {"token": Tokens(callers={"alice": Known(secret=secret, tenants=("acme", "globex"))})}


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_calls_of_every_dialect_are_recorded(tmp_path: Path, dialect: str) -> None:
    grpc_port = own_port()
    log = tmp_path / "audit.jsonl"
    rules = (PolicyRule(skills=("slow",), allow=False), PolicyRule())
    own = audited(settings(tmp_path, grpc_port=grpc_port, policy=rules), log)
    async with (
        asyncio.timeout(LIMIT),
        served(worker(), settings(tmp_path, name="worker")) as url,
        gateway({"worker": section(tmp_path, url)}, own) as door,
        calling(door.url, dialect, to="worker", grpc_port=grpc_port) as caller,
    ):
        done = await caller.send(CANARY, skill="echo")
        assert isinstance(done, Task)
        with pytest.raises(DragomanError):
            await caller.send(CANARY, skill="slow")
        failed = await caller.send(CANARY, skill="fail")
        assert isinstance(failed, Task)
        await until(lambda: len([each for each in lines(log) if each.get("skill")]) >= 3)
    found = [each for each in lines(log) if each["operation"] == "SendMessage"]
    assert [each["skill"] for each in found] == ["echo", "slow", "fail"]
    assert [each["outcome"] for each in found] == ["ok", "forbidden", "ok"]
    assert [each.get("state") for each in found] == ["completed", None, "failed"]
    assert found[0]["task"]
    assert {each["agent"] for each in found} == {"worker"}
    assert {each["dialect"] for each in found} == {dialect}
    assert all(each["principal"] and each["ms"] >= 0 for each in found)
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert CANARY not in log.read_text()
    assert CANARY.upper() not in log.read_text()


async def test_a_line_names_the_caller_and_its_tenant_and_a_stream_ends_with_its_state(
    tmp_path: Path,
) -> None:
    log = tmp_path / "audit.jsonl"
    own = audited(settings(tmp_path, auth=known(tmp_path)), log)
    async with (
        asyncio.timeout(LIMIT),
        served(worker(), settings(tmp_path, name="worker")) as url,
        gateway({"worker": section(tmp_path, url)}, own) as door,
        connect(door.url, auth=TOKEN) as caller,
    ):
        async for _ in caller.stream("3", skill="count"):
            pass
        with pytest.raises(DragomanError):
            await caller.get("\x1b[31m\u009b\x7fno-such-task")
        with pytest.raises(DragomanError):
            async with connect(door.url, auth="a-wrong-token-0123456789") as stranger:
                await stranger.send("x")
        headers = {"authorization": f"Bearer {TOKEN}", "a2a-version": "1.0"}
        async with httpx2.AsyncClient(timeout=60, headers=headers) as client:
            refused = await client.get(f"{door.url}/initech/tasks")
        assert refused.status_code == 403
        await until(lambda: len(lines(log)) >= 3)
    counted, missing, forbidden = lines(log)
    assert counted["principal"] == "alice"
    assert counted["tenant"] == "acme"
    assert (counted["skill"], counted["outcome"], counted["state"]) == ("count", "ok", "completed")
    assert missing["operation"] == "GetTask"
    assert missing["outcome"] == "task_not_found"
    assert (forbidden["principal"], forbidden["outcome"]) == ("alice", "forbidden")
    text = log.read_text()
    assert text.isascii()
    assert all(32 <= ord(char) < 127 for char in text.replace("\n", ""))


@pytest.mark.slow  # takes several seconds
async def test_without_its_audit_log_no_call_is_made(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    own = audited(settings(tmp_path), log)
    async with (
        asyncio.timeout(LIMIT),
        served(worker(), own) as url,
        connect(url) as caller,
    ):
        await caller.send("1", skill="echo")
        log.unlink()
        os.symlink("/dev/full", log)
        # It cannot be known before it is tried: this call is made, and its line is kept.
        await caller.send("2", skill="echo")
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await caller.send("3", skill="echo")
        log.unlink()
        await caller.send("4", skill="echo")
        found = [each for each in lines(log) if each["operation"] == "SendMessage"]
        assert len(found) == 2, "the line that was kept, and the new one"


async def test_the_file_may_be_renamed_while_it_is_used(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    async with (
        asyncio.timeout(LIMIT),
        served(worker(), audited(settings(tmp_path), log)) as url,
        connect(url) as caller,
    ):
        await caller.send("1", skill="echo")
        log.rename(tmp_path / "audit.jsonl.1")
        await caller.send("2", skill="echo")
    assert len(lines(log)) == len(lines(tmp_path / "audit.jsonl.1")) == 1


def test_a_file_that_cannot_be_written_is_told_before_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = '[agents.a]\nurl = "http://127.0.0.1:9001"\n[server]\naudit = "none/audit.jsonl"\n'
    (tmp_path / "dragoman.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["gateway", "check"])
    assert ended.value.code == 2
    assert "dragoman.toml:4: audit: there is no folder none" in capsys.readouterr().err
