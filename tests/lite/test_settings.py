"""`[channels.NAME]` in the settings: what it accepts, and errors that name the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.core.errors import ConfigError
from dragoman.settings import load
from dragoman.settings.chat import IrcSettings, MatrixSettings
from dragoman.testing.served import served
from lite.room import desk, settings

GOOD = """
[agents.kiln]
file = "kiln.py"

[channels.team]
kind = "matrix"
homeserver = "https://matrix.example.org"
user = "@kiln:example.org"
password = { env = "MATRIX_PASSWORD" }
rooms = ["#team:example.org"]
agents = ["kiln"]
allow = ["@anna:example.org"]
operators = ["@olga:example.org"]
contact = { human = "Anna", timezone = "Asia/Shanghai" }

[channels.irc]
kind = "irc"
host = "irc.example.org"
"""


def loaded(folder: Path, text: str) -> object:
    path = folder / "dragoman.toml"
    path.write_text(text)
    return load(None, {}, path)


def test_channels_are_read_by_their_kinds(tmp_path: Path) -> None:
    (tmp_path / "dragoman.toml").write_text(GOOD)
    found = load(None, {}, tmp_path / "dragoman.toml").channels
    team, irc = found["team"], found["irc"]
    assert isinstance(team, MatrixSettings)
    assert team.agents == ("kiln",)
    assert team.contact is not None
    assert team.contact.timezone == "Asia/Shanghai"
    assert isinstance(irc, IrcSettings)
    assert irc.agents is None
    assert irc.mention


@pytest.mark.parametrize(
    ("wrong", "line", "words"),
    [
        ('kind = "matrix"', 'kind = "pigeon"', "pigeon"),
        ('kind = "matrix"\n', "", "kind"),
        ('homeserver = "https://matrix.example.org"\n', "", "homeserver"),
        ('password = { env = "MATRIX_PASSWORD" }', 'password = "s3cret"', "never written here"),
        ("allow =", "alow =", "alow"),
        ('agents = ["kiln"]', 'agents = "kiln"', "array"),
    ],
)
def test_a_mistake_names_its_line(tmp_path: Path, wrong: str, line: str, words: str) -> None:
    text = GOOD.replace(wrong, line, 1)
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text)
    message = caught.value.message
    assert "[channels.team]" in message
    assert words in message
    assert "s3cret" not in message
    number = int(message.partition("dragoman.toml:")[2].partition(":")[0])
    shown = text.splitlines()[number - 1]
    assert shown.startswith((line or "[channels.team]")[:5])


async def test_an_agent_that_does_not_exist_cannot_live_in_a_room() -> None:
    with pytest.raises(ConfigError, match="there is no agent 'kiln'; there are: desk"):
        async with served(desk(), settings("any", agents=("kiln",))):
            pass
