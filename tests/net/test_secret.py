"""The key file: whole or not there, the same for all who share the store."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dragoman.core.errors import ConfigError
from dragoman.security.server_secret import FILE, VARIABLE, secret_for


def test_a_key_is_made_once_and_kept(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/tasks.db"
    assert secret_for(store, {}) == secret_for(store, {})
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_all_who_start_at_once_have_the_same_key(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/tasks.db"
    with ThreadPoolExecutor(16) as pool:
        keys = set(pool.map(lambda _: secret_for(store, {}), range(64)))
    assert len(keys) == 1


@pytest.mark.parametrize("content", [b"", b"\n", b"short"])
def test_a_key_anyone_could_guess_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(ConfigError, match="holds no key"):
        secret_for(f"sqlite:///{tmp_path}/tasks.db", {})


def test_the_variable_comes_first_and_must_be_long(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/tasks.db"
    assert secret_for(store, {VARIABLE: "x" * 16}) != secret_for(store, {})
    with pytest.raises(ConfigError, match="too short"):
        secret_for(store, {VARIABLE: "x"})
