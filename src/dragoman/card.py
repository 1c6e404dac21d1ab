"""What an agent says about itself, free of any version's spelling."""

from __future__ import annotations

from msgspec import Struct

from .model import Json


class Provider(Struct, frozen=True, omit_defaults=True):
    """Who offers the agent."""

    organization: str
    url: str = ""


class Extension(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something beyond the protocol that the agent understands."""

    uri: str
    description: str = ""
    required: bool = False
    params: dict[str, Json] | None = None


class Skill(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something the agent can do."""

    id: str
    name: str
    description: str
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()


class Interface(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One address where the agent speaks one version over one binding."""

    url: str
    binding: str
    version: str


class Card(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The agent's own account: who it is, what it can do, where it listens."""

    name: str
    description: str
    version: str
    interfaces: tuple[Interface, ...] = ()
    provider: Provider | None = None
    documentation_url: str = ""
    icon_url: str = ""
    streaming: bool = True
    push: bool = False
    extended: bool = False
    extensions: tuple[Extension, ...] = ()
    input_modes: tuple[str, ...] = ("text/plain",)
    output_modes: tuple[str, ...] = ("text/plain",)
    skills: tuple[Skill, ...] = ()
