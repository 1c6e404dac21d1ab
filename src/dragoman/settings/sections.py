"""The sections of the settings as structs, with their defaults."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from dragoman.core.auth_schemes import Scheme, Secret
from dragoman.core.errors import ConfigError
from dragoman.workspace import Space

from .agent_credentials import AgentCredentials
from .chat import AnyChannelSettings
from .cors import Cors
from .files import FileSettings
from .limits import Limits
from .policy_rule import PolicyRule
from .tracing import Tracing
from .xiaoyi import LinkSettings, XiaoYi


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
    grpc_listed: bool = True
    """Whether the card lists gRPC, if it is served. Some clients refuse a card that names another
    origin than its own."""
    mcp: bool | None = None
    """Whether to offer the skills as MCP tools at /mcp; None: if the `mcp` package is
    installed."""
    store: str = "sqlite:///dragoman.db"
    bell: str = ""
    """How processes on one PostgreSQL tell each other of changes: nats://HOST, the URL of a direct
    connection to PostgreSQL, or `off`; empty: through the store's own database."""
    audit: str = ""
    """The file in which every call is recorded: the caller, the agent, the operation and how it
    ended. Empty: none."""
    public_url: str = ""
    """The address of the agent on the card. Empty: the address that the caller used."""
    register: str = ""
    """The address of a gateway with which the agents are registered while they are served. The
    token is $DRAGOMAN_REGISTRY_TOKEN."""
    hosts: tuple[str, ...] = ()
    """Host names that callers may use, in addition to loopback, the bound and the public host;
    `.example.com` matches all names under it, `*` any name."""
    allow_private: bool = False
    """Whether addresses from callers may be in private networks."""
    insecure: bool = False
    """Whether to listen on the network without authentication."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"
    """`json` writes one object a line; `text` is for people on a terminal, and otherwise one line
    of `key=value` fields."""
    reload: bool = False
    workers: int = 1
    """The number of processes that serve the port. They share the store, so it must be one that
    several processes can use."""
    drain: float = 1.0
    """Seconds for which a server that is told to stop (SIGTERM) still answers, so that its callers
    go to others: it is not ready, and each answer ends its connection."""
    watchdog: float = 0.0
    """Seconds after which a blocked event loop ends the process (exit code 70); 0: never."""
    card_access: str = "public"
    """The callers that may read the card: public, authenticated, or a list of address ranges."""
    metrics_access: str = "public"
    """The callers that may read /metrics, like card_access."""
    status_access: str = ""
    """The callers that may read /gateway/status, like card_access; empty: as metrics_access."""
    interfaces: tuple[str, ...] = ("JSONRPC", "HTTP+JSON")
    """The bindings that are served and listed on the card, in this order, or single versions of
    them (`JSONRPC/1.0`). `GRPC` enables gRPC, which is off by default: strict clients refuse a
    whole card because of one interface that is not http(s) on the card's own origin."""
    caller_headers: tuple[str, ...] = ()
    """The request headers that skills see in `turn.caller.headers`; those with credentials cannot
    be chosen."""
    anonymous: tuple[str, ...] | None = None
    """Operations and skills that callers without credentials may use; None: those that the code
    names."""
    card_secrets: bool = False
    """Whether the card may contain values that look like secrets."""
    trusted_proxies: tuple[str, ...] = ()
    """Address ranges of proxies whose headers about the caller and the host are trusted."""
    forwarded: Literal["x-forwarded-for", "forwarded"] = "x-forwarded-for"
    """The headers of these proxies: X-Forwarded-For, -Proto and -Host, or Forwarded (RFC 7239)."""


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
    """Of these, concurrent requests to one host, so that receivers that do not respond delay no
    others."""
    failures: int = 10
    """Consecutive failures of a principal's webhooks at a host after which its circuit breaker
    opens."""
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
    offline: float = 600.0
    """How long a gateway still lists a sub-agent that has left."""


_Seconds = Annotated[float, Meta(gt=0)]
_Count = Annotated[int, Meta(ge=1)]


class UpstreamLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part of `[agents.NAME]` that says how an agent elsewhere is called: at which addresses,
    how often at the same time, and what happens if it cannot be reached."""

    url: str = ""
    """The address of an agent elsewhere, in any dialect that `connect` takes."""
    urls: tuple[str, ...] = ()
    """More addresses of the same agent. A new task goes to the one that has the least to do."""
    sticky: Literal["task", "context"] = "task"
    """A task stays at its address; with `context` a whole conversation does."""
    fallbacks: tuple[str, ...] = ()
    """Other agents of this file, with a url each, which are asked in this order when none of the
    addresses can be reached."""
    timeout: float = 3600.0
    """The seconds that it may work on a task; time in which it waits for the caller is free."""
    connect_timeout: _Seconds = 5.0
    """The seconds in which a connection must be open."""
    answer_timeout: _Seconds = 300.0
    """The seconds until the first event of a new task must arrive, if the agent has streams."""
    idle_timeout: _Seconds = 60.0
    """The seconds after which a silent stream counts as broken; the task is followed again."""
    concurrency: _Count = 200
    """The tasks that each address works on at the same time. A task that waits for its caller does
    not count."""
    queue: Annotated[int, Meta(ge=0)] = 500
    """The calls that wait for a place; all others are refused, and may be repeated later."""
    queue_timeout: _Seconds = 30.0
    """The seconds that a call waits for a place."""
    failures: _Count = 5
    """The failures in a row after which an address is not called any more."""
    probe: _Seconds = 10.0
    """The seconds after which such an address gets one call, whose outcome decides."""
    health: Annotated[float, Meta(ge=0)] = 30.0
    """The seconds between two health checks of an address that nobody calls; 0: none."""
    files: Literal["auto", "value", "reference"] = "auto"
    """How the agent is sent files: by value, by reference, or as they come where it takes that."""
    result_files: Literal["auto", "value", "reference"] = "auto"
    """How callers are sent the files that it makes."""
    inline_size: Annotated[int, Meta(ge=0)] = 0
    """With `auto`, the bytes of a message's files above which they are passed by reference; 0: as
    many as the dialect takes."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """All addresses, each once."""
        return tuple(dict.fromkeys(filter(None, (self.url, *self.urls))))


class HostedAgent(UpstreamLimits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[agents.NAME]`: an agent that is served when `dragoman serve` is given no file, and by
    `dragoman gateway`: one in a file here, or one at an address elsewhere."""

    file: str = ""
    """Python file with the agent, or FILE:NAME; relative to the folder of the settings file."""
    dialect: str = ""
    """The only dialect in which it is called; empty: the best one on its card."""
    secret: Secret | None = None
    """The secret that we share with it (IAT)."""
    agent_id: str = ""
    """The name for which messages to it are signed with the secret; empty: NAME."""
    auth: AgentCredentials | None = None
    ca: str = ""
    """The authorities that its certificate is verified by, instead of the system's."""
    origins: tuple[str, ...] = ()
    """Other origins that its card may name as its addresses."""
    card: str = ""
    """The address of its card, if that is not found at the url (a2a+grpc://)."""
    card_signature: Literal["require", "if-present", "ignore"] = "if-present"
    """Whether its card must be signed; `if-present` verifies a signature where `card_keys` has the
    keys for it."""
    card_keys: tuple[str, ...] = ()
    """Keys that may sign its card: files (JWK, key set, PEM), or addresses of key sets."""
    repeat: bool = False
    """Whether a message may be sent to it again although the first may have arrived."""
    patience: float = 120.0
    """The seconds for which a task waits for it while it cannot be reached."""
    reply_within: float = 2.0
    """The seconds after which a caller gets a task although it has not answered. Until then a
    direct reply stays one, and an error too."""
    refresh: float = 60.0
    """The seconds after which its card is read again."""
    host: str = ""
    """A host name of its own: there it is served at `/`. Such a host need not stand in hosts."""
    tenant: str = ""
    """The tenant whose calls it answers, wherever they come. Callers still need the right to it."""
    grpc_port: int | None = None
    """A gRPC port of its own, beside the one that agents share: there callers of 0.3, which has no
    tenants, need not name it. Setting it enables gRPC."""
    grpc_url: str = ""
    """The address of that port on the card, like `server.grpc_url`."""
    xiaoyi: LinkSettings | None = None
    """The link on which it dials XiaoYi; None: it has none."""
    places: dict[str, str] = {}
    """Filled in by `load`: where the section (``) and each of its keys stand, as FILE:LINE."""

    def error(self, name: str, key: str, what: str) -> ConfigError:
        """Returns the error for a value of this section, which names its line."""
        place = self.places.get(key) or self.places.get("", "")
        what = f"[agents.{name}] {key}: {what}" if key else f"[agents.{name}]: {what}"
        return ConfigError(f"{place}: {what}" if place else what)


LOCAL = frozenset(("file", "host", "tenant", "grpc_port", "grpc_url", "xiaoyi", "places"))
"""The keys of `[agents.NAME]` that an agent in a file has; all others need a url."""


class McpServer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[mcp.NAME]`: an MCP server whose tools skills call with `turn.mcp("NAME")`."""

    command: tuple[str, ...] = ()
    """The program that is started and talked to over its standard input and output, with its
    arguments."""
    env: dict[str, str | Secret] = {}
    """Variables for the program; `{env = "X"}` or `{file = "path"}` for a secret. Of our own
    variables it gets only a few, such as PATH and HOME."""
    url: str = ""
    """In place of a program: the address of a server that speaks streamable HTTP."""
    secret: Secret | None = None
    """The bearer token for that address."""
    headers: dict[str, str | Secret] = {}
    """Headers of every request to that address."""
    timeout: float = 60.0
    """How long a call of a tool may take, and the start of the server, in seconds."""
    max_size: int = 4 * 1024 * 1024
    """The size of one message of the server, in bytes."""


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All sections of the settings."""

    server: Server = Server()
    limits: Limits = Limits()
    push: Push = Push()
    cors: Cors = Cors()
    tls: Tls = Tls()
    rates: Rates = Rates()
    signing: Signing = Signing()
    iat: Iat = Iat()
    xiaoyi: XiaoYi = XiaoYi()
    workspace: Space = Space()
    files: FileSettings = FileSettings()
    tracing: Tracing = Tracing()
    policy: tuple[PolicyRule, ...] = ()
    """`[[policy]]`: what callers may do. Without any rule, everything that is not refused
    otherwise."""
    auth: dict[str, Scheme] = {}
    """`[auth.NAME] type = ...`: the authentication schemes; a caller needs to satisfy one."""
    retention: dict[str, Retention] = {}
    agents: dict[str, HostedAgent] = {}
    """`[agents.NAME]` with `file` or `url`: the agents that are served, at /agents/NAME if there
    are several."""
    skills: dict[str, tuple[str, ...]] = {}
    """`[skills] NAME = ["agent", ...]`: the agents that answer at /agents/-/skills/NAME, whoever
    registered them. Without a list, those of the most trusted source that has the skill."""
    mcp: dict[str, McpServer] = {}
    """`[mcp.NAME]` with `command` or `url`: the MCP servers that skills may call."""
    channels: dict[str, AnyChannelSettings] = {}
    """`[channels.NAME] kind = ...`: the chat services that agents live in."""
