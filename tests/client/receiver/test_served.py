"""Real calls over real sockets: our own engine's, and those of the official SDKs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from client.receiver.calls import TOKEN, Diary, listening
from dragoman.client.receiver import Notice, Proof, Receiver
from dragoman.core.events import ArtifactChunk, Opened, Snapshot, Stamped, StateChanged
from dragoman.core.model import State
from interop import peers
from webhooks.harness import ALICE, empty, engine, hook, send

SENDERS = Path(__file__).parent / "senders"


def last(told: list[Notice]) -> State | None:
    return next((notice.state for notice in reversed(told) if notice.state), None)


@pytest.mark.parametrize("dialect", ["a2a-1.0", "a2a-0.3", "a2a-0.1", "a2a-go"])
async def test_what_our_server_pushes_arrives_once_and_in_order(dialect: str) -> None:
    diary = Diary()
    diary.failures = 2  # the first delivery must be tried again
    async with listening(Receiver(diary, Proof(tokens=(TOKEN,)))) as url, engine() as running:
        caller = replace(ALICE, dialect=dialect)
        at = hook(url, token=TOKEN, dialect=dialect)
        task = await send(running, "3", at, ctx=caller)
        async with asyncio.timeout(60):
            await empty(running)
    assert {notice.task_id for notice in diary.told} == {task.id}
    assert all(notice.signed for notice in diary.told)
    entries = [notice.entry for notice in diary.told if isinstance(notice.entry, Stamped)]
    seqs = [entry.seq for entry in entries]
    assert seqs == sorted(set(seqs))
    assert last(diary.told) is State.COMPLETED
    kinds = {type(entry.event) for entry in entries}
    if dialect == "a2a-1.0":
        assert seqs == list(range(1, len(entries) + 1))
        assert kinds <= {Opened, Snapshot, StateChanged, ArtifactChunk}
        assert ArtifactChunk in kinds
    else:
        assert kinds == {Snapshot}
        whole = diary.told[-1].task
        assert whole is not None
        assert whole.text == "0 1 2 "


async def test_a_receiver_with_another_token_hears_nothing() -> None:
    diary = Diary()
    async with listening(Receiver(diary, Proof(tokens=("another",)))) as url, engine() as running:
        await send(running, "1", hook(url, token=TOKEN))
        async with asyncio.timeout(60):
            await empty(running)
        assert await running.store.outbox(dead=True, limit=1)
    assert diary.told == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("peer", "script"),
    [(peers.A2A_SDK, "a2a_sdk_1_3.py"), (peers.A2A_SDK_0_3, "a2a_sdk_0_3.py")],
    ids=lambda one: one.name if isinstance(one, peers.Peer) else "",
)
async def test_official_senders_are_heard(peer: peers.Peer, script: str) -> None:
    diary = Diary()
    proof = Proof(tokens=(TOKEN,), unsigned=True)
    async with listening(Receiver(diary, proof)) as url:
        done = await asyncio.to_thread(peer.run, SENDERS / script, url, TOKEN, timeout=120)
    assert done.returncode == 0, done.stderr
    assert {notice.task_id for notice in diary.told} == {"t-1"}
    assert not any(notice.signed for notice in diary.told)
    assert last(diary.told) is State.COMPLETED
