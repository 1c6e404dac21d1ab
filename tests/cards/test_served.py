"""Cards as they are served: signed in every form, listed as configured, right behind proxies."""

from __future__ import annotations

import json
import os
import ssl
import time
from base64 import urlsafe_b64decode
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from cards.served import CARD, app_for, ask, desk
from dragoman.core.auth_schemes import Known, Secret, Tokens
from dragoman.core.errors import ConfigError
from dragoman.core.model import Json
from dragoman.dialects.a2a.cards import documents
from dragoman.net.http.granian_server import GranianServer, bind
from dragoman.observability.log import Log
from dragoman.security.card_signing import new_key, save
from dragoman.security.card_trust import Trust
from dragoman.server.app import App, engine_for
from dragoman.server.serve import address
from dragoman.settings import Limits, Server, Settings, Signing, Tls, load
from dragoman.testing import served
from security.certs import Authority

BASE = "https://desk.example"
JWKS = "/.well-known/jwks.json"


def key_file(folder: Path, name: str, alg: str = "ES256", made: float = 0.0) -> str:
    path = folder / f"{name}.jwk"
    save(path, {**new_key(alg, made or time.time()), "kid": name})
    return str(path)


def trusting(found: Any) -> Trust:
    return Trust("require", keys=[found], strict=True)


@pytest.mark.parametrize("alg", ["ES256", "EdDSA", "RS256"])
async def test_every_form_of_the_card_is_signed(tmp_path: Path, alg: str) -> None:
    app = app_for(signing=Signing(keys=(key_file(tmp_path, "k", alg),)))
    keys = await ask(app, JWKS)
    assert keys.headers["content-type"] == "application/jwk-set+json"
    assert "max-age" in keys.headers["cache-control"]
    assert not {"d", "p", "q"} & set(keys.json["keys"][0])
    trust = trusting(keys.json)
    for path, version in ((CARD, "1.0"), (CARD, "0.3"), ("/.well-known/agent.json", "")):
        got = await ask(app, path, a2a_version=version)
        verdict = await trust.check(got.body, BASE)
        assert (verdict.proved, verdict.kid, verdict.alg) == (True, "k", alg)
        meant = documents.card_in(documents.pure_1_0(app.mounts[""].card_at(BASE)))
        assert verdict.card == replace(meant, signatures=())
    again = await ask(app, JWKS, if_none_match=keys.headers["etag"])
    assert again.status == 304


async def test_the_signature_says_where_the_keys_are(tmp_path: Path) -> None:
    asked: list[str] = []
    app = app_for(signing=Signing(keys=(key_file(tmp_path, "k"),)))

    async def fetch(url: str) -> bytes:
        asked.append(url)
        return (await ask(app, url.removeprefix(BASE))).body

    trust = Trust("require", jku=["self"], fetch=fetch)
    assert (await trust.check((await ask(app)).body, BASE)).proved
    assert asked == [BASE + JWKS]

    elsewhere = Signing(keys=(key_file(tmp_path, "j"),), jku="https://keys.example/all.json")
    app = app_for(signing=elsewhere)
    assert _header((await ask(app)).json)["jku"] == "https://keys.example/all.json"
    app = app_for(base="http://127.0.0.1:8420", signing=replace(elsewhere, jku=""))
    assert "jku" not in _header((await ask(app)).json)


def _header(card: Any) -> dict[str, Json]:
    said = card["signatures"][0]["protected"]
    return json.loads(urlsafe_b64decode(said + "=" * (-len(said) % 4)))


async def test_the_newest_key_signs_and_the_others_stay_published(tmp_path: Path) -> None:
    now = time.time()
    old = key_file(tmp_path, "old", made=now - 1000)
    before = app_for(signing=Signing(keys=(str(tmp_path),)))
    kept = (await ask(before)).body
    key_file(tmp_path, "new", "EdDSA", made=now)
    after = app_for(signing=Signing(keys=(str(tmp_path),)))
    keys = (await ask(after, JWKS)).json
    assert [each["kid"] for each in keys["keys"]] == ["new", "old"]
    trust = trusting(keys)
    assert (await trust.check((await ask(after)).body, BASE)).kid == "new"
    assert (await trust.check(kept, BASE)).kid == "old"
    os.unlink(old)
    last = app_for(signing=Signing(keys=(str(tmp_path),)))
    assert [each["kid"] for each in (await ask(last, JWKS)).json["keys"]] == ["new"]


