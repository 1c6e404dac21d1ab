"""The doors alone: what lets in, whom it makes of you, and everything that must not."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.core.auth_schemes import (
    ApiKeys,
    Certificates,
    Grant,
    Held,
    Jwt,
    Known,
    Passwords,
    Secret,
    Tokens,
)
from dragoman.core.errors import (
    BadParams,
    ConfigError,
    Forbidden,
    StoreUnavailable,
    TooMany,
    Unauthenticated,
)
from dragoman.core.peer import Context
from dragoman.security.authentication import Authenticator, in_tenant
from dragoman.security.jwks import JwksFetcher, KeysNeeded, KeySource
from dragoman.security.jwt_verifier import JwtVerifier
from dragoman.security.rate_limits import Meter
from dragoman.settings import Rates
from security.issuer import AUDIENCE, ISSUER, Issuer

KEY, TOKEN, WORD = "key-of-alice-0123456789", "token-of-bob-0123456789", "open:sésame-word"


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("KEY", KEY), ("TOKEN", TOKEN), ("WORD", WORD)):
        monkeypatch.setenv(f"T_{name}", value)


def known(name: str, **about: Any) -> Known:
    return Known(secret=Secret(env=f"T_{name}"), **about)


def admitted(
    authenticator: Authenticator, target: str = "POST /", certificate: str = "", **headers: str
) -> Context:
    lines = {name.replace("_", "-"): value for name, value in headers.items()}
    found = authenticator.admit(lines, target, certificate)
    assert isinstance(found, Context)
    return found


def basic(user: str, word: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{word}".encode()).decode()


def test_an_api_key_in_a_header_the_query_or_a_cookie() -> None:
    grant = {"alice": known("KEY", tenants=("acme", "globex"), scopes=("read",))}
    for place, good, bad in (
        ("header", {"x_api_key": KEY}, {"x_api_key": KEY + "x"}),
        (
            "query",
            {"target": f"GET /tasks?a=1&X-API-Key={KEY}"},
            {"target": f"GET /?x-api-key={KEY}"},
        ),
        ("cookie", {"cookie": f"a=b; X-API-Key={KEY}"}, {"cookie": f"a={KEY}"}),
    ):
        authenticator = Authenticator({"keys": ApiKeys(callers=grant, location=place)}, "Agent")  # type: ignore[arg-type]
        caller = admitted(authenticator, **good)
        assert (caller.principal, caller.tenant, caller.scopes) == ("alice", "acme", ("read",))
        assert caller.schemes == ("keys",)
        for wrong in (bad, {}, {"x_api_key": ""}, {"authorization": f"Bearer {KEY}"}):
            with pytest.raises(Unauthenticated):
                admitted(authenticator, **wrong)


def test_basic_and_bearer() -> None:
    authenticator = Authenticator(
        {
            "people": Passwords(callers={"carol": known("WORD")}),
            "team": Tokens(callers={"bob": known("TOKEN")}),
        },
        'My "odd" agent\r\n',
    )
    assert admitted(authenticator, authorization=basic("carol", WORD)).principal == "carol"
    assert admitted(authenticator, authorization=f"bearer {TOKEN}").principal == "bob"
    for wrong in (
        basic("carol", WORD + "x"),
        basic("bob", WORD),
        basic("", ""),
        "Basic !!!",
        "Basic /w==",
        "Bearer",
        f"Bearer {TOKEN} x",
        f"Bearer {TOKEN}, Bearer {TOKEN}",
        f"Basic {TOKEN}",
        TOKEN,
        "Bearer " + "x" * 100_000,
    ):
        with pytest.raises(Unauthenticated):
            admitted(authenticator, authorization=wrong)
    told = [value.decode() for _, value in authenticator.refusal_headers(Unauthenticated())]
    assert told == ['Basic realm="My odd agent", charset="UTF-8"', 'Bearer realm="My odd agent"']


def test_a_token_of_an_issuer(issuer: Issuer, tmp_path: Path) -> None:
    scheme = Jwt(
        issuer=ISSUER, audience=(AUDIENCE,), keys_file=issuer.save(tmp_path), tenant_claim="org"
    )
    authenticator = Authenticator({"sso": scheme}, "Agent")
    claims = issuer.claims(org=["acme"], scope="read write")
    for alg in ("ES256", "RS256", "PS256"):
        caller = admitted(authenticator, authorization=f"Bearer {issuer.token(claims, alg=alg)}")
        assert (caller.principal, caller.tenant) == ("sso:alice", "acme")
        assert caller.scopes == ("read", "write")
    with pytest.raises(Unauthenticated):  # the claim that names the tenants is missing
        admitted(authenticator, authorization=f"Bearer {issuer.token()}")


@pytest.mark.parametrize(
    ("org", "tenants"),
    [
        ("acme", ("acme",)),
        (["acme", "Evil acme"], ("acme", "Evil acme")),
        ("Evil acme", ("Evil acme",)),
        ("acme\tevil", ("acme\tevil",)),
        (" acme", (" acme",)),
        ("", None),
        ([], None),
        ([""], None),
        (["", 7, None], None),
        ({"acme": 1}, None),
    ],
)
def test_a_tenant_is_exactly_what_the_claim_says(
    issuer: Issuer, tmp_path: Path, org: Any, tenants: tuple[str, ...] | None
) -> None:
    """The name of an organisation may have a space in it: its words are nobody else's tenant."""
    keys = issuer.save(tmp_path)
    scheme = Jwt(issuer=ISSUER, audience=(AUDIENCE,), keys_file=keys, tenant_claim="org")
    authenticator = Authenticator({"sso": scheme}, "Agent")
    bearer = f"Bearer {issuer.token(issuer.claims(org=org))}"
    if tenants is None:
        with pytest.raises(Unauthenticated):
            admitted(authenticator, authorization=bearer)
    else:
        caller = admitted(authenticator, authorization=bearer)
        assert (caller.tenant, caller.tenants) == (tenants[0], tenants)


