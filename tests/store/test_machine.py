"""Random histories: each store against a plain model that knows nothing of its rules."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from counts import FULL, count
from dragoman.core.errors import Conflict, Fenced, TaskFinished
from dragoman.core.events import Ask, Asked, Stamped, StateChanged
from dragoman.core.model import Role, State
from dragoman.store import Store, open_store
from dragoman.store.interface import Claim, Existing, Filter, Idempotency, Input, Record, Unheard
from dragoman.testing.stores import HandClock, StoreFixture
from dragoman.testing.stores.fixture import AGENT, ALICE, said
from postgres import store_url

LEASE = 1000
WORKERS = ("w1", "w2", "w3")
PAUSES = {n: min(30_000, 1000 * 2 ** (n - 1)) for n in range(1, 100)}
ENDS = (State.COMPLETED, State.FAILED, State.CANCELED)
OPEN_ENDED = (State.INPUT_REQUIRED, State.AUTH_REQUIRED)

workers = st.sampled_from(WORKERS)
places = st.integers(0, 5)


class Machine(RuleBasedStateMachine):
    """One store, one model, the same changes."""

    url = "memory:"
    durable = False

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp())
        self.tasks: dict[str, dict[str, Any]] = {}
        self.alive: dict[str, int] = {}
        self.claims: list[Claim] = []
        self.counter = 0

    async def _make(self, folder: Path, clock: HandClock) -> Store:
        return open_store(self.url.format(folder=folder), clock=clock)

    @initialize()
    def begin(self) -> None:
        self.fixture = StoreFixture(self._make, self.folder)
        self.run(self.fixture.__aenter__())
        self.alive["w1"] = self.fixture.clock.now + 30_000

    def teardown(self) -> None:
        if hasattr(self, "fixture"):
            self.run(self.fixture.store.close())
        self.runner.close()
        shutil.rmtree(self.folder)

    def run(self, coroutine: Any) -> Any:
        return self.runner.run(coroutine)

    @property
    def store(self) -> Store:
        return self.fixture.store

    @property
    def now(self) -> int:
        return self.fixture.clock.now

    def pick(self, place: int) -> tuple[str, dict[str, Any]] | None:
        names = list(self.tasks)
        if not names:
            return None
        # The newest ones are the interesting ones.
        name = names[-1 - place % len(names)]
        return name, self.tasks[name]

    # Time.

    @rule(millis=st.sampled_from([1, 400, 1000, 5000]))
    def time_passes(self, millis: int) -> None:
        self.fixture.clock.tick(millis)

    # Creating and appending.

    @rule(worker=st.sampled_from(["", *WORKERS]), key=st.sampled_from(["", "", "k1", "k2"]))
    def create(self, worker: str, key: str) -> None:
        self.counter += 1
        name = f"t{self.counter:03}"
        idempotency = Idempotency(key, b"d") if key else None
        draft = self.fixture.draft(name, worker=worker, key=idempotency)
        taken = next((n for n, task in self.tasks.items() if key and task["key"] == key), None)
        if taken is not None:
            with pytest.raises(Existing) as caught:
                self.run(self.fixture.create(draft))
            assert caught.value.task_id == taken
            return
        self.run(self.fixture.create(draft))
        self.claims.append(draft.row.claim)
        self.tasks[name] = {
            "key": key,
            "state": State.WORKING,
            "log": list(draft.entries),
            "whole": True,
            "worker": worker,
            "token": draft.row.token,
            "epoch": draft.row.epoch,
            "attempt": draft.row.attempt,
            "runnable": not worker,
            "run_at": self.now,
            "inputs": [],
            "heard": 0,
            "question": "",
            "cancel": False,
            "at": self.now,
            "expires_at": 0,
            "records": {},
        }

    @precondition(lambda self: self.claims)
    @rule(
        place=places,
        kind=st.sampled_from(["work", "work", "ask", "end", "end"]),
        hear=st.booleans(),
        stale=st.booleans(),
        record=st.booleans(),
        shift=st.sampled_from([0, 0, 0, 1, -1]),
    )
    def append(
        self, place: int, kind: str, hear: bool, stale: bool, record: bool, shift: int
    ) -> None:
        names = [claim for claim in reversed(self.claims) if claim.task_id in self.tasks]
        if not names:
            return
        claim = names[place % len(names)]
        task = self.tasks[claim.task_id]
        if not stale and task["token"]:
            claim = Claim(claim.task_id, task["worker"], task["token"], task["epoch"])
        base = len(task["log"]) + shift
        heard = len(task["inputs"]) if hear else task["heard"]
        self.counter += 1
        question = f"q{self.counter}" if kind == "ask" else ""
        events: list[Any] = [StateChanged(state=State.WORKING)]
        if kind == "ask":
            message = said("?", Role.AGENT)
            events.append(Asked(question=question, kind=Ask.INPUT, message=message))
        if kind == "end":
            events.append(StateChanged(state=ENDS[place % 3]))
        fold = self.fixture.folds[claim.task_id]
        seq, fold.seq = fold.seq, base
        records = (Record(key=f"r{place}", value=bytes([place]), seq=base),) if record else ()
        expires_at = self.now + 500 if kind == "ask" else 0
        fits = shift == 0 and claim.token == task["token"] != "" and claim.epoch == task["epoch"]
        unheard = kind == "end" and len(task["inputs"]) > heard
        if not fits or unheard:
            # A refused change must not reach the fixture's own picture of the task.
            self.fixture.folds[claim.task_id] = type(fold)(fold.task_id, fold.context_id)
            self.fixture.folds[claim.task_id].seq = base
        write = self.fixture.write(
            claim, *events, heard=heard, records=records, expires_at=expires_at
        )
        if not fits or unheard:
            self.fixture.folds[claim.task_id] = fold
            fold.seq = seq
            with pytest.raises(Fenced if not fits else Unheard):
                self.run(self.fixture.append(write))
            return
        self.run(self.fixture.append(write))
        task["log"] += write.entries
        for kept in records:
            task["records"].setdefault(kept.key, kept)
        task.update(state=write.state, heard=heard, question=question, at=self.now)
        task["expires_at"] = expires_at
        if kind == "end":
            task.update(worker="", token="", question="", expires_at=0)

    # Callers.

    @rule(place=places, question=st.sampled_from([None, None, "open", "wrong"]))
    def tell(self, place: int, question: str | None) -> None:
        picked = self.pick(place)
        if picked is None:
            return
        name, task = picked
        open_question = task["question"] if len(task["inputs"]) == task["heard"] else ""
        asked = {None: None, "open": open_question or "none", "wrong": "wrong"}[question]
        said_now = Input(message=said(f"n{self.counter}"))
        telling = self.store.add_input(ALICE, name, said_now, asked)
        if task["state"] in ENDS:
            with pytest.raises(TaskFinished):
                self.run(telling)
            return
        if asked is not None and asked != open_question:
            with pytest.raises(Conflict):
                self.run(telling)
            return
        self.run(telling)
        task["inputs"].append((said_now.message, open_question))
        if not task["worker"] and not task["runnable"]:
            task.update(runnable=True, run_at=self.now)

    @rule(place=places)
    def cancel(self, place: int) -> None:
        picked = self.pick(place)
        if picked is not None:
            name, task = picked
            self.run(self.store.ask_cancel(ALICE, name))
            if task["state"] not in ENDS and not task["cancel"]:
                task["cancel"] = True
                if not task["worker"]:
                    task.update(runnable=True, run_at=self.now)

    # Workers.

    def _took(self, row: Any) -> None:
        task = self.tasks[row.task_id]
        assert row.token
        assert row.token not in {claim.token for claim in self.claims}
        task["epoch"] += 1
        task["attempt"] += 1
        task.update(worker=row.worker, token=row.token, runnable=False)
        self.claims.append(row.claim)

    @rule(worker=workers, limit=st.integers(1, 4))
    def claim(self, worker: str, limit: int) -> None:
        due = [
            (task["run_at"], name)
            for name, task in self.tasks.items()
            if task["runnable"] and task["run_at"] <= self.now and worker in self.alive
        ]
        rows = self.run(self.store.claim(worker, AGENT, limit))
        assert [row.task_id for row in rows] == [name for _, name in sorted(due)[:limit]]
        for row in rows:
            assert row.worker == worker
            self._took(row)

    @rule(worker=workers, place=places, late=st.sampled_from([0, 0, 1]))
    def seize(self, worker: str, place: int, late: int) -> None:
        picked = self.pick(place)
        if picked is None:
            return
        name, task = picked
        row = self.run(self.store.seize(worker, name, task["epoch"] - late))
        may = worker in self.alive and not late and task["state"] not in ENDS
        assert (row is not None) == may
        if row is not None:
            self._took(row)

    def _given_back(self, task: dict[str, Any], runnable: bool) -> None:
        unheard = task["state"] in OPEN_ENDED and len(task["inputs"]) > task["heard"]
        task.update(worker="", token="", attempt=max(0, task["attempt"] - 1), run_at=self.now)
        task["runnable"] = runnable or task["cancel"] or unheard

    @precondition(lambda self: self.claims)
    @rule(place=places, runnable=st.booleans())
    def release(self, place: int, runnable: bool) -> None:
        claim = self.claims[-1 - place % len(self.claims)]
        self.run(self.store.release(claim, runnable=runnable))
        task = self.tasks.get(claim.task_id)
        if task is not None and claim.token and task["token"] == claim.token:
            self._given_back(task, runnable)

    @rule(worker=workers)
    def enlist(self, worker: str) -> None:
        self.run(self.store.enlist(worker, LEASE))
        self.alive[worker] = self.now + LEASE

    @rule(worker=workers)
    def beat(self, worker: str) -> None:
        assert self.run(self.store.beat(worker, LEASE)) == (worker in self.alive)
        if worker in self.alive:
            self.alive[worker] = self.now + LEASE

    @rule(worker=workers)
    def retire(self, worker: str) -> None:
        self.run(self.store.retire(worker))
        self.alive.pop(worker, None)
        for task in self.tasks.values():
            if task["worker"] == worker:
                resting = task["state"] in OPEN_ENDED and len(task["inputs"]) == task["heard"]
                self._given_back(task, not resting)

    @rule()
    def reap(self) -> None:
        self.alive = {name: until for name, until in self.alive.items() if until > self.now}
        lost = set()
        for name, task in self.tasks.items():
            if task["worker"] and task["worker"] not in self.alive:
                lost.add(name)
                resting = task["state"] in OPEN_ENDED and len(task["inputs"]) == task["heard"]
                pause = 0 if task["cancel"] else PAUSES[max(1, task["attempt"])]
                task.update(worker="", token="", runnable=task["cancel"] or not resting)
                if task["runnable"]:
                    task["run_at"] = self.now + pause
        assert set(self.run(self.store.reap())) == lost

    # Housekeeping.

    @rule(events_ms=st.sampled_from([500, 3000]), tasks_ms=st.sampled_from([3000, 20_000]))
    def sweep(self, events_ms: int, tasks_ms: int) -> None:
        ended = {n: self.now - t["at"] for n, t in self.tasks.items() if t["state"] in ENDS}
        gone = [name for name, age in ended.items() if age >= tasks_ms]
        shrunk = [
            name
            for name, age in ended.items()
            if tasks_ms > age >= events_ms and self.tasks[name]["whole"]
        ]
        assert self.run(self.store.sweep(AGENT, events_ms, tasks_ms, 99)) == len(gone) + len(shrunk)
        for name in gone:
            del self.tasks[name]
        for name in shrunk:
            self.tasks[name]["whole"] = False

    @precondition(lambda self: self.durable)
    @rule()
    def restart(self) -> None:
        self.run(self.fixture.reopen())
        # Leases may not be over, but whoever worked here is gone with the store that was closed.
        self.alive.clear()
        self.reap()

    # Looking.

    def _agrees(self, name: str, task: dict[str, Any]) -> None:
        row = self.run(self.store.row(ALICE, name))
        seen = {
            "state": row.state,
            "worker": row.worker,
            "token": row.token,
            "epoch": row.epoch,
            "attempt": row.attempt,
            "runnable": row.runnable,
            "heard": row.heard,
            "question": row.question,
            "cancel": row.cancel,
            "at": row.status_at,
            "expires_at": row.expires_at,
        }
        assert seen == {field: task[field] for field in seen}
        assert row.last_seq == len(task["log"])
        assert row.inputs == len(task["inputs"])
        if row.runnable:
            assert row.run_at == task["run_at"]

    @invariant()
    def rows_agree(self) -> None:
        for name in list(self.tasks)[-4:]:
            self._agrees(name, self.tasks[name])

    @rule()
    def everything_agrees(self) -> None:
        counts: dict[str, int] = {"runnable": 0}
        for name, task in self.tasks.items():
            self._agrees(name, task)
            log: list[Stamped] = task["log"] if task["whole"] else []
            assert self.run(self.fixture.log(name)) == log
            _, loaded = self.run(self.store.load(ALICE, name))
            assert loaded == self.fixture.folds[name].task()
            counts["runnable"] += task["runnable"]
            counts[task["state"].value] = counts.get(task["state"].value, 0) + 1
            if task["token"]:
                claim = Claim(name, task["worker"], task["token"], task["epoch"])
                heard = [(i.message, i.question) for i in self.run(self.store.inputs(claim))]
                assert heard == task["inputs"]
                assert self.run(self.store.records(claim)) == list(task["records"].values())
        assert self.run(self.store.count_by_state(AGENT)) == counts
        listing = self.run(self.store.find(ALICE, Filter(), 999))
        order = sorted(((t["at"], n) for n, t in self.tasks.items()), reverse=True)
        assert (listing.places, listing.total) == (order, len(order))
        expired = sorted(
            (task["expires_at"], name)
            for name, task in self.tasks.items()
            if 0 < task["expires_at"] <= self.now and len(task["inputs"]) == task["heard"]
        )
        found = self.run(self.store.list_expired_tasks(AGENT, 999))
        assert [row.task_id for row in found] == [name for _, name in expired]
        for worker in WORKERS:
            held = {it.claim.task_id for it in self.run(self.store.list_held_tasks(worker))}
            assert held == {n for n, task in self.tasks.items() if task["worker"] == worker}


class SqliteMachine(Machine):
    url = "sqlite:///{folder}/tasks.db"
    durable = True


class PostgresMachine(Machine):
    durable = True

    async def _make(self, folder: Path, clock: HandClock) -> Store:
        return open_store(store_url(folder), clock=clock)


class FileMachine(Machine):
    url = "file://{folder}/tasks"
    durable = True


for machine, examples in (
    (Machine, 40),
    (SqliteMachine, 15),
    (FileMachine, 15),
    (PostgresMachine, 9),
):
    machine.TestCase.settings = settings(
        max_examples=count(examples // 3, examples, examples * 40),
        stateful_step_count=80 if FULL else 30,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )

TestMemory = Machine.TestCase
TestSqlite = SqliteMachine.TestCase
TestFile = FileMachine.TestCase
TestPostgres = pytest.mark.slow(PostgresMachine.TestCase)  # starts PostgreSQL