async def test_without_keys_nothing_is_signed_and_no_set_is_there() -> None:
    app = app_for()
    assert "signatures" not in (await ask(app)).json
    assert (await ask(app, JWKS)).status == 404


def test_key_files_that_stop_the_start(tmp_path: Path) -> None:
    def start(*paths: str) -> None:
        app_for(signing=Signing(keys=paths))

    good = key_file(tmp_path, "good")
    with pytest.raises(ConfigError, match="never written over"):
        key_file(tmp_path, "good")
    with pytest.raises(ConfigError, match="cannot be read"):
        start(str(tmp_path / "none.jwk"))
    with pytest.raises(ConfigError, match="Two keys"):
        start(good, good)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="holds no keys"):
        start(str(tmp_path / "empty"))
    save(tmp_path / "ended.jwk", {**new_key("ES256", 1.0), "exp": 2})
    with pytest.raises(ConfigError, match="expired"):
        start(str(tmp_path / "ended.jwk"))
    made = new_key("ES256", 1.0)
    save(tmp_path / "public.jwk", {name: made[name] for name in ("kty", "crv", "x", "y")})
    with pytest.raises(ConfigError, match="public key"):
        start(str(tmp_path / "public.jwk"))
    os.chmod(good, 0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        start(good)
    (tmp_path / "d.toml").write_text('[signing]\njku = "http://a"\n')
    with pytest.raises(ConfigError, match="https"):
        load(config=tmp_path / "d.toml")


async def test_an_extended_card_is_signed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOSS", "a-token-of-the-boss-1")
    agent = desk(auth={"robots": Tokens(callers={"boss": Known(secret=Secret(env="BOSS"))})})

    @agent.skill("audit", extended=True)
    async def audit(turn: Any) -> str:
        return "well"

    app = app_for(agent, signing=Signing(keys=(key_file(tmp_path, "k"),)))
    got = await ask(app, "/extendedAgentCard", authorization="Bearer a-token-of-the-boss-1")
    assert got.status == 200, got.body
    keys = (await ask(app, JWKS)).json
    verdict = await trusting(keys).check(got.body, BASE)
    assert [skill.id for skill in verdict.card.skills] == ["look", "audit"]


# What the card lists.


def listed(card: Any) -> list[str]:
    return [f"{i['protocolBinding']}/{i['protocolVersion']}" for i in card["supportedInterfaces"]]


DEFAULT = ["JSONRPC/1.0", "JSONRPC/0.3", "HTTP+JSON/1.0", "HTTP+JSON/0.3"]


@pytest.mark.parametrize(
    ("chosen", "shown"),
    [
        (None, DEFAULT),
        (["http+json/1.0", "JSONRPC"], ["HTTP+JSON/1.0", "JSONRPC/1.0", "JSONRPC/0.3"]),
        (["JSONRPC/1.0", "JSONRPC/1.0"], ["JSONRPC/1.0"]),
    ],
)
async def test_the_interfaces_are_those_that_were_chosen(
    chosen: list[str] | None, shown: list[str]
) -> None:
    app = app_for(server={"interfaces": tuple(chosen)} if chosen else {})
    card = (await ask(app)).json
    assert listed(card) == shown
    assert ("url" in card) == any("0.3" in each for each in shown)


async def test_every_interface_of_a_default_card_is_on_its_own_origin() -> None:
    """Google ADK refuses a whole card for one that is not, or that is not http(s)."""
    async with served(desk()) as url, httpx2.AsyncClient() as client:
        card = (await client.get(url + CARD)).json()
        assert all(each["url"].startswith(url) for each in card["supportedInterfaces"])
        assert {each["transport"] for each in card["additionalInterfaces"]} == {
            "JSONRPC",
            "HTTP+JSON",
        }


@pytest.mark.parametrize("public", ["https://desk.example", "https://desk.example/agents/x/"])
async def test_paths_join_to_the_address_with_one_slash(public: str) -> None:
    """As 0.3 writes them: `{url}/v1/card`."""
    card = (await ask(app_for(base=public))).json
    for url in (card["url"], *(each["url"] for each in card["supportedInterfaces"])):
        assert f"{url}/v1/card" == f"{public.rstrip('/')}/v1/card"


async def test_grpc_that_is_asked_for_stands_last_on_the_card() -> None:
    async with served(desk(), grpc=True) as url, httpx2.AsyncClient() as client:
        shown = listed((await client.get(url + CARD)).json())
        assert shown == [*DEFAULT, "GRPC/1.0", "GRPC/0.3"]


@pytest.mark.parametrize("wrong", ["SOAP", "JSONRPC/2.0", "JSONRPC/", ""])
def test_an_interface_that_does_not_exist_stops_the_start(wrong: str) -> None:
    with pytest.raises(ConfigError, match="interfaces"):
        app_for(server={"interfaces": (wrong,)})


def test_a_card_without_any_interface_stops_the_start() -> None:
    with pytest.raises(ConfigError, match="no address"):
        app_for(server={"interfaces": ("GRPC",), "grpc": False})
    app_for(server={"interfaces": ("GRPC",), "grpc": True})


async def test_other_dialects_stand_under_our_extension() -> None:
    card = (await ask(app_for())).json
    (found,) = [e for e in card["capabilities"]["extensions"] if e["uri"].endswith("dialects:1")]
    assert {(each["dialect"], each["url"]) for each in found["params"]["addresses"]} == {
        ("a2a-0.1", BASE),
        ("a2a-go", f"{BASE}/a2a-go"),
        ("iat", f"{BASE}/iat"),
        ("iat-ws", f"{BASE}/iat/ws"),
    }


# Who asks, and what.

PROXIES = {"trusted_proxies": ("10.0.0.0/8", "::1/128")}


async def url(app: Any, **asked: Any) -> str:
    return (await ask(app, **asked)).json["supportedInterfaces"][0]["url"]


@pytest.mark.parametrize(
    ("client", "headers", "seen"),
    [
        ("192.0.2.9", {"x_forwarded_host": "evil.example"}, "http://inner:8420"),
        ("10.0.0.1", {}, "http://inner:8420"),
        ("10.0.0.1", {"x_forwarded_proto": "https"}, "https://inner:8420"),
        (
            "10.0.0.1",
            {"x_forwarded_host": "desk.example", "x_forwarded_proto": "https"},
            "https://desk.example",
        ),
        ("::1", {"x_forwarded_host": "desk.example:81"}, "http://desk.example:81"),
        ("::ffff:10.0.0.1", {"x_forwarded_host": "desk.example"}, "http://desk.example"),
        ("10.0.0.1", {"x_forwarded_host": "evil.example/x?"}, "http://inner:8420"),
        ("10.0.0.1", {"x_forwarded_proto": "javascript"}, "http://inner:8420"),
        ("10.0.0.1", {"forwarded": "host=evil.example"}, "http://inner:8420"),
        (
            "10.0.0.1",
            {
                "x_forwarded_for": "203.0.113.5, 10.0.0.2",
                "x_forwarded_host": "desk.example, middle",
                "x_forwarded_proto": "https, http",
            },
            "https://desk.example",
        ),
        (
            "10.0.0.1",
            {
                "x_forwarded_for": "198.51.100.1, 203.0.113.5",
                "x_forwarded_host": "evil.example, desk.example",
            },
            "http://desk.example",
        ),
    ],
)
async def test_what_proxies_say_counts_only_from_configured_ranges(
    client: str, headers: dict[str, str], seen: str
) -> None:
    app = app_for(base="", server=PROXIES)
    assert await url(app, client=client, **headers) == seen


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        ("for=203.0.113.5;host=desk.example;proto=https", "https://desk.example"),
        ('for="[2001:db8::1]:99"; Host="desk.example:81"', "http://desk.example:81"),
        (
            "for=6.6.6.6;host=evil.example, for=203.0.113.5;host=desk.example",
            "http://desk.example",
        ),
        (
            "for=203.0.113.5;host=desk.example;proto=https, for=10.0.0.7;host=middle",
            "https://desk.example",
        ),
        ('for="a,b;host=evil.example";host=desk.example', "http://desk.example"),
        ("nonsense", "http://inner:8420"),
        ('host=evil.example;x=", for="[2001:db8::1]:9";host=desk.example', "http://inner:8420"),
        ("host=evil.example;host=desk.example", "http://inner:8420"),
        ("host=evil.example,", "http://inner:8420"),
        ("host=evil.example,," * 400, "http://inner:8420"),
        ("", "http://inner:8420"),
    ],
)
async def test_the_header_of_rfc_7239(said: str, seen: str) -> None:
    app = app_for(base="", server={**PROXIES, "forwarded": "forwarded"})
    asked = {"client": "10.0.0.1", "x_forwarded_host": "evil.example"}
    assert await url(app, **asked, forwarded=said) == seen


