"""XiaoYi links: `[xiaoyi]` for agents that dial in, `[agents.NAME.xiaoyi]` for one that dials."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from dragoman.core.auth_schemes import Secret

_Seconds = Annotated[float, Meta(gt=0)]
_Count = Annotated[int, Meta(ge=1)]


class LinkedAgentSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[xiaoyi.agents.ID]`: one agent that dials in, by its id."""

    tasks_per_session: _Count = 1
    """How many messages of one conversation the agent gets before it has answered the first;
    others wait."""
    files: Literal["auto", "value", "reference"] = "auto"
    """The form in which it gets files; `auto` is by reference if this server has a `public_url`."""


class XiaoYi(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[xiaoyi]`: agents that dial in. Times in seconds, sizes in bytes."""

    enabled: bool = True
    """Whether agents may dial in, if the store has keys."""
    window: _Seconds = 300.0
    """The seconds by which the clock of an agent may be off, and for which a signature is
    remembered."""
    links: _Count = 1_000
    """Concurrent links."""
    links_per_key: _Count = 250
    """Concurrent links with one pair of keys."""
    links_per_agent: _Count = 8
    """Concurrent links of one agent."""
    messages_per_second: _Count = 200
    """Messages per second that answer no request, on one link."""
    message_size: _Count = 4 * 1024 * 1024
    """The size of one message."""
    idle: Annotated[float, Meta(ge=90)] = 120.0
    """How long a link may be silent; agents send a heartbeat every 20 or 30 seconds."""
    keep: _Seconds = 120.0
    """How long the tasks of an agent wait for it when its last link has closed."""
    answer_gap: _Seconds = 45.0
    """How long an agent that is back after its link, or this server, was away may say nothing about
    a task, if it cannot be asked; then the outcome of the task is unknown."""
    offline: _Seconds = 600.0
    """How long an agent that has left is still listed."""
    task_limit: _Seconds = 3600.0
    """How long an agent may work on a task."""
    agents: dict[str, LinkedAgentSettings] = field(default_factory=dict)
    """What differs for single agents, by their ids."""


class LinkSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[agents.NAME.xiaoyi]`: the link on which the agent dials XiaoYi."""

    agent_id: str
    """The id of the agent on the platform."""
    access_key: Secret | None = None
    """The access key; without it, the variable DRAGOMAN_XIAOYI_AK."""
    secret_key: Secret | None = None
    """The secret key; without it, the variable DRAGOMAN_XIAOYI_SK."""
    servers: tuple[str, ...] = ()
    """The servers to dial, all at once; by default those of the platform."""
    pin: str = ""
    """The key of a server that is known by its IP address: `sha256/` and the Base64 of the digest
    of its public key (SPKI)."""
    backup_without_tls_verification: bool = False
    """Dials the backup server of the platform without verifying who it is. Everybody on the way can
    read and answer everything; set `pin` instead if you can."""
    scopes: tuple[str, ...] = ()
    """The scopes that callers over the link have, for skills that need some."""
    message_size: int = 4 * 1024 * 1024
    """The size of one message of a server."""
    media: Literal["download", "lazy"] = "download"
    """Whether the files that phones send are downloaded before the skill runs, or stay links."""
    media_size: _Count = 20 * 1024 * 1024
    """The size of one file."""
    media_files: _Count = 4
    """The files of one message."""
    media_time: _Seconds = 60.0
    """How long a download may take."""
    media_types: tuple[str, ...] = ()
    """If not empty, only files of these media types are kept, such as `image/*`."""
    media_text: Annotated[int, Meta(ge=0)] = 0
    """Text files up to this size are added to the text of the message; 0: none."""
