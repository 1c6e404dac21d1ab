"""What is special about the store of files: torn lines, one process, readable, nothing secret."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from dragoman.core.errors import ConfigError, StoreUnavailable, TaskNotFound
from dragoman.core.events import StateChanged
from dragoman.core.lifecycle import Fold
from dragoman.core.model import Hook, Role, State
from dragoman.store import Store, open_store
from dragoman.store.file import writer
from dragoman.store.interface import Existing, Idempotency, Input, Record, Scope
from dragoman.testing.stores import HandClock, StoreFixture
from dragoman.testing.stores.fixture import AGENT, ALICE, LEASE, said
from store.disk import full_disk
from waiting import turns

WORKING = StateChanged(state=State.WORKING)


async def _make(folder: Path, clock: HandClock) -> Store:
    return open_store(f"file://{folder}/store", clock=clock)


def _fixture(folder: Path) -> StoreFixture:
    return StoreFixture(_make, folder)


def _file(folder: Path, task_id: str = "t1") -> Path:
    return folder / "store" / "tasks" / f"{task_id}.jsonl"


# Layouts.


async def test_a_folder_of_a_newer_version_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    async with _fixture(tmp_path) as fixture:
        await fixture.open_task("t1")
    layout = tmp_path / "store" / "layout"
    assert layout.read_text() == "1\n"
    layout.write_text("2\n")
    before = _changed(tmp_path)
    store = await _make(tmp_path, HandClock())
    with pytest.raises(ConfigError, match="has layout '2', this version of dragoman knows 1"):
        await store.open()
    assert _changed(tmp_path) == before


def _changed(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


async def test_a_folder_from_before_layouts_is_taken(tmp_path: Path) -> None:
    async with _fixture(tmp_path) as fixture:
        await fixture.open_task("t1")
    (tmp_path / "store" / "layout").unlink()
    async with _fixture(tmp_path) as fixture:
        assert (await fixture.store.row(ALICE, "t1")).task_id == "t1"
    assert (tmp_path / "store" / "layout").exists()


# Readable.


async def test_a_file_can_be_read_by_people(tmp_path: Path) -> None:
    async with _fixture(tmp_path) as fixture:
        row = await fixture.open_task("t1")
        thinking = StateChanged(state=State.WORKING, message=said("Let me see", Role.AGENT))
        await fixture.append(fixture.write(row.claim, thinking))
        await fixture.ask(row)
        await fixture.add_input("t1", "Kyoto")
        await fixture.store.release(row.claim, runnable=True)
        (row,) = await fixture.store.claim("w1", AGENT, 1)
        await fixture.append(
            fixture.write(row.claim, records=(Record(key="k", value=b"v"),), heard=1)
        )
        await fixture.end(row, heard=1)
    lines = [json.loads(line) for line in _file(tmp_path).read_text().splitlines()]
    assert [line["what"] for line in lines] == [
        "opened: hello; working",
        "working: Let me see",
        "asked for input: which?",
        "the caller answered",
        "given back by w1",
        "taken by w1, attempt 1",
        "recorded a step",
        "completed",
    ]
    assert lines[0]["at"] == "2023-11-14T22:13:20.000+00:00"
    assert [event["seq"] for line in lines for event in line.get("events", ())] == [1, 2, 3, 4, 5]
    assert lines[-1]["task"]["status"]["state"] == "completed"


async def test_what_must_be_forgotten_leaves_the_file(tmp_path: Path) -> None:
    words = "correct horse battery staple"
    async with _fixture(tmp_path) as fixture:
        row = await fixture.open_task("t1")
        await fixture.ask(row)
        secret = Input(message=replace(said(words), message_id="m1"), value={"token": words})
        await fixture.store.add_input(ALICE, "t1", secret, None)
        assert words in _file(tmp_path).read_text()
        await fixture.append(fixture.write(row.claim, WORKING, heard=1, forget=(1,)))
        assert words not in _file(tmp_path).read_text()
        assert len(await fixture.log("t1")) == 4
        await fixture.end(row, heard=1)
    assert [path.name for path in _file(tmp_path).parent.iterdir()] == ["t1.jsonl"]


@pytest.mark.parametrize(
    "task_id",
    ["../../etc/passwd", "a/b", "", ".", "A", "CON", "x" * 5000, "naïve 🐢", "a\x00b", "\n"],
)
async def test_any_id_has_a_safe_file(tmp_path: Path, task_id: str) -> None:
    async with _fixture(tmp_path) as fixture:
        await fixture.open_task(task_id)
        await fixture.open_task("a")
        await fixture.reopen()
        assert (await fixture.store.load(ALICE, task_id))[1].id == task_id
        assert (await fixture.store.load(ALICE, "a"))[1].id == "a"
    found = [os.path.join(at, name) for at, _, names in os.walk(tmp_path) for name in names]
    assert {os.path.dirname(path) for path in found} == {
        f"{tmp_path}/store",
        f"{tmp_path}/store/tasks",
    }
    assert len(found) == 4  # with the lock and the layout


# One process.


async def test_a_second_process_is_refused(tmp_path: Path) -> None:
    async with _fixture(tmp_path):
        other = await _make(tmp_path, HandClock())
        with pytest.raises(ConfigError, match="in use by another process"):
            await other.open()
    await other.open()
    await other.close()


async def test_a_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file, not a folder")
    store = await _make(tmp_path, HandClock())
    with pytest.raises(ConfigError, match="cannot be used"):
        await store.open()


async def test_an_earlier_process_is_dead(tmp_path: Path) -> None:
    async with _fixture(tmp_path) as fixture:
        await fixture.open_task("t1")
        await fixture.reopen()
        # Its lease would have lasted.
        await fixture.store.enlist("w2", LEASE)
        assert await fixture.store.reap() == ["t1"]


# Torn lines.


async def test_a_torn_last_line_is_cut_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with _fixture(tmp_path) as fixture:
        row = await fixture.open_task("t1")
        await fixture.append(fixture.write(row.claim, WORKING))
        before = await fixture.store.load(ALICE, "t1")
        await fixture.append(fixture.write(row.claim, WORKING, WORKING))
    whole = _file(tmp_path).read_bytes()
    first, second, last = whole.splitlines(keepends=True)
    for cut in (1, len(last) // 2, len(last) - 1):
        _file(tmp_path).write_bytes(first + second + last[:cut])
        async with _fixture(tmp_path) as fixture:
            assert await fixture.store.load(ALICE, "t1") == before
            assert "half written line" in caplog.text
            assert _file(tmp_path).read_bytes() == first + second
            # And it goes on from there.
            fixture.folds["t1"] = Fold.of(before[1], 3)
            taken = await fixture.store.seize("w1", "t1", before[0].epoch)
            assert taken is not None
            await fixture.append(fixture.write(taken.claim, WORKING))
            assert [entry.seq for entry in await fixture.log("t1")] == [1, 2, 3, 4]


async def test_zeros_after_a_power_cut_are_cut_off(tmp_path: Path) -> None:
    async with _fixture(tmp_path) as fixture:
        await fixture.open_task("t1")
    whole = _file(tmp_path).read_bytes()
    _file(tmp_path).write_bytes(whole + b"\x00" * 4096)
    async with _fixture(tmp_path) as fixture:
        assert len(await fixture.log("t1")) == 2
    assert _file(tmp_path).read_bytes() == whole


async def test_a_task_whose_first_line_was_torn_never_was(tmp_path: Path) -> None:
    async with _fixture(tmp_path) as fixture:
        await fixture.open_task("t1")
    _file(tmp_path).write_bytes(_file(tmp_path).read_bytes()[:-5])
    async with _fixture(tmp_path) as fixture:
        with pytest.raises(TaskNotFound):
            await fixture.store.row(ALICE, "t1")
        assert not _file(tmp_path).exists()
        await fixture.open_task("t1")


async def test_a_rewrite_that_did_not_finish_leaves_no_trace(tmp_path: Path) -> None:
    async with _fixture(tmp_path) as fixture:
        await fixture.open_task("t1")
    spare = _file(tmp_path).with_suffix(".new")
    spare.write_bytes(b"half")
    async with _fixture(tmp_path) as fixture:
        assert len(await fixture.log("t1")) == 2
    assert not spare.exists()


# Full disks.


async def test_a_full_disk_takes_back_what_did_not_fit(tmp_path: Path) -> None:
    async with _fixture(tmp_path) as fixture:
        row = await fixture.open_task("t1")
        before = await fixture.store.load(ALICE, "t1")
        size = _file(tmp_path).stat().st_size
        write = fixture.write(row.claim, WORKING)
        outcomes: list[Exception | None] = []
        with full_disk(size + 100):
            fixture.store.append(write, outcomes.append)
            # This one builds on the one that fails, so it fails too.
            fixture.store.append(fixture.write(row.claim, WORKING), outcomes.append)
            # Nobody may see what is not on the disk.
            assert await fixture.store.load(ALICE, "t1") == before
        assert [type(outcome) for outcome in outcomes] == [StoreUnavailable, StoreUnavailable]
        assert _file(tmp_path).stat().st_size == size
        await fixture.append(write)
        assert len(await fixture.log("t1")) == 3
        await fixture.reopen()
        assert len(await fixture.log("t1")) == 3


async def test_a_line_that_may_not_be_on_the_disk_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(handle: int) -> None:
        raise OSError("the disk does not answer")

    async with _fixture(tmp_path) as fixture:
        row = await fixture.open_task("t1")
        write = fixture.write(row.claim, WORKING)
        monkeypatch.setattr(writer.os, "fsync", broken)
        for change in (fixture.append(write), fixture.open_task("t2")):
            with pytest.raises(StoreUnavailable):
                await change
        monkeypatch.undo()
        assert len(await fixture.log("t1")) == 2
        with pytest.raises(TaskNotFound):
            await fixture.store.row(ALICE, "t2")
        await fixture.append(write)
        await fixture.open_task("t2")


async def test_a_folder_that_may_not_be_on_the_disk_holds_no_new_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(folder: Path) -> None:
        raise OSError("the disk does not answer")

    async with _fixture(tmp_path) as fixture:
        monkeypatch.setattr(writer, "_sync", broken)
        with pytest.raises(StoreUnavailable):
            await fixture.open_task("t1")
        monkeypatch.undo()
        with pytest.raises(TaskNotFound):
            await fixture.store.row(ALICE, "t1")
        await fixture.open_task("t1")


async def test_nothing_builds_on_what_failed(tmp_path: Path) -> None:
    async with _fixture(tmp_path) as fixture:
        row = await fixture.open_task("t1")
        first, second = (fixture.write(row.claim, WORKING) for _ in range(2))
        outcomes: list[Exception | None] = []
        with full_disk(_file(tmp_path).stat().st_size + 100):
            fixture.store.append(first, outcomes.append)
            # Two turns, and it is handed over. It fails now, but the loop is too busy to hear.
            await turns(2)
            time.sleep(0.2)  # noqa: ASYNC251  # the loop is busy
        fixture.store.append(second, outcomes.append)
        await fixture.open_task("t2")
        assert [type(outcome) for outcome in outcomes] == [StoreUnavailable, StoreUnavailable]
        await fixture.append(first)
        await fixture.append(second)
        await fixture.reopen()
        assert [entry.seq for entry in await fixture.log("t1")] == [1, 2, 3, 4]


async def test_a_full_disk_opens_no_task(tmp_path: Path) -> None:
    key = Idempotency("k", b"d")
    async with _fixture(tmp_path) as fixture:
        draft = fixture.draft("t1", key=key)
        with full_disk(100), pytest.raises(StoreUnavailable):
            await fixture.create(draft)
        with pytest.raises(TaskNotFound):
            await fixture.store.row(ALICE, "t1")
        assert not _file(tmp_path).exists()
        await fixture.create(draft)
        with pytest.raises(Existing):
            await fixture.create(fixture.draft("t2", key=key))


async def test_a_full_disk_ends_no_task(tmp_path: Path) -> None:
    async with _fixture(tmp_path) as fixture:
        row = await fixture.open_task("t1")
        end = fixture.write(row.claim, StateChanged(state=State.COMPLETED))
        size = _file(tmp_path).stat().st_size
        with full_disk(size + 100), pytest.raises(StoreUnavailable):
            await fixture.append(end)
        assert await fixture.store.row(ALICE, "t1") == row
        assert await fixture.store.count_by_state(AGENT) == {"working": 1, "runnable": 0}
        for change in (
            fixture.store.add_input(ALICE, "t1", Input(message=said("x" * 2000)), None),
            fixture.store.ask_cancel(ALICE, "t1"),
            fixture.store.release(row.claim, runnable=True),
            fixture.store.seize("w1", "t1", row.epoch),
        ):
            with full_disk(size + 100), pytest.raises(StoreUnavailable):
                await change
            assert await fixture.store.row(ALICE, "t1") == row
        await fixture.append(end)
        assert (await fixture.store.row(ALICE, "t1")).final


async def test_a_secret_is_forgotten_all_or_nothing(tmp_path: Path) -> None:
    async with _fixture(tmp_path) as fixture:
        row = await fixture.open_task("t1")
        await fixture.ask(row)
        await fixture.add_input("t1", "secret")
        write = fixture.write(row.claim, WORKING, heard=1, forget=(1,))
        with full_disk(500), pytest.raises(StoreUnavailable):
            await fixture.append(write)
        (kept,) = await fixture.store.inputs(row.claim)
        assert kept.message.text == "secret"
        await fixture.append(write)
        (kept,) = await fixture.store.inputs(row.claim)
        assert kept.message.parts == ()


async def test_what_json_cannot_say_is_taken_back(tmp_path: Path) -> None:
    async with _fixture(tmp_path) as fixture:
        row = await fixture.open_task("t1")
        # msgpack can write such a key, JSON cannot.
        odd = replace(WORKING, metadata={"x": {(1, 2): 3}})
        write = fixture.write(row.claim, odd)
        with pytest.raises(Exception, match="cannot be stored"):
            await fixture.append(write)
        assert await fixture.store.row(ALICE, "t1") == row
        await fixture.append(replace(write, entries=(replace(write.entries[0], event=WORKING),)))


# Files of older versions.


@pytest.mark.parametrize("agents", [("desk",), ("desk", "another")])
async def test_what_no_list_showed_is_given_to_the_only_agent(
    tmp_path: Path, agents: tuple[str, ...]
) -> None:
    """It had an empty name instead of an agent, and webhooks said nothing of agents."""
    async with _fixture(tmp_path) as fixture:
        for agent in (*agents, ""):
            name, scope = f"t-{agent}", Scope("", "alice", agent)
            key = Idempotency(name, b"d")
            await fixture.create(fixture.draft(name, scope=scope, key=key, end=State.COMPLETED))
            hook = Hook(hook_id="h", task_id=name, url="https://example.com/")
            await fixture.store.set_hook(scope, hook)
        waiting = await fixture.open_task("t-waiting", scope=Scope("", "alice", ""))
        await fixture.ask(waiting)
    for path in (tmp_path / "store" / "hooks").iterdir():
        text = path.read_text()
        assert '"principal":"alice"' in text
        path.write_text(re.sub(r',"agent":"[a-z]*"', "", text))
    only = "desk" if len(agents) == 1 else ""
    async with _fixture(tmp_path) as fixture:
        for _ in range(2):
            for agent in agents:
                scope = Scope("", "alice", agent)
                assert (await fixture.store.row(scope, f"t-{agent}")).hidden is False
                assert await fixture.store.count_by_state(agent) == {"completed": 1, "runnable": 0}
                assert await fixture.store.find_key(scope, f"t-{agent}") == (f"t-{agent}", b"d")
            scope = Scope("", "alice", only)
            for name in ("t-", "t-waiting"):
                assert (await fixture.store.row(scope, name)).hidden is True
            assert await fixture.store.find_key(scope, "t-") == ("t-", b"d")
            waits = await fixture.store.outbox(dead=False, limit=9)
            assert {one.scope.agent for one in waits} == {*agents, only}
            await fixture.store.ask_cancel(scope, "t-waiting")  # its row is written anew
            await fixture.reopen()
