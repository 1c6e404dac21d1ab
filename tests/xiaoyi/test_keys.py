"""`dragoman xiaoyi keys`: the keys of agents that dial in, and how a store has them."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from dragoman.cli import main
from dragoman.core.errors import ConfigError
from dragoman.store.clock import wall_clock
from dragoman.store.memory.store import MemoryStore
from dragoman.xiaoyi.keys import KeyRing

SECRET = b"s" * 32


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as left:
        main(["xiaoyi", "keys", *words])
    assert left.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_keys_are_made_listed_and_revoked(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = f"sqlite:///{tmp_path}/links.db" if kind == "sqlite" else f"file://{tmp_path}/links"
    store = ("--store", place)
    made = json.loads(said(capsys, "add", "--agent-id", "ag-1", "--json", *store))
    assert made["agentIds"] == ["ag-1"]
    assert len(made["ak"]) >= 16
    assert len(made["sk"]) >= 32
    two = json.loads(
        said(capsys, "add", "--agent-id", "ag-2", "--agent-id", "ag-3", "--json", *store)
    )
    listed = said(capsys, "list", "--json", *store)
    assert made["sk"] not in listed
    rows = [json.loads(line) for line in listed.splitlines()]
    assert [(each["ak"], each["agentIds"], each["revokedAt"]) for each in rows] == [
        (made["ak"], ["ag-1"], None),
        (two["ak"], ["ag-2", "ag-3"], None),
    ]
    assert "revoked" in said(capsys, "revoke", made["ak"], *store)
    assert "revoked" in said(capsys, "list", *store).splitlines()[0]
    with pytest.raises(SystemExit) as left:
        main(["xiaoyi", "keys", "revoke", made["ak"], *store])
    assert left.value.code == 2


def test_the_secret_key_is_shown_once_and_is_nowhere_on_the_disk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = said(capsys, "add", "--agent-id", "ag-1", "--store", f"sqlite:///{tmp_path}/links.db")
    secret = out.split("sk  ")[1].split()[0]
    with sqlite3.connect(tmp_path / "links.db") as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    found = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert found
    assert [path.name for path in found if secret.encode() in path.read_bytes()] == []


async def test_a_ring_finds_valid_pairs_and_opens_them_with_its_own_key_only() -> None:
    store = MemoryStore(wall_clock)
    ring = KeyRing(store.link_keys, SECRET)
    assert not await ring.in_use()
    key, secret = await ring.add(["ag-1"])
    assert await ring.find(key.access_key) == (key, secret)
    assert await ring.find("unknown") is None
    assert await ring.in_use()
    with pytest.raises(ConfigError, match="another key"):
        await KeyRing(store.link_keys, b"o" * 32).find(key.access_key)
    await store.link_keys.revoke(key.access_key)
    assert await ring.find(key.access_key) is None
    assert await ring.in_use()  # its agent is told that it is refused


@pytest.mark.parametrize("agent_id", ["", "a\nb", "ä", "x" * 300])
async def test_what_cannot_be_an_agent_id_gets_no_keys(agent_id: str) -> None:
    with pytest.raises(ConfigError):
        await KeyRing(MemoryStore(wall_clock).link_keys, SECRET).add([agent_id])