@pytest.mark.parametrize(
    ("client", "forwarded_for", "status"),
    [
        ("192.0.2.9", None, 200),
        ("192.0.2.8", None, 403),
        ("192.0.2.8", "192.0.2.9", 403),  # anyone can write that
        ("10.0.0.1", "192.0.2.9", 200),
        ("10.0.0.1", "192.0.2.9:5000", 200),
        ("10.0.0.1", "192.0.2.8", 403),
        ("10.0.0.1", "192.0.2.9, 192.0.2.8", 403),  # the first was written by the caller
        ("10.0.0.1", "192.0.2.8, 192.0.2.9", 200),
        ("10.0.0.1", "192.0.2.9, 10.2.3.4", 200),
        ("10.0.0.1", "unknown", 403),
        ("10.0.0.1", "192.0.2.9, _hidden", 403),
        ("10.0.0.1", None, 200),  # the proxy itself, which is within the ranges
    ],
)
async def test_address_ranges_are_those_of_the_caller_not_of_the_proxy(
    client: str, forwarded_for: str | None, status: int
) -> None:
    server = {**PROXIES, "card_access": "192.0.2.9, 10.0.0.0/8"}
    app = app_for(base="", server=server)
    headers = {"x_forwarded_for": forwarded_for} if forwarded_for else {}
    assert (await ask(app, client=client, **headers)).status == status