@pytest.mark.parametrize(
    ("scope", "scopes"),
    [
        ("read write", ("read", "write")),
        ("  read  write ", ("read", "write")),
        ("read\u2003write", ("read\u2003write",)),
        ("read\nwrite", ("read\nwrite",)),
        (["read write", "book"], ("read write", "book")),
        (["", 1], ()),
        (None, ()),
    ],
)
def test_scopes_are_parted_by_spaces_and_nothing_else(
    issuer: Issuer, tmp_path: Path, scope: Any, scopes: tuple[str, ...]
) -> None:
    scheme = Jwt(issuer=ISSUER, audience=(AUDIENCE,), keys_file=issuer.save(tmp_path))
    authenticator = Authenticator({"sso": scheme}, "Agent")
    bearer = f"Bearer {issuer.token(issuer.claims(scope=scope))}"
    assert admitted(authenticator, authorization=bearer).scopes == scopes


def test_no_forged_token_lets_in(issuer: Issuer, tmp_path: Path) -> None:
    scheme = Jwt(issuer=ISSUER, audience=(AUDIENCE,), keys_file=issuer.save(tmp_path))
    authenticator = Authenticator({"sso": scheme}, "Agent")
    assert (
        admitted(authenticator, authorization=f"Bearer {issuer.token()}").principal == "sso:alice"
    )
    believed = []
    forged = issuer.forged()
    for what, token in forged.items():
        try:
            admitted(authenticator, authorization=f"Bearer {token}")
            believed.append(what)
        except Unauthenticated:
            pass
    assert believed == []
    assert len(forged) >= 40


def test_a_verified_token_is_not_believed_longer_than_it_lives(
    issuer: Issuer, tmp_path: Path
) -> None:
    now = [0.0]
    scheme = Jwt(issuer=ISSUER, audience=(AUDIENCE,), keys_file=issuer.save(tmp_path), leeway=0)
    verifier = JwtVerifier("sso", scheme, "Agent", clock=lambda: now[0])
    claims = issuer.claims()
    headers = {"authorization": f"Bearer {issuer.token(claims)}"}
    now[0] = claims["iat"]
    first = verifier.authenticate(headers, "", "")
    assert verifier.authenticate(headers, "", "") is first
    now[0] = claims["exp"] - 1
    assert verifier.authenticate(headers, "", "") == first
    now[0] = claims["exp"]
    with pytest.raises(Unauthenticated):
        verifier.authenticate(headers, "", "")


