"""`kill -9` of the gateway or of its upstreams under load, with callers in two dialects."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from crash.check import read_sqlite
from crash.client import message, sending
from crash.fire import ATTEMPTS, FULL, fire_at
from crash.load import FINAL
from dragoman import State
from gateway.under_fire import (
    Gateway,
    GatewayLoad,
    Loads,
    Servers,
    Upstream,
    remote_id,
    verdict,
)
from waiting import until

pytestmark = pytest.mark.slow  # starts processes
KILLS = 20 if FULL else 2
SEED = int(os.environ.get("CRASH_SEED", "1"))
UNKNOWN = ("unknown_outcome",)
"""How a task may fail whose agent keeps no idempotency keys."""


async def test_an_answer_is_not_given_again_to_the_next_question(tmp_path: Path) -> None:
    """An agent without idempotency keys takes a message as the answer to whatever it asks now."""
    with (
        Upstream(tmp_path, "plain", without="keys") as upstream,
        Gateway(tmp_path, {"plain": (upstream, "")}) as gateway,
    ):
        await Servers(upstream, gateway).begin()
        client = gateway.clients("plain")[0]
        sent = sending(message("go", "m1", "ask"))
        opened = (await client.call("SendMessage", sent))["task"]["id"]
        for number, word in enumerate(("one", "two", "yes")):
            said = message(word, f"a{number}", task_id=opened)
            await client.call("SendMessage", sending(said))
            gateway.kill()
            gateway.start()
            await gateway.ready()

        async def ended() -> Any:
            found = await client.task(opened)
            return found if found["status"]["state"] in FINAL else None

        found = await until(ended)
        assert found["artifacts"][0]["parts"] == [{"text": "one two True"}], gateway.logged()


async def test_a_task_that_is_canceled_while_its_agent_is_away_is_canceled_there_later(
    tmp_path: Path,
) -> None:
    with (
        Upstream(tmp_path, "keyed") as upstream,
        Gateway(tmp_path, {"keyed": (upstream, "")}) as gateway,
    ):
        await Servers(upstream, gateway).begin()
        client = gateway.clients("keyed")[0]
        sent = sending(message("6000 0.1", "m1", "count"), wait=False)
        opened = (await client.call("SendMessage", sent))["task"]["id"]
        await until(lambda: remote_id(read_sqlite(gateway.db)[opened]))
        upstream.kill()
        canceled = await client.call("CancelTask", {"id": opened})
        assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
        upstream.start()
        await upstream.ready()

        def over() -> bool:
            return all(one.state is State.CANCELED for one in read_sqlite(upstream.db).values())

        await until(over)


@pytest.mark.parametrize("killed", ["gateway", "upstreams"])
async def test_kill_9_under_load(
    killed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Callers of an agent that keeps idempotency keys, of one that keeps none, and of one that may
    get a message twice: each gets the truth, whichever side dies."""
    keyed, plain = Upstream(tmp_path, "keyed"), Upstream(tmp_path, "plain", without="keys")
    agents = {"keyed": (keyed, ""), "plain": (plain, ""), "again": (plain, "repeat = true")}
    with keyed, plain, Gateway(tmp_path, agents) as gateway:
        behind = Servers(keyed, plain)
        await Servers(keyed, plain, gateway).begin()
        reasons = {"keyed": (), "plain": UNKNOWN, "again": ()}
        loads = [GatewayLoad(gateway, name, SEED, reasons[name]) for name in agents]
        target = gateway if killed == "gateway" else behind
        await fire_at(target, Loads(*loads), KILLS, SEED, gateway.unsettled)
        for load in loads:
            upstream = agents[load.name][0]
            told = await verdict(gateway, load, KILLS, upstream, repeat=load.name == "again")
            with capsys.disabled():
                print(f"\n  kill -9, {killed}, {told}")
    for load in loads:
        assert not load.memory.faults, f"{load.name}: {load.memory.faults}\n{gateway.logged()}"


async def test_a_repetition_would_be_noticed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The control: a slow agent without idempotency keys, and a gateway that is killed while
    messages are on their way. Only an agent that is marked for it gets some of them twice. Where a
    kill hits is chance, so the control is repeated until both were seen."""
    unknown = twice = 0
    for attempt in range(ATTEMPTS):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        plain, again = await without_keys(folder, capsys)
        unknown += plain.memory.failed["unknown_outcome"]
        twice += again.memory.faults.kinds["executed twice"]
        if unknown and twice:
            return
    raise AssertionError(f"{unknown} with an unknown outcome, {twice} executed twice")


async def without_keys(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[GatewayLoad, GatewayLoad]:
    """Kills a gateway before a slow agent without idempotency keys, and returns the load of an
    agent that may not be asked twice, and of one that may."""
    kills = 2
    slow = Upstream(folder, "slow", without="slow,keys")
    with (
        slow,
        Gateway(folder, {"plain": (slow, ""), "again": (slow, "repeat = true")}) as gateway,
    ):
        await Servers(slow, gateway).begin()
        plain = GatewayLoad(gateway, "plain", SEED, UNKNOWN, only="keyed")
        again = GatewayLoad(gateway, "again", SEED, only="keyed")
        loads = Loads(plain, again, quick=4, pace=10.0)
        await fire_at(gateway, loads, kills, SEED, gateway.unsettled)
        for load in (plain, again):
            told = await verdict(gateway, load, kills, slow)
            with capsys.disabled():
                print(f"\n  control, {told}")
    assert not plain.memory.faults, f"{plain.memory.faults}\n{gateway.logged()}"
    return plain, again


async def test_an_agent_that_restarts_with_an_empty_store_loses_its_tasks_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kills = 5 if FULL else 2
    forgets = Upstream(tmp_path, "forgets", store="memory:")
    with forgets, Gateway(tmp_path, {"forgets": (forgets, "")}) as gateway:
        await Servers(forgets, gateway).begin()
        load = GatewayLoad(gateway, "forgets", SEED, ("task_lost",))
        await fire_at(forgets, Loads(load, quick=4), kills, SEED, gateway.unsettled)
        # An agent that forgets its keys with its tasks cannot recognise a message either.
        told = await verdict(gateway, load, kills, forgets, repeat=True)
        with capsys.disabled():
            print(f"\n  kill -9, empty store, {told}")
    assert not load.memory.faults, f"{load.memory.faults}\n{gateway.logged()}"
    assert load.memory.failed["task_lost"] > 0