async def test_a_quote_that_is_left_open_opens_no_range() -> None:
    server = {**PROXIES, "card_access": "10.0.0.0/8", "forwarded": "forwarded"}
    app = app_for(base="", server=server)
    for written, status in (("", 403), ("for=10.9.9.9, ", 403), ('for=10.9.9.9;x="', 403)):
        said = f'{written}for="[2001:db8::1]:9";host=desk.example'
        assert (await ask(app, client="10.0.0.1", forwarded=said)).status == status
    own = "for=10.9.9.9;host=desk.example"
    assert (await ask(app, client="10.0.0.1", forwarded=own)).status == 200


async def test_a_scheme_without_an_address_opens_no_range() -> None:
    server = {**PROXIES, "card_access": "10.0.0.0/8"}
    app = app_for(base="", server=server)
    assert (await ask(app, client="10.0.0.1", x_forwarded_proto="https")).status == 403


def test_a_range_that_is_none_stops_the_start() -> None:
    with pytest.raises(ConfigError, match="trusted_proxies"):
        app_for(server={"trusted_proxies": ("10.0.0.0/33",)})


async def test_a_public_url_beats_what_proxies_say() -> None:
    app = app_for(server=PROXIES)
    assert await url(app, client="10.0.0.1", x_forwarded_host="other.example") == BASE


async def test_the_card_behind_mutual_tls(tmp_path: Path) -> None:
    """A2A 0.3 §5.4: who has no certificate of ours does not even get to ask."""
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    app = app_for()
    sock = bind("127.0.0.1", 0)
    where = address(sock, tls=True)
    listener = GranianServer(
        app.route, sock, Limits(), Tls(cert=cert, key=key, client_ca=authority.ca)
    )
    listener.begin()
    try:
        known = ssl.create_default_context(cafile=authority.ca)
        known.load_cert_chain(*authority.issue("robot"))
        async with httpx2.AsyncClient(verify=known) as client:
            assert (await client.get(where + CARD)).json()["name"] == "Desk"
        stranger = ssl.create_default_context(cafile=authority.ca)
        async with httpx2.AsyncClient(verify=stranger) as client:
            with pytest.raises((httpx2.TransportError, ssl.SSLError)):
                await client.get(where + CARD)
    finally:
        listener.refuse()
        await listener.end(1.0)


def test_settings_of_the_address_of_grpc() -> None:
    for good in ("desk.example:443", "grpc://desk.example:1", "https://desk.example", "[::1]:5"):
        assert load({"grpc_url": good}).server.grpc_url == good
    for bad in ("ftp://x", "a b", "https://u:p@x", "x/y/z"):
        with pytest.raises(ConfigError, match="grpc_url"):
            load({"grpc_url": bad})
    assert Server().grpc_form == "host:port"


@pytest.mark.parametrize("server", [{"host": "0.0.0.0"}, PROXIES])
async def test_no_card_is_signed_for_a_name_that_only_the_caller_knows(
    tmp_path: Path, server: dict[str, Any]
) -> None:
    signing = Signing(keys=(key_file(tmp_path, "k"),))
    server = {**server, "hosts": ("evil.example",)}
    app = app_for(base="", server=server, signing=signing)
    for host in ("evil.example", "127.0.0.1:8420"):
        got = await ask(app, client="10.0.0.1", host=host)
        assert got.json["supportedInterfaces"][0]["url"] == f"http://{host}"
        assert "signatures" not in got.json
    known = app_for(base=BASE, server=server, signing=signing)
    assert (await ask(known, host="evil.example")).json["signatures"]