async def test_keys_are_fetched_once_and_again_when_the_issuer_turns_them(issuer: Issuer) -> None:
    asked: list[str] = []
    newer = Issuer()
    newer.ec = type(newer.ec).generate_key("P-256", {"kid": "ec-2"})
    served = [issuer]

    async def fetch(url: str) -> bytes:
        asked.append(url)
        if url.endswith("openid-configuration"):
            return msgspec.json.encode({"issuer": ISSUER, "jwks_uri": f"{ISSUER}/keys"})
        return msgspec.json.encode(served[0].jwks())

    now = [1000.0]
    authenticator = Authenticator(
        {"sso": Jwt(issuer=ISSUER, audience=(AUDIENCE,))}, "Agent", fetch=fetch
    )
    source: KeySource = authenticator._verifiers["sso"]._source  # type: ignore[attr-defined]
    source._clock = lambda: now[0]

    async def enter(token: str) -> Context:
        found = authenticator.admit({"authorization": f"Bearer {token}"}, "", "")
        return found if isinstance(found, Context) else await found

    assert (await enter(issuer.token())).principal == "sso:alice"
    assert asked == [f"{ISSUER}/.well-known/openid-configuration", f"{ISSUER}/keys"]
    served[0] = newer
    turned = newer.token(key=newer.ec)
    with pytest.raises(Unauthenticated):  # fetched a moment ago: nobody can make us hammer it
        await enter(turned)
    assert len(asked) == 2
    now[0] += 31
    assert (await enter(turned)).principal == "sso:alice"
    assert len(asked) == 3
    with pytest.raises(Unauthenticated):  # withdrawn keys end what was verified with them
        await enter(issuer.token())


async def test_an_issuer_that_does_not_answer_is_no_wrong_credential(issuer: Issuer) -> None:
    async def fetch(url: str) -> bytes:
        raise ValueError("down")

    authenticator = Authenticator(
        {"sso": Jwt(issuer=ISSUER, audience=(AUDIENCE,))}, "Agent", fetch=fetch
    )
    found = authenticator.admit({"authorization": f"Bearer {issuer.token()}"}, "", "")
    assert not isinstance(found, Context)
    with pytest.raises(StoreUnavailable):
        await found
    with pytest.raises(StoreUnavailable):  # and is not asked again at once
        authenticator.admit({"authorization": f"Bearer {issuer.token()}"}, "", "")


async def test_the_configuration_of_another_issuer_is_not_believed(issuer: Issuer) -> None:
    async def fetch(url: str) -> bytes:
        return b'{"issuer": "https://evil.example", "jwks_uri": "https://evil.example/keys"}'

    source = KeySource("sso", discovery="d", issuer=ISSUER, fetch=fetch)
    with pytest.raises(StoreUnavailable):
        await source.look()
    assert source.keys == []
    assert KeysNeeded(source).source is source


