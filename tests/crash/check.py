"""Compares what the server told with what it kept, to the byte."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from crash.client import Client, Event, Refused
from crash.load import FINAL as WIRE_FINAL
from crash.load import Memory
from dragoman.core.events import Stamped, StateChanged
from dragoman.core.lifecycle import FINAL, WAITING, Fold
from dragoman.core.model import State, Task, Text
from dragoman.dialects.a2a.v1_0.convert import task_out
from dragoman.store.codec import unpack_piece, unpack_task
from dragoman.store.file.format import FileLine, entries_in
from dragoman.store.sqlite.migrations import scripts
from waiting import within


class Kept(Struct):
    """A task as it lies in the store."""

    task_id: str
    context_id: str
    state: State
    last_seq: int
    inputs: int
    heard: int
    attempt: int
    worker: str
    runnable: bool
    key: str | None
    agent: str = ""
    entries: list[Stamped] = []
    frozen: Task | None = None
    brief: bool = False
    """Ended in its first write: its log says it all."""
    records: list[tuple[str, bytes]] = []

    @property
    def resting(self) -> bool:
        return self.state in FINAL or (self.state in WAITING and self.inputs == self.heard)

    def fold(self) -> Task:
        fold = Fold(self.task_id, self.context_id)
        for entry in self.entries:
            fold.add(entry)
        return fold.task()


def read_sqlite(path: Path) -> dict[str, Kept]:
    """Every task in a SQLite file, read past the code that wrote it."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        db.execute("BEGIN")
        found: dict[str, Kept] = {}
        if db.execute("PRAGMA user_version").fetchone()[0] < scripts()[-1][0]:
            return found  # cut while it was made: tasks come later
        db.row_factory = sqlite3.Row
        for row in db.execute("SELECT * FROM task"):
            found[row["task_id"]] = Kept(
                task_id=row["task_id"],
                context_id=row["context_id"],
                state=State(row["state"]),
                last_seq=row["last_seq"],
                inputs=row["inputs"],
                heard=row["heard"],
                attempt=row["attempt"],
                worker=row["worker"],
                runnable=bool(row["runnable"]),
                key=row["key"],
                agent=row["agent"],
            )
        for task_id, body in db.execute("SELECT task_id, log FROM task WHERE log IS NOT NULL"):
            found[task_id].entries += unpack_piece(body)
            found[task_id].brief = True
        pieces = {
            n: (previous, body)
            for n, previous, body in db.execute("SELECT n, previous, body FROM piece")
        }
        for task_id, last in db.execute("SELECT task_id, last_piece FROM task"):
            log: list[bytes] = []
            while last:
                last, body = pieces.pop(last)  # a piece belongs to one task
                log.append(body)
            for body in reversed(log):
                found[task_id].entries += unpack_piece(body)
            assert not log or not found[task_id].brief, "a brief task has its log in its row"
        assert not pieces, "pieces of no task"
        for task_id, body in db.execute("SELECT task_id, body FROM frozen"):
            found[task_id].frozen = unpack_task(body)
        for task_id, key, value in db.execute("SELECT task_id, key, value FROM record ORDER BY n"):
            found[task_id].records.append((key, value))
        return found


