"""The settings of a gateway: what is wrong is told with its line and with what to write instead."""

from __future__ import annotations

import json
from pathlib import Path

import httpx2
import pytest

from cli.run import AGENT, dragoman, serving
from dragoman.cli import main

GOOD = """# agents of three kinds
[agents.alpha]
url = "http://127.0.0.1:9001"

[agents.beta]
url = "iat+http://127.0.0.1:9002/iat"
secret = { env = "THE_SECRET" }

[agents.gamma]
file = "gamma.py"
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "gamma.py").write_text(AGENT)
    return tmp_path


@pytest.mark.slow  # starts processes
def test_good_settings_are_good_although_nobody_is_there(home: Path) -> None:
    (home / "dragoman.toml").write_text(GOOD)
    ended = dragoman("gateway", "check", cwd=home, THE_SECRET="hidden words")
    out = ended.stdout
    assert ended.returncode == 0, ended.stderr
    assert "alpha  asks http://127.0.0.1:9001" in out
    assert "beta  asks iat+http://127.0.0.1:9002/iat" in out
    assert "gamma  runs gamma.py" in out
    assert "hidden" not in out


URL = '[agents.a]\nurl = "http://127.0.0.1:9001"\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[agents.a]\n", 'dragoman.toml:1: [agents.a]: it needs url = "http://..."'),
        ('[agents.a]\nurll = "http://x"\n', "dragoman.toml:2: [agents.a]: Object contains unknown"),
        ('[agents.a]\nurll = "http://x"\n', "did you mean `url`?"),
        (URL + 'file = "gamma.py"\n', "dragoman.toml:2: [agents.a] url: it has a file as well"),
        (
            '[agents.a]\nfile = "gamma.py"\n\nsecret = { env = "X" }\n',
            "dragoman.toml:4: [agents.a] secret: only an agent with a url has this",
        ),
        (URL + "queue = -1\n", "dragoman.toml:3: [agents.a]: Expected `int` >= 0"),
        (URL + "concurrency = 0\n", "dragoman.toml:3: [agents.a]: Expected `int` >= 1"),
        (URL + "probe = 0\n", "(at probe)"),
        (URL + 'sticky = "agent"\n', "dragoman.toml:3: [agents.a]: Invalid enum value 'agent'"),
        (URL + 'urls = ["ftp://x"]\n', "dragoman.toml:3: [agents.a] urls: An address begins"),
        (
            '[agents.a]\nfile = "gamma.py"\nurls = ["http://x"]\n',
            "dragoman.toml:3: [agents.a] urls: it has a file as well",
        ),
        (URL + 'fallbacks = ["b"]\n', "dragoman.toml:3: [agents.a] fallbacks: there is no agent"),
        (
            URL + 'fallbacks = ["b"]\n[agents.b]\nfile = "gamma.py"\n',
            "dragoman.toml:3: [agents.a] fallbacks: 'b' has no url",
        ),
        (
            URL + 'fallbacks = ["a"]\n',
            "dragoman.toml:3: [agents.a] fallbacks: they form a circle: a > a",
        ),
        (
            URL
            + 'fallbacks = ["b"]\n[agents.b]\nurl = "http://x"\nfallbacks = ["c"]\n'
            + '[agents.c]\nurl = "http://y"\nfallbacks = ["a"]\n',
            "dragoman.toml:3: [agents.a] fallbacks: they form a circle: a > b > c > a",
        ),
        (URL + 'secret = "geheim"\n', "dragoman.toml:3: [agents.a]: a secret is never written"),
        (URL + 'secret = { env = "UNSET" }\n', "dragoman.toml:3: [agents.a] secret: the variable"),
        (
            URL + '[agents.a.auth]\ntoken = "geheim"\n',
            "dragoman.toml:3: [agents.a]: a secret is never written here",
        ),
        (
            URL + 'auth = { tokn = { env = "X" } }\n',
            "unknown field `tokn`; did you mean `token`",
        ),
        (
            '[agents.a]\nurl = "http://example.com"\nauth = { token = { env = "HOME" } }\n',
            "dragoman.toml:3: [agents.a] auth: nothing secret is sent over plain http",
        ),
        ('[agents.a]\nurl = "ftp://x"\n', "dragoman.toml:2: [agents.a] url: An address begins"),
        ('[agents.a]\nurl = "http://"\n', "dragoman.toml:2: [agents.a] url: This is not a web"),
        (
            '[agents.a]\nurl = "https://me:geheim@x.example"\n',
            "dragoman.toml:2: [agents.a] url: credentials are never written here",
        ),
        (URL + 'dialect = "a2a-9"\n', "dragoman.toml:3: [agents.a] dialect: There is no dialect"),
        (URL + "patience = 0\n", "dragoman.toml:3: [agents.a] patience: it must be more than 0"),
        (URL + 'repeat = "yes"\n', "dragoman.toml:3: [agents.a]: Expected `bool`"),
        (URL + 'card_signature = "require"\n', "dragoman.toml:3: [agents.a] card_signature: it ne"),
        (URL + 'card_keys = ["none.pem"]\n', "dragoman.toml:3: [agents.a] card_keys: "),
        (URL + '[agents.a]\nurl = "http://127.0.0.1:9002"\n', "Cannot declare ('agents', 'a')"),
        (URL + '[agents.a]\nurl = "http://127.0.0.1:9002"\n', "at line 3"),
        ('[agents.A]\nurl = "http://x"\n', "dragoman.toml:1: [agents.A]: 'A' cannot be the name"),
        ('[agents.A]\nurl = "http://x"\n', "Write a."),
        ('[agents.-]\nurl = "http://x"\n', "'-' cannot be the name of an agent"),
        (
            '# x\n[agents.a]\nfile = "none.py"\n',
            "dragoman.toml:3: [agents.a] file: There is no file",
        ),
        ('[agnets.a]\nurl = "http://x"\n', "dragoman.toml:1: 'agnets' is not a section"),
        ("", "dragoman.toml names no agents. Write one:"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(
    home: Path,
    text: str,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (home / "dragoman.toml").write_text(text)
    monkeypatch.chdir(home)
    with pytest.raises(SystemExit) as ended:
        main(["gateway", "check"])
    err = capsys.readouterr().err
    assert ended.value.code == 2
    assert says in err
    assert "geheim" not in err


@pytest.mark.slow  # starts processes
def test_no_file_is_told_with_the_smallest_one(home: Path) -> None:
    ended = dragoman("gateway", cwd=home)
    assert ended.returncode == 2
    assert "There is no file dragoman.toml. Write one:" in ended.stderr


@pytest.mark.parametrize("settings", [None, "[server]\nallow_private = true\n"])
@pytest.mark.slow  # starts processes
def test_a_gateway_needs_no_agents_if_others_may_dial_in(home: Path, settings: str | None) -> None:
    if settings is not None:
        (home / "dragoman.toml").write_text(settings)
    made = dragoman("xiaoyi", "keys", "add", "--agent-id", "ag-1", "--json", cwd=home)
    assert made.returncode == 0, made.stderr
    with serving(cwd=home, command="gateway") as server:
        assert httpx2.get(f"{server.url}/agents", timeout=60).json() == {"agents": []}
        refused = httpx2.get(f"{server.url}/openclaw/v1/ws/link", timeout=60)
        assert refused.status_code == 401
    access_key = json.loads(made.stdout)["ak"]
    assert dragoman("xiaoyi", "keys", "revoke", access_key, cwd=home).returncode == 0
    assert dragoman("gateway", cwd=home).returncode == 2


@pytest.mark.slow  # starts processes
def test_a_gateway_starts_and_serves_although_an_agent_is_away(home: Path) -> None:
    (home / "dragoman.toml").write_text(GOOD)
    with serving(cwd=home, command="gateway", THE_SECRET="hidden words") as server:
        listed = httpx2.get(f"{server.url}/agents", timeout=60).json()["agents"]
        assert [each["name"] for each in listed] == ["alpha", "beta", "gamma"]
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "SendMessage",
            "params": {
                "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
            },
        }
        version = {"a2a-version": "1.0"}
        there = httpx2.post(f"{server.url}/agents/gamma", json=body, headers=version, timeout=60)
        assert "HI" in there.text
        away = httpx2.post(f"{server.url}/agents/alpha", json=body, headers=version, timeout=60)
        assert "alpha cannot be reached; try again later" in away.text
        assert "9001" not in away.text
        assert "error" in away.json()
