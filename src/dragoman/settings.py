"""The settings. Flags take precedence over `DRAGOMAN_<SECTION>_<KEY>`, variables over the file, and
the file over the defaults."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from dragoman.core.auth_schemes import Scheme, Secret
from dragoman.core.errors import ConfigError
from dragoman.workspace import Space, space_of

FILE = "dragoman.toml"
IAT_SECRET = "IAT_SECRET"  # noqa: S105  the name of a variable
"""The variable with the secret that hosts and agents share, if `[iat] secret` is not set."""
NAMED = frozenset(("agents", "auth", "retention"))
"""Sections whose keys are names the operator chooses."""


class Server(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[server]`: the addresses, the store and the card. Keys have the names of the flags."""

    host: str = "127.0.0.1"
    port: int = 8420
    grpc: bool | None = None
    """Whether to serve gRPC; None: only if `interfaces` lists it, or its port or URL is set."""
    grpc_port: int = 8421
    grpc_url: str = ""
    """The address of gRPC on the card: host:port, optionally with a scheme."""
    grpc_form: Literal["host:port", "grpc", "http"] = "host:port"
    """The form of the gRPC address if grpc_url has no scheme: bare, grpc(s):// or http(s)://."""
    mcp: bool | None = None
    """Whether to offer the skills as MCP tools at /mcp; None: if the `mcp` package is
    installed."""
    store: str = "sqlite:///dragoman.db"
    public_url: str = ""
    """The address of the agent on the card. Empty: the address that the caller used."""
    hosts: tuple[str, ...] = ()
    """Host names that callers may use, in addition to loopback, the bound and the public host;
    `.example.com` matches all names under it, `*` any name."""
    allow_private: bool = False
    """Whether addresses from callers may be in private networks."""
    insecure: bool = False
    """Whether to listen on the network without authentication."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    reload: bool = False
    watchdog: float = 0.0
    """Seconds after which a blocked event loop ends the process (exit code 70); 0: never."""
    card_access: str = "public"
    """Who may read the card: public, authenticated, or address ranges, separated by commas."""
    metrics_access: str = "public"
    """Who may read /metrics; as card_access."""
    interfaces: tuple[str, ...] = ("JSONRPC", "HTTP+JSON")
    """The bindings that are served and listed on the card, in this order, or single versions of
    them (`JSONRPC/1.0`). `GRPC` enables gRPC, which is off by default: strict clients refuse a
    whole card because of one interface that is not http(s) on the card's own origin."""
    anonymous: tuple[str, ...] | None = None
    """Operations and skills that callers without credentials may use; None: those that the code
    names."""
    card_secrets: bool = False
    """Whether the card may contain values that look like secrets."""
    trusted_proxies: tuple[str, ...] = ()
    """Address ranges of proxies whose headers about the caller and the host are trusted."""
    forwarded: Literal["x-forwarded-for", "forwarded"] = "x-forwarded-for"
    """The headers of these proxies: X-Forwarded-For, -Proto and -Host, or Forwarded (RFC 7239)."""


class EngineSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part of `[limits]` that applies to tasks: their number, their size and their times."""

    max_wait: float = 300.0
    """How long a blocking send waits."""
    max_runs: int = 10_000
    """Concurrent runs; further tasks are queued."""
    max_queue: int = 10_000
    """Queued tasks; further tasks are refused."""
    max_parked: int = 1_000
    """Runs kept in memory while they wait for their caller; the oldest is dropped."""
    max_task_size: int = 64 * 1024 * 1024
    """The size of the artifacts and messages of one task; a larger task fails."""
    lease: float = 30.0
    """How long an unresponsive process keeps its tasks."""
    waiting: float = 7 * 86_400.0
    """How long a task waits for its caller."""
    keep_events: float = 7 * 86_400.0
    """How long the log of a finished task is kept."""
    keep_tasks: float = 30 * 86_400.0
    """How long a finished task is kept."""


class Limits(EngineSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[limits]`: the resources that callers may use. Sizes in bytes, times in seconds."""

    body_size: int = 4 * 1024 * 1024
    body_idle: float = 20.0
    """How long a request body may pause."""
    body_time: float = 120.0
    """How long a whole request body may take."""
    head_size: int = 8192
    """The size of the request line and headers, at least 8192. A larger value adds 11 KiB to the
    memory of an idle stream."""
    head_time: float = 30.0
    """How long request headers may take, and how long an idle connection is kept."""
    hello_time: float = 10.0
    """How long a new connection may take to send its first request, and a WebSocket to
    authenticate."""
    hello_size: int = 65_536
    """How much a new connection may send before its first request is complete."""
    answer_time: float = 300.0
    """How long a client may take to read a whole response."""
    http2_streams: int = 100
    """Concurrent requests on one HTTP/2 connection."""
    streams: int = 10_000
    """Concurrent streams."""
    stall: float = 30.0
    """How long the reader of a response or a stream may read nothing."""
    connections: int = 20_000
    """Concurrent connections; further ones wait in the system's queue."""
    connections_per_address: int = 2_000
    """Concurrent connections from one address, or one /64 of IPv6; trusted_proxies are exempt."""


