"""The other commands, and the settings behind them."""

from __future__ import annotations

import re
import resource
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from cli.run import ENVIRON, dragoman
from dragoman import __version__
from dragoman.cli import EXAMPLES, build, main
from dragoman.core.errors import ConfigError
from dragoman.settings import load


@pytest.mark.slow  # starts processes
def test_help_and_version(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    shown = dragoman("--help", cwd=tmp_path)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    for word in ("serve", "demo", "new", "--version"):
        assert word in shown.stdout
    assert spent < 0.5  # about 0.05 on an idle machine: nothing is imported
    assert dragoman("--version", cwd=tmp_path).stdout.strip() == __version__
    serve = dragoman("serve", "--help", cwd=tmp_path).stdout
    for flag in (
        *("--host", "--port", "--grpc-port", "--store", "--public-url", "--allow-private"),
        *("--insecure", "--log-level", "--reload", "--watchdog", "--config"),
    ):
        assert flag in serve


@pytest.mark.slow  # starts processes
def test_a_wrong_command_is_explained(tmp_path: Path) -> None:
    ended = dragoman("sevre", cwd=tmp_path)
    assert ended.returncode == 2
    assert "sevre" in ended.stderr
    assert ended.stderr.count("\n") <= 2


@pytest.mark.slow  # starts processes
def test_new_writes_a_project_whose_test_passes(tmp_path: Path) -> None:
    made = dragoman("new", "my-agent", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert "dragoman serve agent.py" in made.stdout
    folder = tmp_path / "my-agent"
    assert {path.name for path in folder.iterdir()} == {
        *("agent.py", "test_agent.py", "README.md", "pyproject.toml", ".gitignore")
    }
    again = dragoman("new", "my-agent", cwd=tmp_path)
    assert again.returncode == 2
    assert "exists already" in again.stderr
    assert dragoman("new", "no way", cwd=tmp_path).returncode == 2
    pytest.importorskip("dragoman.testing")
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"],
        cwd=folder,
        env=ENVIRON,
        capture_output=True,
        text=True,
    )
    assert tested.returncode == 0, tested.stdout


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[server]\nport = 1\ncolour = 2\n", "dragoman.toml:3: 'colour' is not a key in [server]"),
        ("port = 1\n", "dragoman.toml:1: 'port' is not a section"),
        ("\n[sever]\nport = 1\n", "dragoman.toml:2: 'sever' is not a section"),
        ('[limits]\nbody_size = "big"\n', "dragoman.toml:2: Expected `int`, got `str`"),
        ("[server\n", "dragoman.toml: "),
        ("[limits]\nbody_size = 0\n", "limits.body_size must be more than 0"),
        ("[push]\nper_principal = 0\n", "push.per_principal must be more than 0"),
        ("[push]\nper_host = 0\n", "push.per_host must be more than 0"),
    ],
)
def test_a_wrong_settings_file_is_explained(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "dragoman.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(says)):
        load(config=path)


def test_flags_beat_variables_beat_the_file_beats_the_code(tmp_path: Path) -> None:
    path = tmp_path / "dragoman.toml"
    path.write_text('[server]\nhost = "::1"\nport = 1\nstore = "memory:"\n')
    environ = {"DRAGOMAN_SERVER_PORT": "2", "DRAGOMAN_SERVER_STORE": "file:x"}
    environ |= {"DRAGOMAN_LIMITS_STALL": "1.5", "DRAGOMAN_SERVER_INSECURE": "true"}
    found = load({"store": "sqlite:///y", "host": None}, environ, path)
    assert (found.server.host, found.server.port) == ("::1", 2)
    assert (found.server.store, found.server.insecure) == ("sqlite:///y", True)
    assert (found.server.grpc_port, found.limits.stall) == (8421, 1.5)
    with pytest.raises(ConfigError, match="DRAGOMAN_SERVER_PORT"):
        load(None, {"DRAGOMAN_SERVER_PORT": "many"})


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "DRAGOMAN_SERVER_PROT",
            "DRAGOMAN_SERVER_PROT is no setting; did you mean DRAGOMAN_SERVER_PORT?",
        ),
        ("DRAGOMAN_LIMITS_BODYSIZE", "did you mean DRAGOMAN_LIMITS_BODY_SIZE?"),
        ("DRAGOMAN_SERVER_XYZZY", "keys of [server] are: host, port"),
    ],
)
def test_a_misspelt_variable_is_explained(name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        load(None, {name: "1"})


def test_variables_that_are_no_settings_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "dragoman.toml"
    path.write_text('[iat]\nsecret = {env = "DRAGOMAN_IAT_SHARED"}\n')
    environ = {"DRAGOMAN_IAT_SHARED": "x", "DRAGOMAN_SECRET_KEY": "x", "DRAGOMAN_AGENT": "a.py"}
    environ |= {"DRAGOMAN_XIAOYI_AK": "x", "DRAGOMAN_XIAOYI_SK": "x", "DRAGOMAN_CONFIG_DIR": "x"}
    load(None, environ, path)


@pytest.mark.parametrize(
    ("asked", "line"),
    [(asked, line) for asked, lines in EXAMPLES.items() for line in lines.split("\n") if line],
    ids=lambda value: value if " " in value else "",
)
def test_every_example_of_a_help_text_can_be_typed(asked: str, line: str) -> None:
    program, *words = shlex.split(line)
    assert program == "dragoman"
    assert words[0] == asked or not asked
    build(words[0]).parse_args(words, print_error=False, exit_on_error=False)


def test_a_help_text_ends_with_examples_and_names_short_flags(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def help_of(*words: str) -> tuple[str, str]:
        with suppress(SystemExit):
            main([*words, "--help"])
        about, _, examples = capsys.readouterr().out.partition("Examples:")
        return about, examples

    for words in ((), ("send",), ("serve",), ("tasks", "list")):
        assert f"dragoman {words[0] if words else 'demo'}" in help_of(*words)[1]
    for command, flags in (("serve", "-p -c -r -l"), ("send", "-f -d -s -t -c -o -j")):
        shown = help_of(command)[0]
        assert [flag for flag in flags.split() if f" {flag} " not in shown] == []