async def test_keys_come_through_the_guarded_client(issuer: Issuer) -> None:
    body = msgspec.json.encode(issuer.jwks())

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0]
        status = b"302 Found\r\nLocation: /keys" if b"/moved" in line else b"200 OK"
        head = b"HTTP/1.1 %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
        writer.write(head % (status, len(body)) + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    inside, outside = JwksFetcher(allow_private=True), JwksFetcher(allow_private=False)
    try:
        assert await inside(f"{base}/keys") == body
        with pytest.raises(ValueError, match="302"):  # no redirects
            await inside(f"{base}/moved")
        with pytest.raises(ValueError, match="https"):
            await outside(f"{base}/keys")
        with pytest.raises(BadParams):  # a private address
            await outside(f"{base.replace('http', 'https')}/keys")
    finally:
        await inside.close()
        await outside.close()
        server.close()
        await server.wait_closed()


def test_scopes_stand_on_the_card_only_where_a_scheme_has_them(
    issuer: Issuer, tmp_path: Path
) -> None:
    sso = Jwt(issuer=ISSUER, audience=(AUDIENCE,), keys_file=issuer.save(tmp_path), openid=True)
    keys = ApiKeys(callers={"alice": known("KEY")})
    authenticator = Authenticator({"sso": sso, "keys": keys}, "Agent", scopes=("use",))
    assert authenticator.security == ({"sso": ("use",)}, {"keys": ()})


def test_certificates_gate_the_other_schemes() -> None:
    held = {"robot": Held(names=("spiffe://acme/robot",), tenants=("acme",))}
    alone = Authenticator({"certs": Certificates(callers=held)}, "Agent")
    assert admitted(alone, certificate="spiffe://acme/robot").principal == "robot"
    for name in ("", "spiffe://acme/other"):
        with pytest.raises(Unauthenticated):
            admitted(alone, certificate=name)
    both = Authenticator(
        {
            "certs": Certificates(shared="holder", grant=Grant(scopes=("inside",))),
            "keys": ApiKeys(callers={"alice": known("KEY")}),
        },
        "Agent",
        scopes=("use",),
    )
    assert both.security == ({"keys": (), "certs": ()},)
    caller = admitted(both, x_api_key=KEY)
    assert (caller.principal, caller.schemes) == ("alice", ("keys", "certs"))
    with pytest.raises(Unauthenticated):
        admitted(both, certificate="x")


@pytest.mark.parametrize(
    ("scheme", "what"),
    [
        (Tokens(callers={}), "no callers"),
        (Tokens(callers={"a:b": Known(secret=Secret(env="T_KEY"))}), "principal"),
        (Tokens(callers={"anonymous": Known(secret=Secret(env="T_KEY"))}), "principal"),
        (Tokens(callers={"a": Known(secret=Secret(env="T_NOT"))}), "T_NOT is not set"),
        (Tokens(callers={"a": Known(secret=Secret())}), "one of them"),
        (Tokens(callers={"a": Known(secret=Secret(env="A", file="B"))}), "one of them"),
        (Tokens(callers={"a": Known(secret=Secret(file="/nowhere/x"))}), "cannot be read"),
        (
            Tokens(
                callers={
                    "a": Known(secret=Secret(env="T_KEY")),
                    "b": Known(secret=Secret(env="T_KEY")),
                }
            ),
            "same secret",
        ),
        (Jwt(issuer=ISSUER, audience=()), "audience"),
        (Jwt(issuer="", audience=("x",), keys_url="https://x"), "issuer"),
        (Certificates(), "shared"),
    ],
)
def test_a_door_that_cannot_hold_stops_the_start(scheme: Any, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        Authenticator({"x": scheme}, "Agent")


def test_a_short_secret_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T_SHORT", "hunter2")
    with pytest.raises(ConfigError, match="too short") as told:
        Authenticator({"x": Tokens(callers={"a": Known(secret=Secret(env="T_SHORT"))})}, "Agent")
    assert "hunter2" not in str(told.value)


def test_a_tenant_must_be_one_of_the_principals() -> None:
    caller = Context(principal="a", tenant="acme", tenants=("acme", "globex"))
    assert in_tenant(caller, "").tenant == "acme"
    assert in_tenant(caller, "globex").tenant == "globex"
    with pytest.raises(Forbidden) as there:
        in_tenant(caller, "initech")
    with pytest.raises(Forbidden):
        in_tenant(Context(), "acme")
    assert there.value.message == "This caller has no such tenant."


def test_calls_per_minute() -> None:
    now = [0.0]
    meter = Meter(Rates(calls_per_minute=3), clock=lambda: now[0])
    alice, bob = Context(principal="alice"), Context(principal="bob")
    for _ in range(3):
        meter.take(alice)
    with pytest.raises(TooMany) as told:
        meter.take(alice)
    assert told.value.public["retry_after"] == "20"
    meter.take(bob)
    now[0] = 19.0
    with pytest.raises(TooMany):
        meter.take(alice)
    now[0] = 20.5
    meter.take(alice)
    now[0] = 10_000.0
    for number in range(5_000):  # of those who stay away nothing is kept
        now[0] += 1
        meter.take(Context(principal=str(number)))
    assert len(meter._buckets) < 2_500


async def test_open_streams_are_given_back() -> None:
    meter, alice = Meter(Rates(streams=1)), Context(principal="alice")
    close = await meter.open_stream(alice)
    with pytest.raises(TooMany):
        await meter.open_stream(alice)
    (await meter.open_stream(Context(principal="alice", tenant="other")))()
    close()
    (await meter.open_stream(alice))()
    assert meter.streams == {}