def unsettled_sqlite(path: Path) -> int:
    """How many tasks neither ended nor wait for their caller."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=120)) as db:
        (number,) = db.execute(
            "SELECT count(*) FROM task WHERE ended = 0 AND NOT (inputs = heard"
            " AND state IN ('input-required', 'auth-required'))"
        ).fetchone()
        return int(number)


def integrity(path: Path) -> str:
    """What SQLite itself says."""
    with closing(sqlite3.connect(path)) as db:
        return "; ".join(row[0] for row in db.execute("PRAGMA integrity_check"))


_line = msgspec.json.Decoder(FileLine).decode


def read_folder(folder: Path) -> dict[str, Kept]:
    """Every task in a folder of logs. A last line that is still being written does not count."""
    found: dict[str, Kept] = {}
    for path in folder.glob("tasks/*.jsonl"):
        *whole, _ = path.read_bytes().split(b"\n")
        lines = [_line(raw) for raw in whole]
        if not lines:
            continue
        row = lines[-1].row
        found[row.task_id] = Kept(
            task_id=row.task_id,
            context_id=row.context_id,
            state=row.state,
            last_seq=row.last_seq,
            inputs=row.inputs,
            heard=row.heard,
            attempt=row.attempt,
            worker=row.worker,
            runnable=row.runnable,
            entries=[entry for line in lines for entry in entries_in(line)],
            frozen=next((line.task for line in lines if line.task is not None), None),
            records=[(record.key, record.value) for line in lines for record in line.records],
            key=next((line.key.key for line in lines if line.key is not None), None),
        )
    return found


class Counts(Struct):
    """What a test has seen, so that it cannot pass by having done nothing."""

    kills: int = 0
    acked: int = 0
    events_compared: int = 0
    streams: int = 0
    streams_resumed: int = 0
    reruns: int = 0
    answers: int = 0
    cancels: int = 0
    keys: int = 0
    cut_off: int = 0
    steps_executed: int = 0
    steps_recorded: int = 0
    kept: int = 0
    violations: int = 0

    def __str__(self) -> str:
        return " ".join(
            f"{k.replace('_', '-')}={v}" for k, v in msgspec.structs.asdict(self).items()
        )


def check_kept(
    memory: Memory, kept: dict[str, Kept], ledger: Path | None, *, alone: bool = True
) -> None:
    """What lies in the store: every acknowledged task, gap-free logs, one end, records once.

    `alone`: only one process at a time ran, so a recorded step was not executed again after.
    Without a ledger, the steps were executed elsewhere."""
    faults = memory.faults
    for task_id, kind in memory.acked.items():
        if task_id not in kept:
            faults.add("acknowledged task lost", f"{kind} {task_id}")
    for one in kept.values():
        _check_log(memory, one)
        if one.task_id in memory.acked and not one.resting:
            faults.add("never came to rest", f"{one.task_id} {one.state} attempt {one.attempt}")
    _check_promises(memory, kept)
    if ledger is not None:
        _check_steps(memory, kept, ledger, alone=alone)
    keys = Counter(one.key for one in kept.values() if one.key is not None)
    for key, ids in memory.keys.items():
        if len(ids) != 1 or keys[key] != 1:
            faults.add("idempotency key used twice", f"{key} {ids} {keys[key]}")


def _check_log(memory: Memory, one: Kept) -> None:
    faults, seqs = memory.faults, [entry.seq for entry in one.entries]
    if seqs != list(range(1, one.last_seq + 1)):
        faults.add("sequence gap", f"{one.task_id} {one.last_seq} {seqs}")
    ends = [
        e.seq for e in one.entries if isinstance(e.event, StateChanged) and e.event.state in FINAL
    ]
    if len(ends) > 1:
        faults.add("second terminal event", f"{one.task_id} {ends}")
    if ends and ends[0] != one.entries[-1].seq:
        faults.add("event after a terminal one", f"{one.task_id} {ends[0]} of {seqs[-1]}")
    task = one.fold()
    if task.status.state is not one.state:
        faults.add("row and log differ", f"{one.task_id} {one.state} {task.status.state}")
    if (one.frozen is not None or one.brief) != (one.state in FINAL):
        faults.add("frozen and row differ", f"{one.task_id} {one.state}")
    if one.frozen is not None and one.frozen != task:
        faults.add("frozen and log differ", f"{one.task_id} {one.frozen} {task}")


def _check_promises(memory: Memory, kept: dict[str, Kept]) -> None:
    faults = memory.faults
    for task_id in memory.acked:
        if task_id not in kept:
            continue
        one = kept[task_id]
        task = one.fold()
        if (reason := reason_of(task)) in memory.reasons:
            memory.failed[reason] += 1
            continue
        wanted = State.CANCELED if task_id in memory.cancels else State.COMPLETED
        if task.status.state in FINAL and task.status.state is not wanted:
            said = task.status.message
            faults.add("ended otherwise", f"{task_id} {task.status.state} {said and said.text}")
        if task_id in memory.expected and task.status.state is State.COMPLETED:
            text = re.sub(r"\b[0-9a-f]{12}\b", "*", text_of(task))
            if text != memory.expected[task_id]:
                faults.add("wrong result", f"{task_id} {text!r} not {memory.expected[task_id]!r}")
        ids = Counter(said.message_id for said in task.history)
        for message_id, times in ids.items():
            if times > 1:
                faults.add("message twice in history", f"{task_id} {message_id}")
    for message_id, task_id in memory.answers.items():
        if task_id in kept:
            history = kept[task_id].fold().history
            if not any(said.message_id == message_id for said in history):
                faults.add("acknowledged answer lost", f"{task_id} {message_id}")


def _check_steps(memory: Memory, kept: dict[str, Kept], ledger: Path, *, alone: bool) -> None:
    faults = memory.faults
    executed = executions(ledger)
    for one in kept.values():
        recorded = [
            (key, msgspec.json.decode(value, type=str))
            for key, value in one.records
            if key.startswith("step:")
        ]
        if len({key for key, _ in recorded}) != len(recorded):
            faults.add("step recorded twice", f"{one.task_id} {recorded}")
        for key, value in recorded:
            values = executed.get((one.task_id, int(key[6:])), [])
            if value not in values:
                faults.add("step recorded, never executed", f"{one.task_id} {key}")
            elif alone and value != values[-1]:
                faults.add("recorded step executed again", f"{one.task_id} {key} {values}")
        if one.state is State.COMPLETED and one.task_id in memory.steps:
            if len(recorded) != memory.steps[one.task_id]:
                faults.add("steps missing", f"{one.task_id} {recorded}")
            text = text_of(one.fold())
            if [word for word in text.split() if len(word) == 12] != [v for _, v in recorded]:
                faults.add("result is not what the steps gave", f"{one.task_id} {text} {recorded}")


def executions(ledger: Path) -> dict[tuple[str, int], list[str]]:
    """Every execution of a step, recorded or not, in order."""
    found: dict[tuple[str, int], list[str]] = defaultdict(list)
    if ledger.exists():
        for line in ledger.read_text().splitlines():
            task_id, n, value = line.split()
            found[task_id, int(n)].append(value)
    return found


def reason_of(task: Task) -> str:
    """Why a task failed; empty if it did not."""
    said = task.status.message
    if task.status.state is not State.FAILED or said is None:
        return ""
    return str((said.metadata or {}).get("reason", ""))


def text_of(task: Task) -> str:
    """The text of all artifacts."""
    return "".join(p.text for a in task.artifacts for p in a.parts if isinstance(p, Text))


async def settled(loading: asyncio.Task[None], unsettled: Callable[[], int], most: float) -> None:
    """Returns when the load is over and every task rests, or has had time enough to."""
    await within(most, lambda: loading.done() and not unsettled(), 0.2)
    if loading.done():
        loading.result()


async def check_told(
    memory: Memory, kept: dict[str, Kept], client: Client, patience: float = 20.0
) -> int:
    """What the server tells now: tasks as their logs add up, and every tale as it was told.

    Gives the number of events that were compared. A replay has `patience` seconds to end."""
    places = asyncio.Semaphore(8)
    compared = 0

    async def task(one: Kept) -> None:
        async with places:
            try:
                told = await client.task(one.task_id)
            except Refused as exc:
                memory.faults.add("GetTask refused", f"{one.task_id} {exc}")
                return
        if told["status"]["state"] in WIRE_FINAL:
            memory.seen(told)
        added_up = msgspec.json.decode(msgspec.json.encode(task_out(one.fold())))
        if told != added_up:
            memory.faults.add("GetTask is not the fold of the log", f"{told} {added_up}")

    async def tale(task_id: str, events: list[Event]) -> None:
        nonlocal compared
        async with places:
            try:
                async with asyncio.timeout(patience):
                    replay = await client.listen(
                        "SubscribeToTask", {"id": task_id}, last_event_id="0"
                    )
            except Refused as exc:
                memory.faults.add("replay refused", f"{task_id} {exc}")
                return
            except TimeoutError:
                memory.faults.add("replay never ended", task_id)
                return
        compared += len(events)
        if task_id in kept and [n for n, _ in replay] != [e.seq for e in kept[task_id].entries]:
            memory.faults.add("replay is not the log", task_id)
        if replay != events:
            odd = [(a, b) for a, b in zip(events, replay, strict=False) if a != b][:1]
            memory.faults.add(
                "stream is not the log", f"{task_id} {len(events)} of {len(replay)}: {odd}"
            )

    async with asyncio.TaskGroup() as group:
        for task_id in memory.acked:
            if task_id in kept:
                group.create_task(task(kept[task_id]))
        for one in memory.tales:
            if not one.done:
                memory.faults.add("stream never ended", one.task_id)
            group.create_task(tale(one.task_id, one.events))
    return compared


def count(memory: Memory, kept: dict[str, Kept], ledger: Path, kills: int, compared: int) -> Counts:
    """The figures."""
    records = [key for one in kept.values() for key, _ in one.records]
    return Counts(
        kills=kills,
        acked=len(memory.acked),
        events_compared=compared,
        streams=len(memory.tales),
        streams_resumed=sum(1 for tale in memory.tales if tale.resumes),
        reruns=sum(_reruns(one) for one in kept.values()),
        answers=len(memory.answers),
        cancels=len(memory.cancels),
        keys=len(memory.keys),
        cut_off=memory.unanswered,
        steps_executed=sum(len(values) for values in executions(ledger).values()),
        steps_recorded=sum(1 for key in records if key.startswith("step:")),
        kept=len(kept),
        violations=len(memory.faults),
    )


def _reruns(one: Kept) -> int:
    return sum(
        1
        for entry in one.entries
        if isinstance(entry.event, StateChanged)
        and entry.event.metadata is not None
        and "attempt" in entry.event.metadata
    )


def summary(counts: Counts, memory: Memory) -> str:
    """For the terminal."""
    kinds: dict[str, Any] = dict(memory.faults.kinds)
    return f"{counts}" + (f"\n  violations: {kinds}" if kinds else "")
