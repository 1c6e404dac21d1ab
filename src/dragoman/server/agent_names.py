"""The names of the agents of a server: below `/agents/`, in the store, in metrics and in logs."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Mapping, Sequence

from msgspec import Struct

from dragoman.agent import Agent
from dragoman.core.errors import ConfigError
from dragoman.dialects.a2a.routes import PATH_WORDS

Agents = Agent | Sequence[Agent] | Mapping[str, Agent]
"""The only agent of a server, or several: a mapping gives each its name."""
MOST_CHARS = 63
NO_AGENT = "-/"
"""What the name of a mount begins with that is not an agent's."""
RULE = "a-z, 0-9 and -, at most 63 characters"
_HOST = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?")
_NAME = re.compile(rf"[a-z0-9-]{{1,{MOST_CHARS}}}")


class Naming(Struct, frozen=True):
    """The host and the tenant by which calls may address an agent, beside its name."""

    host: str = ""
    tenant: str = ""


def by_name(agents: Agents, *, several: bool | None = None) -> dict[str, Agent]:
    """Returns the agents by their names. A single agent without a name gets an empty one, unless
    the server is made for `several` agents; such a server may also start without any agent.

    Raises `ConfigError` if there is no agent, if two agents have the same name, or if a name is not
    valid.
    """
    if isinstance(agents, Agent):
        agents = [agents]
    if isinstance(agents, Mapping) and list(agents) == [""]:
        agents = list(agents.values())
    if isinstance(agents, Mapping):
        pairs = [(checked(name), agent) for name, agent in agents.items()]
    elif len(agents) == 1 and not several:
        pairs = [("", agents[0])]
    else:
        pairs = [(slug(agent.name), agent) for agent in agents]
    if not pairs and not several:
        raise ConfigError("There is no agent to serve.")
    return unique(pairs)


def unique(pairs: Sequence[tuple[str, Agent]]) -> dict[str, Agent]:
    """Returns these agents by their names. Raises `ConfigError` if two have the same name."""
    found: dict[str, Agent] = {}
    for name, agent in pairs:
        if name in found:
            raise ConfigError(
                f"Two agents would be served at /agents/{name}: '{found[name].name}' and "
                f"'{agent.name}'. Give one another name: `dragoman serve NAME=file.py`, "
                '[agents.NAME] in the settings, or create_app({"NAME": agent}).'
            )
        found[name] = agent
    return found


def checked(name: str) -> str:
    """Returns the name, or raises a `ConfigError` that says which names are valid."""
    if not _NAME.fullmatch(name) or name == "-":
        almost = title_slug(name)
        hint = f" Write {almost}." if almost else ""
        raise ConfigError(f"'{name}' cannot be the name of an agent: {RULE}.{hint}")
    return name


def check_naming(
    name: str, naming: Naming, others: Mapping[str, Naming], names: Container[str]
) -> None:
    """Raises `ConfigError` if an agent cannot have this host or this tenant, or if its name is the
    tenant of another agent. `others` are the agents with a host or a tenant, `names` are the names
    of all agents."""
    host, tenant, where = naming.host, naming.tenant, f"[agents.{name}]"
    if host and not _HOST.fullmatch(host):
        raise ConfigError(f"{where}: host must be a lower-case name without a port, not '{host}'.")
    if tenant and (tenant in PATH_WORDS or "/" in tenant):
        raise ConfigError(f"{where}: '{tenant}' cannot be a tenant: it is a path of this server.")
    if tenant and tenant != name and tenant in names:
        raise ConfigError(f"{where}: the tenant {tenant} is the name of another agent.")
    for other, its in others.items():
        if host and host == its.host:
            raise ConfigError(f"{where}: the host {host} already belongs to {other}.")
        if tenant and tenant == its.tenant:
            raise ConfigError(f"{where}: the tenant {tenant} leads to {other} already.")
        if name == its.tenant:
            raise ConfigError(f"{where}: a tenant of this name leads to {other} already.")


def slug(title: str) -> str:
    """Returns the name of an agent without a configured one, derived from its own title."""
    found = title_slug(title)
    if not found:
        raise ConfigError(
            f"The agent '{title}' needs a name for its address ({RULE}): write "
            '`dragoman serve NAME=file.py`, or create_app({"NAME": agent}).'
        )
    return found


def title_slug(title: str) -> str:
    """What is left of a title in the letters of a name; it may be empty."""
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:MOST_CHARS].strip("-")
