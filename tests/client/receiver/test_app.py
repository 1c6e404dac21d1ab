"""The receiver as a server: limits, repeats, failures of the callback."""

from __future__ import annotations

import asyncio
import logging

import pytest
from joserfc.jwk import OKPKey

from client.receiver.calls import TOKEN, Diary, body_of, call, post, receiver, task_1_0
from dragoman.client.receiver import Issuer, Proof
from dragoman.client.receiver.replay_cache import ReplayCache, SeenCall
from waiting import until

BODY = body_of(task_1_0())


async def test_the_same_delivery_is_told_once() -> None:
    diary = Diary()
    app = receiver(diary)
    assert [(await post(app, call(BODY), BODY))[0] for _ in range(5)] == [204] * 5
    # Tried again later: same name, new time.
    assert (await post(app, call(BODY, at=1_800_000_100), BODY))[0] == 204
    assert len(diary.told) == 1
    assert (await post(app, call(BODY, id="t-1.4"), BODY))[0] == 204
    assert [notice.id for notice in diary.told] == ["t-1.3", "t-1.4"]


async def test_a_callback_that_fails_is_told_again(caplog: pytest.LogCaptureFixture) -> None:
    diary = Diary()
    diary.failures = 2
    app = receiver(diary)
    with caplog.at_level(logging.ERROR, "dragoman.receiver"):
        statuses = [(await post(app, call(BODY), BODY))[0] for _ in range(4)]
    assert statuses == [500, 500, 204, 204]
    assert len(diary.told) == 1
    assert "the disk is full" in caplog.text
    assert TOKEN not in caplog.text


async def test_thanks_come_only_after_the_callback() -> None:
    diary = Diary()
    diary.gate.clear()
    app = receiver(diary)
    first = asyncio.ensure_future(post(app, call(BODY), BODY))
    await until(lambda: diary.begun)
    assert not first.done()
    status, headers = await post(app, call(BODY), BODY)  # the sender lost patience
    assert (status, headers["retry-after"]) == (503, "2")
    diary.gate.set()
    assert (await first)[0] == 204
    assert len(diary.told) == 1


async def test_whoever_is_cut_off_can_come_again() -> None:
    diary = Diary()
    diary.gate.clear()
    app = receiver(diary)
    first = asyncio.ensure_future(post(app, call(BODY), BODY))
    await until(lambda: diary.begun)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    diary.gate.set()
    assert (await post(app, call(BODY), BODY))[0] == 204
    assert len(diary.told) == 1


async def test_what_is_too_large_is_not_read() -> None:
    diary = Diary()
    app = receiver(diary, max_size=1000)
    big = body_of(task_1_0(id="x" * 2000))
    assert (await post(app, call(big), big))[0] == 413
    said = call(big) | {"content-length": str(len(big))}
    assert (await post(app, said))[0] == 413
    # One that does not say its length, and never ends.
    assert (await post(app, call(b""), *[b"x" * 400] * 3, forever=True))[0] == 413
    assert diary.told == []


async def test_a_stranger_is_sent_away_before_its_body_is_read() -> None:
    app = receiver(Diary(), read_timeout=0.05)
    headers = call(BODY, token="guessed", key="guessed")
    async with asyncio.timeout(60):
        status, _ = await post(app, headers, forever=True)
    assert status == 401


@pytest.mark.parametrize(
    "wrong",
    [
        {"webhook-id": ""},
        {"webhook-timestamp": "soon"},
        {"webhook-timestamp": "1700000000"},
        {"webhook-signature": "v2,abc"},
        {"webhook-signature": "v1,short"},
    ],
    ids=str,
)
async def test_a_signature_that_no_body_fits_is_refused_before_the_body(
    wrong: dict[str, str],
) -> None:
    app = receiver(Diary(), Proof(secrets=("a-secret-of-both",)), read_timeout=0.05)
    headers = call(BODY, key="a-secret-of-both")
    assert (await post(app, headers, BODY))[0] == 204
    async with asyncio.timeout(60):
        assert (await post(app, headers | wrong, forever=True))[0] == 401


@pytest.mark.parametrize("token", ["", "Bearer x", "Bearer eyJhbGciOiJub25lIn0.e30."])
async def test_a_wrong_token_of_an_issuer_is_refused_before_the_body(token: str) -> None:
    key = OKPKey.generate_key("Ed25519").as_dict(private=False)
    proof = Proof(issuer=Issuer(keys=[key]))
    app = receiver(Diary(), proof, read_timeout=0.05)
    async with asyncio.timeout(60):
        shown = {"content-type": "application/json", "authorization": token}
        assert (await post(app, shown, forever=True))[0] == 401


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    app = receiver(Diary(), read_timeout=0.05)
    assert (await post(app, call(BODY), b"{", forever=True))[0] == 408


async def test_too_many_at_a_time_are_asked_to_come_again() -> None:
    diary = Diary()
    diary.gate.clear()
    app = receiver(diary, parallel=2)
    waiting = [asyncio.ensure_future(post(app, call(BODY, id=f"t-1.{n}"), BODY)) for n in range(2)]
    await until(lambda: diary.begun == 2)
    assert (await post(app, call(BODY, id="t-1.9"), BODY))[0] == 503
    diary.gate.set()
    assert [status for status, _ in await asyncio.gather(*waiting)] == [204, 204]
    assert (await post(app, call(BODY, id="t-1.9"), BODY))[0] == 204


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'"x"', b"{}", b'{"task": 7}', b'{"kind": "task"}', b"\xff\xfe"],
)
async def test_what_is_no_event_is_refused(body: bytes) -> None:
    diary = Diary()
    app = receiver(diary)
    assert (await post(app, call(body), body))[0] == 400
    assert (diary.told, len(app.memory)) == ([], 0)


async def test_endless_nesting_is_refused() -> None:
    body = b'{"task": {"id": "t", "metadata": ' + b'{"a":' * 20_000 + b"1" + b"}" * 20_000 + b"}}"
    diary = Diary()
    assert (await post(receiver(diary), call(body), body))[0] == 400


async def test_other_methods_and_types_are_refused() -> None:
    app = receiver(Diary())
    status, headers = await post(app, call(BODY), BODY, method="GET")
    assert (status, headers["allow"]) == (405, "POST")
    plain = call(BODY) | {"content-type": "text/plain"}
    assert (await post(app, plain, BODY))[0] == 415
    new = call(BODY) | {"content-type": "application/a2a+json; charset=utf-8"}
    assert (await post(app, new, BODY))[0] == 204


async def test_unsigned_calls_have_no_name_and_are_all_told() -> None:
    diary = Diary()
    app = receiver(diary, Proof(tokens=(TOKEN,), unsigned=True))
    bare = {"x-a2a-notification-token": TOKEN}
    assert [(await post(app, bare, BODY))[0] for _ in range(2)] == [204, 204]
    assert len(diary.told) == 2


def test_the_memory_has_an_end() -> None:
    memory = ReplayCache(most=3)
    for n in range(10):
        assert memory.begin(str(n)) is SeenCall.NEW
        memory.end(str(n), told=True)
    assert len(memory) == 3
    assert memory.begin("9") is SeenCall.BEFORE
    assert memory.begin("0") is SeenCall.NEW
    assert memory.begin("0") is SeenCall.UNDER_WAY
    memory.end("0", told=False)
    assert memory.begin("0") is SeenCall.NEW
