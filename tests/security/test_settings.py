"""Doors in `dragoman.toml`: what is wrong is named with its section and line, never its value."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.core.auth_schemes import ApiKeys, Certificates, Jwt, Passwords, Tokens
from dragoman.core.errors import ConfigError
from dragoman.settings import load

GOOD = """
[server]
card_access = "authenticated"

[auth.keys]
type = "api-key"
in = "cookie"
callers.alice = { secret = { env = "A" }, tenants = ["acme"], scopes = ["read"] }

[auth.people]
type = "basic"
[auth.people.callers.carol]
secret = { file = "carol" }

[auth.robots]
type = "bearer"
callers = { build = { secret = { env = "B" } } }

[auth.sso]
type = "jwt"
issuer = "https://id.example.com"
audience = ["x"]
oauth2 = { token_url = "https://id.example.com/token", scopes = { read = "Reads" } }

[auth.certs]
type = "mtls"
shared = "holder"

[rates]
streams = 3

[retention.acme]
tenant = "acme"
keep_tasks = 60.0
"""


def test_every_kind_of_door(tmp_path: Path) -> None:
    path = tmp_path / "d.toml"
    path.write_text(GOOD)
    found = load({}, {"DRAGOMAN_RATES_STREAMS": "4"}, path)
    kinds = {name: type(scheme) for name, scheme in found.auth.items()}
    assert kinds == {
        "keys": ApiKeys,
        "people": Passwords,
        "robots": Tokens,
        "sso": Jwt,
        "certs": Certificates,
    }
    assert found.rates.streams == 4
    assert found.retention["acme"].tenant == "acme"


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ('\n[auth.k]\ntype = "bearer"\ncallers.a = { secret = "hunter2hunter2" }', 4, "env"),
        ('[auth.a]\ntype = "mtls"\n\n[auth.b]\ntype = "magic"', 5, "magic"),
        ('[auth.b]\ntype = "bearer"\ncallers = {}\nflavour = 1', 4, "flavour"),
        ("[auth.b]\ncallers = {}", 1, "type"),
        ('[auth.j]\ntype = "jwt"\nissuer = "x"\naudience = []\nalgorithms = ["HS256"]', 1, "HS256"),
        ("[retention.x]\ntenant = 'a'", 1, "keep_tasks"),
        ("[tls]\npassword = 'x'", 2, "password"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, line: int, what: str) -> None:
    path = tmp_path / "d.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as told:
        load({}, {}, path)
    assert f"d.toml:{line}:" in str(told.value)
    assert what in str(told.value)
    assert "hunter2" not in str(told.value)


def test_a_rate_below_nothing(tmp_path: Path) -> None:
    for text in ("[rates]\nstreams = -1", "[retention.x]\nkeep_tasks = 0.0"):
        path = tmp_path / "d.toml"
        path.write_text(text)
        with pytest.raises(ConfigError):
            load({}, {}, path)
