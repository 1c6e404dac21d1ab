"""The dialects of the tour. For each of them there is an agent that is called in it, and a caller
that speaks it."""

from __future__ import annotations

from importlib.util import find_spec

from msgspec import Struct

from dragoman.core.dialect import Dialect, Wire
from dragoman.dialects import DIALECTS
from dragoman.net.http.mount_point import AGENTS

_SCHEMES = {Wire.HTTP: "http", Wire.WEBSOCKET: "ws", Wire.GRPC: "grpc"}


class Ports(Struct, frozen=True):
    """The ports of one server."""

    http: int
    grpc: int

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self.http}"


class TourDialect(Struct, frozen=True):
    """A dialect, and the agent that is called in it."""

    dialect: Dialect

    @property
    def name(self) -> str:
        """The name of the agent in addresses."""
        return self.label.replace(".", "-")

    @property
    def label(self) -> str:
        """The short name of the dialect for a table."""
        return self.dialect.name.removeprefix("a2a-")

    @property
    def secret(self) -> bool:
        """Whether callers and agents of this dialect share a secret."""
        return self.dialect.proof is not None

    def address(self, ports: Ports, agent: str) -> str:
        """Returns the address at which a caller in this dialect reaches an agent of a server."""
        wire, where = self.dialect.wire, f"{AGENTS}/{agent}"
        if wire is Wire.GRPC:
            return f"a2a+grpc://127.0.0.1:{ports.grpc}{where}"
        if not self.secret:
            return f"{ports.url}{where}"
        path = self.dialect.routes[0].path
        return f"{self.dialect.scheme}+{_SCHEMES[wire]}://127.0.0.1:{ports.http}{where}{path}"

    def section(self, ports: Ports) -> str:
        """Returns the `[agents.NAME]` of a gateway for the agent of this dialect."""
        more = (
            'secret = { env = "IAT_SECRET" }' if self.secret else f'dialect = "{self.dialect.name}"'
        )
        return f'[agents.{self.name}]\nurl = "{self.address(ports, self.name)}"\n{more}\n'


def tour_dialects() -> list[TourDialect]:
    """Returns each dialect that a server of ours offers, the newest first."""
    # gRPC is an optional extra, so the demo runs without it if it is not installed.
    grpc = find_spec("grpc") is not None
    offered = [each for each in DIALECTS.values() if each.interface or each.listed_as]
    return [TourDialect(each) for each in offered if grpc or each.wire is not Wire.GRPC]


LINKED = TourDialect(DIALECTS["xiaoyi"])
"""The agent that dials in to the gateway. Callers in its dialect are phones, which the agents of
the gateway dial."""

ROOMED = TourDialect(DIALECTS["lite"])
"""The agent that lives in a chat room. Callers in its dialect are people in another room, where all
agents of the gateway live."""


def phone_name(agent: TourDialect) -> str:
    """Returns the name of the agent of the gateway that phones and people in rooms call to reach
    this one. An agent that dials in has no settings of its own, so the gateway relays to it under
    another name."""
    return f"{agent.name}-on-the-phone" if agent is LINKED else agent.name
