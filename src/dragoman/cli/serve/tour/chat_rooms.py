"""The chat rooms of the tour, on this machine: in one an agent lives, in the other people call the
agents of the gateway."""

from __future__ import annotations

import secrets

from dragoman import showcase
from dragoman.server.agent_names import slug

AGENTS_ROOM, PEOPLE_ROOM = "agents", "people"


class ChatHub:
    """The rooms, which all processes of the tour join."""

    def __init__(self, agent: str) -> None:
        """`agent` is the name of the agent that lives in a room."""
        self._agent = agent
        self._hub = f"demo-{secrets.token_hex(4)}"

    def sections(self) -> list[str]:
        """Returns the settings with which the gateway calls the agent in its room, and lives in the
        other room itself."""
        name = slug(showcase.agent.name)
        url = f"lite+loopback://{self._hub}/{AGENTS_ROOM}?agent={name}"
        return [
            f'[agents.{self._agent}]\nurl = "{url}"\n',
            f'[channels.people]\nkind = "loopback"\nhub = "{self._hub}"\n'
            f'user = "desk"\nrooms = ["{PEOPLE_ROOM}"]\n',
        ]

    def command(self, file: str) -> list[str]:
        """Returns the command with which the agent lives in its room."""
        where = ["--channel", "loopback", "--server", self._hub, "--room", AGENTS_ROOM]
        return ["lite", "serve", file, *where, "--user", self._agent]

    def address(self, agent: str) -> str:
        """Returns the address at which a person in the room calls an agent of the gateway."""
        person = f"person-{secrets.token_hex(3)}"
        return f"lite+loopback://{person}@{self._hub}/{PEOPLE_ROOM}?agent={agent}&person=true"
