"""`[agents.NAME.xiaoyi]`: the link of an agent to XiaoYi."""

from __future__ import annotations

from msgspec import Struct

from dragoman.core.auth_schemes import Secret


class LinkSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[agents.NAME.xiaoyi]`: the link on which the agent dials XiaoYi."""

    agent_id: str
    """The id of the agent on the platform."""
    access_key: Secret | None = None
    """The access key; without it, the variable DRAGOMAN_XIAOYI_AK."""
    secret_key: Secret | None = None
    """The secret key; without it, the variable DRAGOMAN_XIAOYI_SK."""
    servers: tuple[str, ...] = ()
    """The servers to dial, all at once; empty: those of the platform."""
    pin: str = ""
    """The key of a server that is known by its IP address: `sha256/` and the Base64 of the digest
    of its public key (SPKI)."""
    backup_without_tls_verification: bool = False
    """Dials the backup server of the platform without verifying who it is. Whoever sits between can
    read everything. Set `pin` instead if you can."""
    message_size: int = 4 * 1024 * 1024
    """The size of one message of a server."""
