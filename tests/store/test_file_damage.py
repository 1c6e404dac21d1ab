"""A disk that forgets: what is damaged is named and put aside, and harms nothing else."""

from __future__ import annotations

import os
import random
import re
import stat
from pathlib import Path

import pytest

from dragoman.core.errors import StoreUnavailable, TaskNotFound
from dragoman.core.events import StateChanged
from dragoman.core.model import Hook, State
from dragoman.store import Store, open_store
from dragoman.store.interface import Filter
from dragoman.store.sessions import TokenSession
from dragoman.testing.stores import HandClock, StoreFixture
from dragoman.testing.stores.fixture import AGENT, ALICE

WORKING = StateChanged(state=State.WORKING)
FLIPS = 60


async def _make(folder: Path, clock: HandClock) -> Store:
    return open_store(f"file://{folder}/store", clock=clock)


def _fixture(folder: Path) -> StoreFixture:
    return StoreFixture(_make, folder)


def _file(folder: Path, task_id: str = "t1") -> Path:
    return folder / "store" / "tasks" / f"{task_id}.jsonl"


def _aside(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "store" / "damaged").glob("*"))


def _without_checksums(path: Path) -> None:
    """The file as an older version wrote it."""
    path.write_bytes(re.sub(rb',"check":"[0-9a-f]{8}"}\n', rb"}\n", path.read_bytes()))


@pytest.mark.parametrize("ended", [False, True])
async def test_one_flipped_bit_deletes_no_task_and_changes_none(
    tmp_path: Path, ended: bool
) -> None:
    state = State.COMPLETED if ended else None
    async with _fixture(tmp_path) as fixture:
        await fixture.create(fixture.draft("t1", end=state))
        await fixture.create(fixture.draft("t2", end=state))
        tasks = {name: await fixture.store.load(ALICE, name) for name in ("t1", "t2")}
    whole = _file(tmp_path).read_bytes()
    assert whole.count(b"\n") == 1
    dice = random.Random(7)
    places = [*dice.sample(range(len(whole)), FLIPS), len(whole) - 1, len(whole) - 2, 0]
    kept = 0
    for place in places:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << dice.randrange(8)
        _file(tmp_path).write_bytes(flipped)
        async with _fixture(tmp_path) as fixture:
            assert await fixture.store.load(ALICE, "t2") == tasks["t2"]
            try:
                # Served as it was,
                assert await fixture.store.load(ALICE, "t1") == tasks["t1"]
                kept += 1
            except TaskNotFound:
                # or put aside as it is.
                (aside,) = (tmp_path / "store" / "damaged").iterdir()
                assert aside.read_bytes() == flipped
                aside.unlink()
    assert kept >= 1  # the end of the line, for one


async def test_a_byte_that_is_no_text_stops_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with _fixture(tmp_path) as fixture:
        await fixture.open_task("t1")
        await fixture.open_task("t2")
    data = _file(tmp_path).read_bytes()
    _file(tmp_path).write_bytes(data.replace(b"hello", b"hell\xff"))
    async with _fixture(tmp_path) as fixture:
        assert len(await fixture.log("t2")) == 2
        with pytest.raises(TaskNotFound):
            await fixture.store.row(ALICE, "t1")
        assert (await fixture.store.find(ALICE, Filter(), 9)).total == 1
    assert _aside(tmp_path) == ["t1.jsonl"]
    assert re.search(r"file is damaged.*t1\.jsonl", caplog.text)
    assert "line 1, from byte 0 on" in caplog.text
    # The next start has nothing more to say about it.
    caplog.clear()
    async with _fixture(tmp_path) as fixture:
        assert len(await fixture.log("t2")) == 2
    assert "damaged" not in caplog.text


async def test_damage_in_the_middle_of_a_running_task_is_put_aside_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with _fixture(tmp_path) as fixture:
        row = await fixture.open_task("t1")
        for _ in range(3):
            await fixture.append(fixture.write(row.claim, WORKING))
        hook = Hook(hook_id="h", task_id="t1", url="https://example.com/")
        await fixture.store.set_hook(ALICE, hook)
    lines = _file(tmp_path).read_bytes().splitlines(keepends=True)
    for n, damaged in enumerate(
        (
            [lines[0], lines[1].replace(b"working", b"walking"), *lines[2:]],
            [lines[0], lines[1], lines[3]],  # one is missing
        )
    ):
        _file(tmp_path).write_bytes(b"".join(damaged))
        async with _fixture(tmp_path) as fixture:
            with pytest.raises(TaskNotFound):
                await fixture.store.row(ALICE, "t1")
        assert f"line {2 + n}, from byte" in caplog.text
    # Its webhooks went with it, and the second one got a name of its own.
    assert _aside(tmp_path) == ["t1.1.jsonl", "t1.json", "t1.jsonl"]
    mode = stat.S_IMODE((tmp_path / "store" / "damaged").stat().st_mode)
    assert mode == 0o700
    # Mended by hand, it is there again.
    _file(tmp_path).write_bytes(b"".join(lines))
    async with _fixture(tmp_path) as fixture:
        assert len(await fixture.log("t1")) == 5