class Push(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[push]`: how webhooks are called. Times in seconds."""

    enabled: bool = True
    """Whether callers may register webhooks."""
    schedule: tuple[float, ...] = (0, 5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400)
    """The delay before each attempt; after the last one the delivery becomes a dead letter."""
    timeout: float = 15.0
    """How long a receiver may take."""
    parallel: int = 128
    """Concurrent requests, each to another webhook."""
    per_principal: int = 32
    """Concurrent requests for the webhooks of one principal."""
    per_host: int = 16
    """Concurrent requests to one host, so that receivers that do not respond delay no others."""
    failures: int = 10
    """Consecutive failures after which the circuit breaker of a host opens."""
    probe: float = 60.0
    """The interval between probes of a host whose circuit breaker is open."""
    max_hooks: int = 16
    """The maximum number of webhooks of one task."""
    allow: tuple[str, ...] = ()
    """If not empty, only these hosts may be called: a name, or `.example.com` for all names under
    it."""
    ports: tuple[int, ...] = (80, 443, 8080, 8443)
    """Ports that may be called; with allow_private, all ports."""


class Tls(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tls]`: the certificate and its key as PEM files. Without them, the server does no TLS."""

    cert: str = ""
    key: str = ""
    client_ca: str = ""
    """If set, only clients with a certificate of this CA are accepted."""
    minimum: Literal["1.2", "1.3"] = "1.2"
    """The oldest TLS version that is accepted; clients that support 1.3 use 1.3."""


class Rates(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[rates]`: the limits of one principal, per process; 0: no limit."""

    calls_per_minute: int = 0
    streams: int = 0
    """Concurrent streams."""
    live_tasks: int = 0
    """Tasks that run or wait for their caller."""


class Retention(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[retention.NAME]`: a shorter retention for finished tasks of a tenant, an agent or both."""

    keep_tasks: float
    """Seconds after the end of a task; the shorter of this and limits.keep_tasks applies."""
    tenant: str | None = None
    agent: str = ""


class Signing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[signing]`: how the card is signed. Without keys, it is not signed."""

    keys: tuple[str, ...] = ()
    """Files with private keys, or folders of them. The newest key signs; all are published."""
    jku: str = ""
    """The address of the key set in the signature. Empty: the key set at our public address."""
    compatible: bool = True
    """Whether to add signatures that a2a-sdk verifies where its canonical forms differ."""


class Iat(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[iat]`: the IAT dialect. Times in seconds, sizes in bytes."""

    enabled: bool = True
    secret: Secret | None = None
    """The secret that hosts and agents share: it opens a session, and signs messages."""
    agent_id: str = ""
    """The name of this agent in envelopes; empty: the agent's name."""
    host: str = ""
    """The host to register with, as NAME=URL (the default name is `host`). With ws(s):// the host
    sends its requests over that socket, with http(s):// it calls back."""
    session: float = 3600.0
    """How long a session token is valid; a heartbeat renews it."""
    window: float = 300.0
    """The maximum age of a signature."""
    sockets: int = 1_000
    """Concurrent WebSockets."""
    calls: int = 64
    """Concurrent calls on one WebSocket."""
    messages_per_second: int = 50
    """Messages that one WebSocket may send per second."""
    message_size: int = 1024 * 1024
    """The size of one WebSocket message."""
    idle: float = 120.0
    """How long a WebSocket may be idle."""


class HostedAgent(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[agents.NAME]`: an agent that is served when `dragoman serve` is given no file."""

    file: str
    """Python file with the agent, or FILE:NAME; relative to the folder of the settings file."""


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All sections of the settings."""

    server: Server = Server()
    limits: Limits = Limits()
    push: Push = Push()
    tls: Tls = Tls()
    rates: Rates = Rates()
    signing: Signing = Signing()
    iat: Iat = Iat()
    workspace: Space = Space()
    auth: dict[str, Scheme] = {}
    """`[auth.NAME] type = ...`: the authentication schemes; a caller needs to satisfy one."""
    retention: dict[str, Retention] = {}
    agents: dict[str, HostedAgent] = {}
    """`[agents.NAME] file = ...`: the agents that are served, at /agents/NAME if there are
    several."""


def load(
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    config: Path | None = None,
) -> Settings:
    """Returns the effective settings. `flags` are keys of `[server]`, and None means that a flag
    was not given. `signing_keys` is `[signing] keys`, `workspace` is `[workspace] root`.

    Raises `ConfigError` naming the file and line, the variable or the flag that is wrong.
    """
    if config is None:
        config = Path(FILE) if Path(FILE).is_file() else None
    sections = _from_file(config) if config is not None else {}
    for agent in sections.get("agents", {}).values():
        assert config is not None  # noqa: S101  only the file has such sections
        agent["file"] = str(config.parent / agent["file"])
    for section, keys in _from_environ(environ or {}).items():
        sections.setdefault(section, {}).update(keys)
    given = {key: value for key, value in (flags or {}).items() if value is not None}
    if "signing_keys" in given:
        sections.setdefault("signing", {})["keys"] = given.pop("signing_keys")
    if "workspace" in given:
        sections.setdefault("workspace", {})["root"] = given.pop("workspace")
    if "iat_host" in given:
        sections.setdefault("iat", {})["host"] = given.pop("iat_host")
    if environ and environ.get(IAT_SECRET):
        sections.setdefault("iat", {}).setdefault("secret", {"env": IAT_SECRET})
    server = sections.setdefault("server", {})
    server.update(given)
    if "grpc_port" in server or "grpc_url" in server:
        server.setdefault("grpc", True)  # naming its address enables it
    settings = _converted(sections, "the settings")
    _check(settings)
    return settings


def _from_file(path: Path) -> dict[str, dict[str, Any]]:
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        raise ConfigError(f"There is no file {path}; create it, or omit --config.") from None
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{path} cannot be read: {exc}") from None
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError(f"{path}: {exc}") from None
    known = _known()
    for section, keys in found.items():
        if section not in known:
            raise _unknown(path, text, section, "", f"section; known are: {', '.join(known)}")
        if not isinstance(keys, dict):
            raise _unknown(path, text, section, "", "key here; it belongs in a [section]")
        for key in keys if section not in NAMED else ():
            if key not in known[section]:
                listed = ", ".join(known[section])
                raise _unknown(path, text, section, key, f"key in [{section}]; known are: {listed}")
    for section in NAMED & found.keys():
        for name, value in found[section].items():
            _check_named(path, text, section, name, value)
    try:
        msgspec.convert(found, Settings)
    except msgspec.ValidationError as exc:
        where = re.search(r"\$\.(\w+)\.(\w+)", str(exc))
        line = _line(text, *where.groups()) if where else 1
        raise ConfigError(f"{path}:{line}: {exc}") from None
    return found


def _check_named(path: Path, text: str, section: str, name: str, value: object) -> None:
    """Names the line of a wrong `[section.name]`, which msgspec calls `[...]`."""
    try:
        msgspec.convert({section: {name: value}}, Settings)
    except msgspec.ValidationError as exc:
        what, _, where = str(exc).partition(" - at ")
        inner = re.sub(r"^`\$\.\w+(\[\.\.\.\])?\.?|`$", "", where).replace("[...]", ".NAME")
        if inner.endswith("secret") and "got `str`" in what:
            what = 'a secret is never written here: give {env = "X"} or {file = "path"}'
        header = re.compile(rf"\s*\[\s*{section}\s*\.\s*\"?{re.escape(name)}\b")
        line = next((n for n, each in enumerate(text.splitlines(), 1) if header.match(each)), 1)
        place = f" (at {inner})" if inner else ""
        raise ConfigError(f"{path}:{line}: [{section}.{name}]: {what}{place}") from None


def _unknown(path: Path, text: str, section: str, key: str, what: str) -> ConfigError:
    name = key or section
    return ConfigError(f"{path}:{_line(text, section, key)}: '{name}' is not a {what}.")


def _line(text: str, section: str, key: str) -> int:
    """The line of a key, or of a section. tomllib does not tell, so we look for it."""
    inside = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[+\s*\"?([\w-]+)", line):
            inside = header[1]
            if inside == section and not key:
                return number
            continue
        word = re.match(r"\s*\"?([\w-]+)\"?\s*[.=]", line)
        if word and ((inside, word[1]) == (section, key) or (not inside and word[1] == section)):
            return number
    return 1


def _from_environ(environ: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for section, keys in _known().items():
        for key in keys if section not in NAMED else ():
            name = f"DRAGOMAN_{section}_{key}".upper()
            if name not in environ:
                continue
            try:
                one = msgspec.convert({section: {key: environ[name]}}, Settings, strict=False)
            except msgspec.ValidationError as exc:
                raise ConfigError(f"{name}: {str(exc).split(' - at')[0]}.") from None
            found.setdefault(section, {})[key] = getattr(getattr(one, section), key)
    return found


def _converted(sections: dict[str, dict[str, Any]], where: str) -> Settings:
    try:
        return msgspec.convert(sections, Settings)
    except msgspec.ValidationError as exc:
        raise ConfigError(f"In {where}: {exc}") from None


def _known() -> dict[str, tuple[str, ...]]:
    return {
        name: getattr(type(part), "__struct_fields__", ())
        for name, part in msgspec.structs.asdict(Settings()).items()
    }


def _check(settings: Settings) -> None:
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
    if server.grpc_url and not re.fullmatch(
        r"((grpcs?|https?)://)?[^/\s:@]+(:\d+)?/?|\[.+", server.grpc_url
    ):
        raise ConfigError(
            "grpc_url must be host:port, optionally with grpc://, grpcs://, http:// or https://, "
            f"not '{server.grpc_url}'."
        )
    space_of(settings.workspace)
    if settings.signing.jku and not settings.signing.jku.startswith("https://"):
        raise ConfigError(
            "signing.jku must start with https://, so that nobody can change the keys."
        )
    for key in limits.__struct_fields__:
        if getattr(limits, key) <= 0:
            raise ConfigError(f"limits.{key} must be more than 0.")
    if limits.head_size < 8192:
        raise ConfigError("limits.head_size must be at least 8192.")
    for key in settings.rates.__struct_fields__:
        if getattr(settings.rates, key) < 0:
            raise ConfigError(f"rates.{key} must not be less than 0.")
    for key in ("session", "window", "sockets", "calls", "messages_per_second", "message_size"):
        if getattr(settings.iat, key) <= 0:
            raise ConfigError(f"iat.{key} must be more than 0.")
    if not settings.push.schedule or min(settings.push.schedule) < 0:
        raise ConfigError("push.schedule needs at least one delay, and none may be negative.")
    more_than_0 = ("timeout", "parallel", "per_principal", "per_host", "failures", "probe")
    for key in (*more_than_0, "max_hooks"):
        if getattr(settings.push, key) <= 0:
            raise ConfigError(f"push.{key} must be more than 0.")
    for name, kept in settings.retention.items():
        if kept.keep_tasks <= 0:
            raise ConfigError(f"[retention.{name}]: keep_tasks must be more than 0.")
