"""The options of `agent.serve(...)`, so that a type checker knows a misspelt one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, TypedDict

from dragoman.core.auth_schemes import Scheme


class ServeOptions(TypedDict, total=False):
    """The keys of `[server]` in the settings, and what else `serve` takes."""

    on_start: Callable[[str], None]
    """Called with the address when the server is ready for requests."""
    config: Path
    """The settings file, if it is not `dragoman.toml`."""
    auth: Mapping[str, Scheme]
    """Authentication schemes, beside those of the agent."""
    signing_keys: tuple[str, ...]
    workspace: str
    iat_host: str
    # The keys of `[server]`; `settings.Server` explains them.
    host: str
    port: int
    grpc: bool | None
    grpc_port: int
    grpc_url: str
    grpc_form: Literal["host:port", "grpc", "http"]
    grpc_listed: bool
    mcp: bool | None
    store: str
    audit: str
    public_url: str
    register: str
    hosts: tuple[str, ...]
    allow_private: bool
    insecure: bool
    log_level: Literal["debug", "info", "warning", "error"]
    log_format: Literal["text", "json"]
    reload: bool
    drain: float
    watchdog: float
    card_access: str
    metrics_access: str
    status_access: str
    interfaces: tuple[str, ...]
    caller_headers: tuple[str, ...]
    anonymous: tuple[str, ...] | None
    card_secrets: bool
    trusted_proxies: tuple[str, ...]
    forwarded: Literal["x-forwarded-for", "forwarded"]
    bell: str
    workers: int