async def test_a2a_go_has_a_card_of_its_own() -> None:
    """Its clients look for it below the address they are given, and know one `url`."""
    app = app_for()
    got = await ask(app, "/a2a-go/.well-known/agent.json")
    assert (got.status, got.json["url"]) == (200, f"{BASE}/a2a-go")
    others = {"supportedInterfaces", "additionalInterfaces", "preferredTransport", "signatures"}
    assert not others & set(got.json)
    assert got.json["skills"][0]["id"] == "look"
    anywhere = app_for(base="", server={"hosts": ("*",)})
    typed = await ask(anywhere, "/a2a-go/.well-known/agent.json", host="a.example:81")
    assert typed.json["url"] == "http://a.example:81/a2a-go"


RPC = {"1.0": "GetTask", "0.3": "tasks/get"}


async def statuses(app: Any) -> dict[str, Any]:
    """By binding and version, how a call for a task that nobody has is answered."""
    transport = httpx2.ASGITransport(app=app)
    found: dict[str, Any] = {}
    async with httpx2.AsyncClient(transport=transport, base_url="http://inner:8420") as client:
        for version, method in RPC.items():
            headers = {"a2a-version": version} if version == "1.0" else {}
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"id": "x"}}
            got = await client.post("/", json=body, headers=headers)
            code = got.json()["error"]["code"] if got.status_code == 200 else got.status_code
            found[f"JSONRPC/{version}"] = code
        for version, path in (("1.0", "/tasks/x"), ("0.3", "/v1/tasks/x")):
            got = await client.get(path)
            found[f"HTTP+JSON/{version}"] = "TASK_NOT_FOUND" in got.text or "TaskNot" in got.text
        go = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": "x"}}
        found["a2a-go"] = (await client.post("/a2a-go", json=go)).status_code
    return found


GONE, OLD = -32001, -32009


@pytest.mark.parametrize(
    ("chosen", "answers"),
    [
        (None, (GONE, GONE, True, True, 200)),
        (["HTTP+JSON"], (404, 404, True, True, 404)),
        (["JSONRPC"], (GONE, GONE, False, False, 200)),
        (["JSONRPC/1.0", "HTTP+JSON/0.3"], (GONE, OLD, False, True, 404)),
        (["JSONRPC/0.3", "HTTP+JSON/1.0"], (OLD, GONE, True, False, 200)),
    ],
)
async def test_what_is_not_on_the_card_is_not_served(
    chosen: list[str] | None, answers: tuple[Any, ...]
) -> None:
    app = app_for(server={"interfaces": tuple(chosen)} if chosen else {})
    await app.start()
    try:
        names = ("JSONRPC/1.0", "JSONRPC/0.3", "HTTP+JSON/1.0", "HTTP+JSON/0.3", "a2a-go")
        assert await statuses(app) == dict(zip(names, answers, strict=True))
    finally:
        await app.stop()
    card = (await ask(app)).json
    (found,) = [e for e in card["capabilities"]["extensions"] if e["uri"].endswith("dialects:1")]
    old = {each["dialect"] for each in found["params"]["addresses"]} & {"a2a-0.1", "a2a-go"}
    assert old == ({"a2a-0.1", "a2a-go"} if answers[4] == 200 else set())
    assert (await ask(app, "/a2a-go/.well-known/agent.json")).status == answers[4]


@pytest.mark.parametrize(
    ("public", "warned"),
    [
        ("http://desk.example", True),
        ("http://192.0.2.1:8420/", True),
        ("http://127.0.0.1:8420", False),
        ("http://[::1]:8420", False),
        ("http://localhost", False),
        ("https://desk.example", False),
        ("", False),
    ],
)
def test_a_public_address_without_tls_is_warned_of(
    tmp_path: Path, public: str, warned: bool
) -> None:
    path = tmp_path / "log"
    fd = os.open(path, os.O_CREAT | os.O_WRONLY)
    log = Log("info", fd)
    settings = Settings(server=Server(store="memory:", public_url=public))
    App(desk(), engine_for(desk(), settings), settings, log, public)
    log.close()
    os.close(fd)
    assert ("public_url has no TLS" in path.read_text()) == warned
