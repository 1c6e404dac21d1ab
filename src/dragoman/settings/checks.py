"""Checks the values of the settings that their types cannot express."""

from __future__ import annotations

import re

from dragoman.core.errors import ConfigError
from dragoman.workspace import space_of

from .limits import MAY_BE_ZERO
from .sections import McpServer, Settings


def agents_named(settings: Settings) -> list[tuple[str, str]]:
    """Returns each agent that a policy or a skill names, and where. A name that ends in `*` fits
    whoever is there."""
    found = [
        (f"[[policy]] {number}", name)
        for number, rule in enumerate(settings.policy, 1)
        for name in rule.agents or ()
        if not name.endswith("*")
    ]
    found += [
        (f"[skills] {skill}", name) for skill, names in settings.skills.items() for name in names
    ]
    return found


def check(settings: Settings) -> None:
    """Raises `ConfigError` for a value that cannot work, and names its key."""
    server, limits = settings.server, settings.limits
    for name, port in (("port", server.port), ("grpc-port", server.grpc_port)):
        if not 0 <= port <= 65535:
            raise ConfigError(f"{name} must be between 0 and 65535, not {port}.")
    if server.public_url and not re.match(r"https?://[^/\s]+", server.public_url):
        raise ConfigError(
            f"public-url must start with http:// or https://, not '{server.public_url}'."
        )
    for host in server.hosts:
        if not re.fullmatch(r"\*|\.?[A-Za-z0-9_-][A-Za-z0-9._-]*", host):
            raise ConfigError(
                f"server.hosts must be host names without a scheme or port, `.example.com` or `*`, "
                f"not '{host}'."
            )
    _check_grpc_url("grpc_url", server.grpc_url)
    _check_agent_ports(settings)
    space_of(settings.workspace)
    if settings.signing.jku and not settings.signing.jku.startswith("https://"):
        raise ConfigError(
            "signing.jku must start with https://, so that nobody can change the keys."
        )
    for key in limits.__struct_fields__:
        if getattr(limits, key) < (0 if key in MAY_BE_ZERO else 1e-9):
            least = "must not be less" if key in MAY_BE_ZERO else "must be more"
            raise ConfigError(f"limits.{key} {least} than 0.")
    if limits.head_size < 8192:
        raise ConfigError("limits.head_size must be at least 8192.")
    for key in settings.rates.__struct_fields__:
        if getattr(settings.rates, key) < 0:
            raise ConfigError(f"rates.{key} must not be less than 0.")
    for key in (
        "session",
        "window",
        "sockets",
        "calls",
        "messages_per_second",
        "message_size",
        "offline",
    ):
        if getattr(settings.iat, key) <= 0:
            raise ConfigError(f"iat.{key} must be more than 0.")
    if not settings.push.schedule or min(settings.push.schedule) < 0:
        raise ConfigError("push.schedule needs at least one delay, and none may be negative.")
    more_than_0 = ("timeout", "parallel", "per_principal", "per_host", "failures", "probe")
    for key in (*more_than_0, "max_hooks"):
        if getattr(settings.push, key) <= 0:
            raise ConfigError(f"push.{key} must be more than 0.")
    for name, tools in settings.mcp.items():
        _check_mcp(f"[mcp.{name}]", tools)
    for name, kept in settings.retention.items():
        if kept.keep_tasks <= 0:
            raise ConfigError(f"[retention.{name}]: keep_tasks must be more than 0.")


def _check_grpc_url(key: str, url: str) -> None:
    if url and not re.fullmatch(r"((grpcs?|https?)://)?[^/\s:@]+(:\d+)?/?|\[.+", url):
        raise ConfigError(
            f"{key} must be host:port, optionally with grpc://, grpcs://, http:// or https://, "
            f"not '{url}'."
        )


def _check_agent_ports(settings: Settings) -> None:
    """Checks the gRPC ports of single agents. The kernel would let two of them share one."""
    server = settings.server
    taken = {server.port: "the server", server.grpc_port: "the gRPC of all agents"}
    for name, agent in settings.agents.items():
        port = agent.grpc_port
        if port is None:
            continue
        if not 0 <= port <= 65535:
            raise agent.error(name, "grpc_port", f"must be between 0 and 65535, not {port}.")
        if not port and server.workers > 1:
            raise agent.error(name, "grpc_port", "workers share it, so it cannot be a free one.")
        if port and port in taken:
            raise agent.error(name, "grpc_port", f"{port} is the port of {taken[port]}.")
        taken[port] = f"[agents.{name}]"
        _check_grpc_url(f"[agents.{name}] grpc_url", agent.grpc_url)


def _check_mcp(where: str, tools: McpServer) -> None:
    if bool(tools.command) == bool(tools.url):
        raise ConfigError(f"{where} needs either a command or a url.")
    if tools.url and not re.match(r"https?://[^/\s@]+", tools.url):
        raise ConfigError(f"{where}: url must start with http:// or https:// and a host.")
    if tools.env and tools.url:
        raise ConfigError(f"{where}: env is for a command; a url has headers.")
    if (tools.headers or tools.secret) and tools.command:
        raise ConfigError(f"{where}: headers and secret are for a url; a command has env.")
    if any(name.lower() == "authorization" for name in tools.headers):
        raise ConfigError(f"{where}: give the token as secret, not as a header.")
    if tools.timeout <= 0 or tools.max_size <= 0:
        raise ConfigError(f"{where}: timeout and max_size must be more than 0.")
