"""What the user has, by origin: where it is looked for, and who is never told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dragoman.client.auth import CardAuth, Own, StoredToken, TokenStore, UserCredentials
from dragoman.client.auth.private_files import folder
from dragoman.client.auth.user_credentials import variable
from dragoman.client.credentials import Certificate, Credentials, origin_of
from dragoman.core.card import ApiKey, Card, HttpAuth, MutualTls, Scheme
from dragoman.core.errors import ConfigError, Unauthenticated

AGENT = "https://agent.example.com:443"
FILE = """
["https://agent.example.com"]
token = "t-file"
user = "alice"
password = {env = "PW"}
api_key = "k-any"
also = ["https://api.example.com:8443"]
[ "https://agent.example.com".schemes.second ]
api_key = "k-second"

["other.example.com"]
client_id = "robot"
client_secret = {file = "SECRET"}
scopes = ["a", "b"]
cert = "me.pem"
cert_key = "me.key"
"""


def saved(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "credentials.toml"
    path.write_text(text.replace("SECRET", str(folder / "secret")))
    path.chmod(mode)
    return path


def card(*ways: dict[str, tuple[str, ...]], **schemes: Scheme) -> Card:
    security = ways or tuple({name: ()} for name in schemes)
    return Card(name="A", description="", version="1", schemes=schemes, security=security)


async def given(auth: CardAuth, told: Card, origin: str = AGENT) -> Credentials:
    return await auth.credentials(origin, told, told.security, refused=None)


# Where it comes from.


async def test_the_file_knows_origins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PW", "pw-env")
    (tmp_path / "secret").write_text("s-file\n")
    ring = UserCredentials(file=saved(tmp_path, FILE))
    owner, own = await ring.find(AGENT)
    assert (owner, own.token, own.password) == (AGENT, "t-file", "pw-env")
    assert own.for_scheme("second").api_key == "k-second"
    assert own.for_scheme("first").api_key == "k-any"
    assert (await ring.find("https://api.example.com:8443"))[0] == AGENT
    _, other = await ring.find("https://other.example.com:443")
    assert (other.client_secret, other.scopes) == ("s-file", ("a", "b"))
    assert ring.certificate("https://other.example.com:443") == Certificate("me.pem", "me.key")
    for stranger in (
        "https://example.com:443",
        "https://agent.example.com:8443",
        "https://agent.example.com.evil.example:443",
        "http://agent.example.com:80",
        "http://agent.example.com:443",
    ):
        assert (await ring.find(stranger))[1] == Own(), stranger
        assert ring.certificate(stranger) is None


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(ConfigError, match="chmod 600"):
        UserCredentials(file=saved(tmp_path, FILE, mode))


def test_a_link_to_a_file_is_not_followed(tmp_path: Path) -> None:
    path = saved(tmp_path, "")
    link = tmp_path / "link.toml"
    link.symlink_to(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        UserCredentials(file=link)
    assert UserCredentials(file=tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('["http://agent.example.com"]\ntoken = "s3cret"\n', "plain http"),
        ('["https://a.example"]\ntokn = "s3cret"\n', "tokn"),
        ('["https://a.example"]\ntoken = 7\n', "Expected `str`"),
        ('["https://a.example"]\ntoken = {env = "NOT_SET_ANYWHERE"}\n', "NOT_SET_ANYWHERE"),
        ('["ftp://a.example"]\ntoken = "s3cret"\n', "not the address"),
        ('token = "s3cret"\n', "must be a table"),
        ('["https://a.example"\ntoken = "s3cret"\n', "credentials.toml"),
    ],
)
def test_a_wrong_file_is_explained_without_its_secrets(
    tmp_path: Path, text: str, says: str
) -> None:
    with pytest.raises(ConfigError, match=says) as refused:
        UserCredentials(file=saved(tmp_path, text))
    assert "s3cret" not in str(refused.value)


def test_no_two_hosts_share_a_variable() -> None:
    hosts = [
        *("a.b.example", "a-b.example", "a.b-example", "a--b.example", "ab.example"),
        *("127.0.0.1", "127.0.0.1:8420", "[::1]", "a_b.example", "a.b.example:8443"),
    ]
    names = [variable(origin_of(f"https://{host}")) for host in hosts]
    told = [name for name in names if name]
    assert len(set(told)) == len(told) == len(hosts) - 2
    assert variable(AGENT) == "DRAGOMAN_LOGIN_AGENT_EXAMPLE_COM"
    assert variable("http://127.0.0.1:8420") == "DRAGOMAN_LOGIN_127_0_0_1_8420"


async def test_the_callback_beats_variables_beat_the_file(tmp_path: Path) -> None:
    path = saved(tmp_path, '["https://agent.example.com"]\ntoken = "file"\n')
    environ = {
        "DRAGOMAN_LOGIN_AGENT_EXAMPLE_COM_TOKEN": "variable",
        "DRAGOMAN_LOGIN_AGENT_EXAMPLE_COM_SCOPES": "a b",
    }

    async def ask(origin: str) -> Own | None:
        return Own(token="callback") if origin == AGENT else None

    assert (await UserCredentials(file=path).find(AGENT))[1].token == "file"
    told = (await UserCredentials(file=path, environ=environ).find(AGENT))[1]
    assert (told.token, told.scopes) == ("variable", ("a", "b"))
    every = UserCredentials(file=path, environ=environ, ask=ask)
    assert (await every.find(AGENT))[1].token == "callback"
    assert (await every.find("https://agent--example.com:443"))[1] == Own()


def test_the_folder_is_the_users(tmp_path: Path) -> None:
    assert folder({"DRAGOMAN_CONFIG_DIR": "/x"}) == Path("/x")
    assert folder({"XDG_CONFIG_HOME": "/y"}) == Path("/y/dragoman")
    assert folder({}) == Path.home() / ".config" / "dragoman"


# How each scheme wants it.

OWN = Own(api_key="k", user="alice", password="pässword", token="t")


def having(own: Own) -> CardAuth:
    async def ask(origin: str) -> Own | None:
        return own if origin == AGENT else None

    return CardAuth(UserCredentials(ask=ask))


@pytest.mark.parametrize(
    ("scheme", "headers", "query"),
    [
        (ApiKey(name="X-Key"), {"x-key": "k"}, {}),
        (ApiKey(name="key", location="query"), {}, {"key": "k"}),
        (ApiKey(name="sid", location="cookie"), {"cookie": "sid=k"}, {}),
        (HttpAuth(scheme="Bearer"), {"authorization": "Bearer t"}, {}),
        (HttpAuth(scheme="basic"), {"authorization": "Basic YWxpY2U6cMOkc3N3b3Jk"}, {}),
    ],
)
async def test_every_scheme_has_its_place(
    scheme: Scheme, headers: dict[str, str], query: dict[str, str]
) -> None:
    found = await given(having(OWN), card(it=scheme))
    assert (found.headers, found.query) == (headers, query)
    assert "alice" not in repr(found)


@pytest.mark.parametrize("name", ["Host", "Transfer-Encoding", "a b", "x\r\ny", ""])
async def test_a_card_cannot_put_a_key_just_anywhere(name: str) -> None:
    found = await given(having(OWN), card(it=ApiKey(name=name)))
    assert not found.headers


async def test_schemes_of_one_requirement_go_together_and_any_requirement_will_do() -> None:
    both = {"sid": (), "lang": (), "me": ()}
    told = card(
        {"tls": ()},
        both,
        tls=MutualTls(),
        sid=ApiKey(name="sid", location="cookie"),
        lang=ApiKey(name="lang", location="cookie"),
        me=HttpAuth(scheme="bearer"),
    )
    found = await given(having(OWN), told)
    assert found.headers == {"cookie": "sid=k; lang=k", "authorization": "Bearer t"}
    certified = having(Own(cert="me.pem"))
    assert not (await given(certified, told)).headers


async def test_what_is_missing_is_said_once_it_matters() -> None:
    auth = having(Own())
    told = card(key=ApiKey(name="X-Key"))
    assert not (await given(auth, told)).headers
    with pytest.raises(Unauthenticated) as refused:
        await auth.credentials(AGENT, told, told.security, refused="Bearer\x1b[31m")
    assert "It asks for: key" in refused.value.message
    assert "dragoman login https://agent.example.com" in refused.value.message
    assert "DRAGOMAN_LOGIN_AGENT_EXAMPLE_COM_" in refused.value.message
    assert "\x1b" not in refused.value.message


async def test_what_was_refused_is_not_given_for_ever() -> None:
    now = [1000.0]

    async def ask(origin: str) -> Own | None:
        return Own(api_key="k-secret")

    auth = CardAuth(UserCredentials(ask=ask), clock=lambda: now[0])
    told = card(key=ApiKey(name="X-Key"))
    assert (await given(auth, told)).headers
    now[0] += 10
    with pytest.raises(Unauthenticated, match="refused the credentials") as refused:
        await auth.credentials(AGENT, told, told.security, refused="")
    assert "k-secret" not in str(refused.value)


async def test_a_token_of_the_users_is_sent_where_the_card_asks_for_nothing() -> None:
    found = await having(OWN).credentials(AGENT, None, (), refused=None)
    assert found.headers == {"authorization": "Bearer t"}
    elsewhere = await having(OWN).credentials("https://b.example:443", None, (), refused=None)
    assert not elsewhere.headers


# The file of tokens.


def kept(origin: str = AGENT, scheme: str = "oauth", **about: object) -> StoredToken:
    return StoredToken(origin=origin, scheme=scheme, secret="s3cret", **about)  # type: ignore[arg-type]


def test_tokens_are_kept_for_the_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "tokens.json"
    old = os.umask(0)
    try:
        TokenStore(path).put(kept(refresh="r3fresh", until=12.5, scopes=("a",)))
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    found = TokenStore(path).get(AGENT, "oauth")
    assert found == kept(refresh="r3fresh", until=12.5, scopes=("a",))
    assert "s3cret" not in repr(found)
    assert "r3fresh" not in repr(found)
    assert TokenStore(path).get(AGENT, "other") is None
    assert TokenStore(path).get("https://agent.example.com:8443", "oauth") is None
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        TokenStore(path).all()


def test_tokens_of_an_origin_are_replaced_and_dropped(tmp_path: Path) -> None:
    for tokens in (TokenStore(), TokenStore(tmp_path / "tokens.json")):
        tokens.put(kept())
        tokens.put(kept(until=1.0))
        tokens.put(kept(scheme="key"))
        tokens.put(kept("https://b.example:443"))
        assert len(tokens.all()) == 3
        assert tokens.drop(AGENT) == 2
        assert tokens.drop(AGENT) == 0
        assert [one.origin for one in tokens.all()] == ["https://b.example:443"]


def test_a_damaged_file_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    path.write_text('{"tokens": [{"secret": "s3cret"')
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="damaged") as refused:
        TokenStore(path).all()
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("life", "renew"), [(3600, 3540), (60, 54), (0, None)], ids=["an hour", "a minute", "unknown"]
)
def test_a_token_is_renewed_a_little_before_its_end(life: int, renew: float | None) -> None:
    one = kept(at=1000.0, until=1000.0 + life if life else 0.0)
    assert one.renew_at == (None if renew is None else 1000.0 + renew)
