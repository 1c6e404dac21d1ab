"""From a URL to a store."""

from __future__ import annotations

import importlib.metadata
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from dragoman.core.errors import ConfigError
from dragoman.store import open_store, urls
from dragoman.store.file.store import FileStore
from dragoman.store.memory.store import MemoryStore
from dragoman.store.sqlite.store import SqliteStore


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("memory:", MemoryStore),
        ("sqlite:///tasks.db", SqliteStore),
        ("sqlite:////var/lib/tasks.db", SqliteStore),
        ("file:tasks", FileStore),
        ("file:///var/lib/tasks", FileStore),
    ],
)
def test_a_scheme_has_a_store(url: str, kind: type) -> None:
    assert type(open_store(url)) is kind


async def test_three_slashes_are_relative_and_four_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    for url, made in (
        ("sqlite:///in/one.db", "in/one.db"),
        (f"sqlite:///{tmp_path}/two.db", "two.db"),
        ("file:three", "three/tasks"),
        (f"file://{tmp_path}/four", "four/tasks"),
    ):
        store = open_store(url)
        await store.open()
        await store.close()
        assert (tmp_path / made).exists()


@pytest.mark.parametrize("url", ["mysql://user:hunter2@host/db", "", "nonsense", "/some/path"])
def test_an_unknown_scheme_names_the_known_ones(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_store(url)
    for scheme in ("memory", "sqlite", "file"):
        assert scheme in caught.value.message
    assert "hunter2" not in f"{caught.value.message} {caught.value.public}"


@pytest.mark.parametrize(
    "url",
    [
        *("memory:///x", "sqlite:", "sqlite:tasks.db", "sqlite://host/x", "sqlite:///:memory:"),
        *("sqlite:///", "file:", "file://", "file://host/folder"),
    ],
)
def test_a_wrong_path_says_how_to_write_it(url: str) -> None:
    with pytest.raises(ConfigError, match=r"[Ww]rite '"):
        open_store(url)


def test_another_package_brings_a_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("mine", f"{__name__}:make_mine", urls.GROUP)

    def points(group: str, **how: str) -> EntryPoints:
        return EntryPoints([point]).select(group=group, **how)

    monkeypatch.setattr(importlib.metadata, "entry_points", points)
    monkeypatch.setattr(EntryPoint, "load", lambda self: make_mine)
    store = open_store("mine://there", clock=lambda: 7)
    assert isinstance(store, Mine)
    assert (store.url, store.now) == ("mine://there", 7)
    with pytest.raises(ConfigError, match="mine"):
        open_store("yours:")


class Mine(MemoryStore):
    def __init__(self, url: str, now: int) -> None:
        super().__init__(lambda: now)
        self.url, self.now = url, now


def make_mine(url: str, clock: urls.Clock) -> Mine:
    return Mine(url, clock())
