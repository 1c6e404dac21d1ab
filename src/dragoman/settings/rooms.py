"""The part of `[channels.NAME]` that says which agents live in its rooms, and who may use them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct


class Contact(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`contact`: the person behind the agents."""

    human: str = ""
    timezone: str = ""


class RoomSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How agents behave in the rooms of a channel."""

    rooms: tuple[str, ...] = ()
    """The rooms to join."""
    agents: tuple[str, ...] | None = None
    """The agents of this server that live in its rooms; None: all of them. If there are several,
    the first answers what names none of them."""
    allow: tuple[str, ...] = ()
    """The senders that may use the agents, as the channel identifies them; empty: all members."""
    operators: tuple[str, ...] = ()
    """Senders that may also cancel the tasks of others."""
    scopes: tuple[str, ...] = ()
    """The scopes that senders have, for skills that need some."""
    mention: bool = True
    """Whether a request must name the agent, in a room with more than two members."""
    tasks: Annotated[int, Meta(ge=1)] = 8
    """The tasks on which the agents of this channel work at the same time; others are rejected."""
    file_size: Annotated[int, Meta(ge=0)] = 10 * 1024 * 1024
    """The largest file that is accepted, in bytes."""
    framework: Literal["clawdbot", "openclaw", "other"] = "other"
    """The framework on the cards."""
    contact: Contact | None = None
    """The contact on the cards."""
    discover: bool = True
    """Whether a gateway asks its rooms which agents are there."""
    meet: bool | None = None
    """Whether agents that are met in its rooms are served here as well; None: by a gateway."""
    patience: Annotated[float, Meta(gt=0)] = 120.0
    """The seconds in which an agent that is met there must react to a task."""
    task_limit: Annotated[float, Meta(gt=0)] = 3600.0
    """The seconds that such an agent may work on a task."""