async def test_a_finished_task_needs_only_its_last_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with _fixture(tmp_path) as fixture:
        row = await fixture.open_task("t1")
        await fixture.append(fixture.write(row.claim, WORKING))
        await fixture.end(row)
        task = await fixture.store.load(ALICE, "t1")
    lines = _file(tmp_path).read_bytes().splitlines(keepends=True)
    _file(tmp_path).write_bytes(lines[0] + lines[1].replace(b"working", b"walking") + lines[2])
    async with _fixture(tmp_path) as fixture:
        assert await fixture.store.load(ALICE, "t1") == task
        assert len(await fixture.log("t1")) == 2
        assert re.search(r"file is damaged.*t1\.jsonl where=\"line 2,", caplog.text)
        # And it can grow old like any other.
        fixture.clock.tick(1000)
        assert await fixture.store.sweep(AGENT, 1000, 10**9, 9) == 1
        assert await fixture.store.load(ALICE, "t1") == task


async def test_a_task_that_is_damaged_while_it_runs_is_not_written_anew(tmp_path: Path) -> None:
    async with _fixture(tmp_path) as fixture:
        row = await fixture.open_task("t1")
        await fixture.ask(row)
        await fixture.add_input("t1", "secret")
        damaged = _file(tmp_path).read_bytes().replace(b"which?", b"whick?")
        _file(tmp_path).write_bytes(damaged)
        with pytest.raises(StoreUnavailable):
            await fixture.append(fixture.write(row.claim, WORKING, heard=1, forget=(1,)))
        assert _file(tmp_path).read_bytes() == damaged


async def test_files_of_older_versions_have_no_checksums(tmp_path: Path) -> None:
    async with _fixture(tmp_path) as fixture:
        row = await fixture.open_task("live")
        await fixture.append(fixture.write(row.claim, WORKING))
        await fixture.create(fixture.draft("ended", end=State.COMPLETED))
        tasks = {name: await fixture.store.load(ALICE, name) for name in ("live", "ended")}
    for name in tasks:
        assert b'"check"' in _file(tmp_path, name).read_bytes()
        _without_checksums(_file(tmp_path, name))
        assert b'"check"' not in _file(tmp_path, name).read_bytes()
    async with _fixture(tmp_path) as fixture:
        assert {name: await fixture.store.load(ALICE, name) for name in tasks} == tasks
        # It goes on with checksums.
        taken = await fixture.store.seize("w1", "live", row.epoch)
        assert taken is not None
    data = _file(tmp_path, "live").read_bytes().splitlines()
    assert [b'"check"' in line for line in data] == [False, False, True]
    async with _fixture(tmp_path) as fixture:
        assert await fixture.store.row(ALICE, "live") == taken


async def test_a_power_cut_leaves_zeros_and_what_was_acknowledged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with _fixture(tmp_path) as fixture:
        row = await fixture.open_task("t1")
        for _ in range(2):
            await fixture.append(fixture.write(row.claim, WORKING))
    lines = _file(tmp_path).read_bytes().splitlines(keepends=True)
    # The second and third line were one write; only the end of it reached the disk.
    torn = bytes(len(lines[1])) + lines[2]
    _file(tmp_path).write_bytes(lines[0] + torn)
    async with _fixture(tmp_path) as fixture:
        assert len(await fixture.log("t1")) == 2
    assert _file(tmp_path).with_suffix(".torn").read_bytes() == torn
    assert "A damaged file was cut" in caplog.text


async def test_damaged_webhooks_and_sessions_stop_nobody(tmp_path: Path) -> None:
    async with _fixture(tmp_path) as fixture:
        await fixture.open_task("t1")
        hook = Hook(hook_id="h", task_id="t1", url="https://example.com/")
        await fixture.store.set_hook(ALICE, hook)
        for n in range(2):
            session = TokenSession(key=bytes([n]) * 32, agent="a", who="b", since=0, until=10**15)
            await fixture.store.sessions.keep(session)
            assert await fixture.store.sessions.first(bytes([n]), 10**15)
    for name in ("hooks/t1.json", f"sessions/{'00' * 32}.json", "sessions/00.said"):
        (tmp_path / "store" / name).write_bytes(b"\xff\xfe")
    async with _fixture(tmp_path) as fixture:
        assert await fixture.store.hooks(ALICE, "t1") == []
        assert await fixture.store.sessions.find("a", b"\0" * 32) is None
        assert await fixture.store.sessions.find("a", b"\1" * 32) is not None
        assert not await fixture.store.sessions.first(b"\1", 10**15)
    assert _aside(tmp_path) == ["00.said", f"{'00' * 32}.json", "t1.json"]


async def test_nobody_else_can_read_the_files(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        (tmp_path / "store").mkdir(0o755)
        async with _fixture(tmp_path) as fixture:
            await fixture.open_task("t1")
            await fixture.store.probe()
            hook = Hook(hook_id="h", task_id="t1", url="https://example.com/")
            await fixture.store.set_hook(ALICE, hook)
    finally:
        os.umask(before)
    for path in (tmp_path / "store", *(tmp_path / "store").rglob("*")):
        expected = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == expected, path
