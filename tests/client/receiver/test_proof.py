"""Calls that must not be believed, and those that must."""

from __future__ import annotations

import base64
import hashlib
import os
import warnings
from collections.abc import Callable

import pytest
from joserfc import jwk, jwt

from client.auth.http_server import LittleHttp, Response
from client.receiver.calls import NOW, PROOF, TOKEN, Diary, body_of, call, post, receiver, task_1_0
from dragoman.client.receiver import Issuer, Notice, Proof, Receiver
from dragoman.core.errors import ConfigError, DragomanError

BODY = body_of(task_1_0())
Change = Callable[[dict[str, str]], None]


async def test_a_good_call_is_told_and_thanked_for() -> None:
    diary = Diary()
    status, _ = await post(receiver(diary), call(BODY), BODY)
    assert status == 204
    (notice,) = diary.told
    assert (notice.task_id, notice.id, notice.signed) == ("t-1", "t-1.3", True)
    assert notice.entry.seq == 3  # type: ignore[union-attr]


def put(name: str, value: str) -> Change:
    return lambda headers: headers.update({name: value})


def drop(*names: str) -> Change:
    return lambda headers: [headers.pop(name) for name in names] and None


FORGED: dict[str, Change] = {
    "no token": drop("x-a2a-notification-token", "a2a-notification-token"),
    "wrong token": lambda h: h.update(call(BODY, token="guessed", key=TOKEN)),
    "two tokens that differ": put("a2a-notification-token", "guessed"),
    "wrong key": lambda h: h.update(call(BODY, key="guessed")),
    "signature of another body": lambda h: h.update(call(BODY + b" ")),
    "another id": put("webhook-id", "t-1.4"),
    "another time": put("webhook-timestamp", str(int(NOW) + 1)),
    "old": lambda h: h.update(call(BODY, at=NOW - 301)),
    "from the future": lambda h: h.update(call(BODY, at=NOW + 301)),
    "no time": drop("webhook-timestamp"),
    "time is a word": put("webhook-timestamp", "now"),
    "time with a sign": put("webhook-timestamp", f"+{int(NOW)}"),
    "no id": drop("webhook-id"),
    "an endless id": lambda h: h.update(call(BODY, id="x" * 2000)),
    "no signature": drop("webhook-signature"),
    "not signed at all": drop("webhook-id", "webhook-timestamp", "webhook-signature"),
    "an empty signature": put("webhook-signature", "v1,"),
    "another version": lambda h: h.update(
        {"webhook-signature": h["webhook-signature"].replace("v1,", "v2,")}
    ),
    "the token as signature": put("webhook-signature", f"v1,{TOKEN}"),
}


@pytest.mark.parametrize("change", FORGED.values(), ids=FORGED.keys())
async def test_a_forged_call_is_refused(change: Change) -> None:
    diary, headers = Diary(), call(BODY)
    change(headers)
    app = receiver(diary)
    status, _ = await post(app, headers, BODY)
    assert (status, diary.told, len(app.memory)) == (401, [], 0)


@pytest.mark.parametrize("unsigned", [False, True])
async def test_bare_tokens_of_official_senders_count_only_if_wanted(unsigned: bool) -> None:
    diary = Diary()
    app = receiver(diary, Proof(tokens=(TOKEN,), unsigned=unsigned))
    bare = {"content-type": "application/json", "x-a2a-notification-token": TOKEN}
    status, _ = await post(app, bare, BODY)
    assert status == (204 if unsigned else 401)
    assert [notice.signed for notice in diary.told] == ([False] if unsigned else [])
    # Whoever claims to sign must do it right, wanted or not.
    status, _ = await post(app, call(BODY, key="guessed"), BODY)
    assert status == 401


async def test_one_header_of_the_two_is_enough_and_tokens_can_be_changed() -> None:
    for name in ("x-a2a-notification-token", "a2a-notification-token"):
        diary, headers = Diary(), call(BODY)
        headers.pop(name)
        app = receiver(diary, Proof(tokens=("the-next-token", TOKEN)))
        assert (await post(app, headers, BODY))[0] == 204


async def test_standard_webhooks_secrets_and_several_signatures() -> None:
    key = os.urandom(24)
    secret = "whsec_" + base64.b64encode(key).decode()
    diary = Diary()
    from dragoman.net.webhooks import signed

    headers = call(BODY)
    for name in ("x-a2a-notification-token", "a2a-notification-token"):
        headers.pop(name)
    good = f"v1,{signed(key, 't-1.3', str(int(NOW)), BODY)}"
    headers["webhook-signature"] = f"v1,{base64.b64encode(b'x' * 32).decode()} v1a,zz {good}"
    app = receiver(diary, Proof(secrets=(secret,)))
    assert (await post(app, headers, BODY))[0] == 204
    headers["webhook-signature"] = " ".join(["v1,x"] * 8 + [good])  # not beyond a limit
    headers["webhook-id"] = "t-1.3"
    assert (await post(receiver(Diary(), Proof(secrets=(secret,))), headers, BODY))[0] == 401


async def test_the_authorization_of_the_config_is_checked() -> None:
    proof = Proof(tokens=(TOKEN,), authorization="Bearer mine")
    for given, status in (("Bearer mine", 204), ("Bearer other", 401), ("", 401)):
        headers = call(BODY) | ({"authorization": given} if given else {})
        assert (await post(receiver(Diary(), proof), headers, BODY))[0] == status


@pytest.mark.parametrize(
    "about",
    [{}, {"tokens": ("",)}, {"unsigned": True}, {"authorization": "Bearer x"}],
    ids=["nothing", "an empty token", "unsigned", "authorization alone"],
)
def test_a_receiver_without_a_proof_is_refused(about: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        Proof(**about)  # type: ignore[arg-type]


def test_secrets_are_not_shown() -> None:
    proof = Proof(tokens=(TOKEN,), secrets=("s3cret",), authorization="Bearer x")
    assert repr(proof) == "Proof(tokens, secrets, authorization)"


# Signed with a key pair.


class Sender:
    """Signs as the samples of A2A do."""

    def __init__(self, key: jwk.Key | None = None, alg: str = "ES256") -> None:
        self.key, self.alg = key or jwk.ECKey.generate_key("P-256", {"kid": "k1"}), alg
        self.other = jwk.ECKey.generate_key("P-256", {"kid": "k1"})

    def headers(self, body: bytes, key: object = None, **claims: object) -> dict[str, str]:
        told = {"iat": int(NOW), "request_body_sha256": hashlib.sha256(body).hexdigest()}
        said = {name: value for name, value in (told | claims).items() if value is not None}
        token = jwt.encode({"alg": self.alg, "kid": "k1"}, said, key or self.key)  # type: ignore[arg-type]
        return {"content-type": "application/json", "authorization": f"Bearer {token}"}

    def proof(self, **about: object) -> Proof:
        issuer = Issuer(keys=[self.key.as_dict(private=False)], **about)  # type: ignore[arg-type]
        return Proof(issuer=issuer)


async def test_a_signed_token_proves_the_body_once() -> None:
    sender, diary = Sender(), Diary()
    app = receiver(diary, sender.proof())
    headers = sender.headers(BODY)
    assert [(await post(app, headers, BODY))[0] for _ in range(3)] == [204] * 3
    assert [notice.signed for notice in diary.told] == [True]
    # A name that nobody vouches for does not make it new.
    assert (await post(app, headers | {"webhook-id": "x"}, BODY))[0] == 204
    assert len(diary.told) == 1


@pytest.mark.parametrize(
    ("claims", "about"),
    [
        ({"iat": int(NOW) - 301}, {}),
        ({"iat": None}, {}),
        ({"iat": True}, {}),
        ({"exp": int(NOW) - 301}, {}),
        ({"request_body_sha256": "0" * 64}, {}),
        ({"request_body_sha256": None}, {}),
        ({"request_body_sha256": 7}, {}),
        ({"iss": "https://evil.example"}, {"issuer": "https://agent.example"}),
        ({}, {"audience": "https://me.example"}),
        ({"aud": ["https://you.example"]}, {"audience": "https://me.example"}),
    ],
)
async def test_a_signed_token_that_says_something_else_is_refused(
    claims: dict[str, object], about: dict[str, object]
) -> None:
    sender, diary = Sender(), Diary()
    app = receiver(diary, sender.proof(**about))
    assert (await post(app, sender.headers(BODY, **claims), BODY))[0] == 401
    assert diary.told == []


async def test_forged_signed_tokens_are_refused() -> None:
    sender, diary = Sender(), Diary()
    app = receiver(diary, sender.proof())
    assert (await post(app, sender.headers(BODY, key=sender.other), BODY))[0] == 401
    good = sender.headers(BODY)["authorization"]
    for forged in (good[:-6], "Bearer x.y.z", "Basic abc", "Bearer ", good + "x" * 9000):
        assert (await post(app, {"authorization": forged}, BODY))[0] == 401
    assert (await post(app, {}, BODY))[0] == 401
    assert (await post(app, sender.headers(BODY), BODY + b" "))[0] == 401
    assert diary.told == []


async def test_a_weak_key_proves_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # joserfc says so too, and takes it
        weak = Sender(jwk.RSAKey.generate_key(1024), "RS256")
        diary = Diary()
        assert (await post(receiver(diary, weak.proof()), weak.headers(BODY), BODY))[0] == 401
        assert diary.told == []
        strong = Sender(jwk.RSAKey.generate_key(2048), "RS256")
        app = receiver(diary, strong.proof())
        assert (await post(app, strong.headers(BODY), BODY))[0] == 204


async def test_a_token_with_audience_and_issuer_needs_no_digest_if_told_so() -> None:
    sender, diary = Sender(), Diary()
    proof = sender.proof(issuer="https://a.example", audience="https://me", body=False)
    claims = {"iss": "https://a.example", "aud": "https://me", "request_body_sha256": None}
    headers = sender.headers(BODY, jti="n-1", exp=int(NOW) + 60, **claims)
    app = receiver(diary, proof)
    assert [(await post(app, headers, BODY))[0] for _ in range(2)] == [204, 204]
    assert [notice.signed for notice in diary.told] == [False]


async def test_the_keys_can_be_fetched_from_where_the_sender_publishes_them() -> None:
    sender, diary = Sender(), Diary()
    keys = body_of({"keys": [sender.key.as_dict(private=False)]})
    async with LittleHttp(lambda request: Response(200, keys)) as server:
        url = f"{server.url}/.well-known/jwks.json"
        issuer = await Issuer.at(url, allow_private=True)
        with pytest.raises(DragomanError):
            await Issuer.at(url)  # loopback only if it is allowed
    app = receiver(diary, Proof(issuer=issuer))
    assert (await post(app, sender.headers(BODY), BODY))[0] == 204
    assert (await post(app, sender.headers(BODY, key=sender.other), BODY))[0] == 401


async def test_the_plain_function_needs_no_server() -> None:
    from dragoman.client.receiver import prove, read

    proved = prove(call(BODY), BODY, PROOF, NOW)
    notice = read(BODY, proved.id, signed=proved.signed)
    assert isinstance(notice, Notice)
    diary = Diary()
    assert await Receiver(diary, PROOF, clock=lambda: NOW).hear(call(BODY), BODY) == 204
    assert len(diary.told) == 1
