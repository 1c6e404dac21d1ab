"""The settings. Flags take precedence over `DRAGOMAN_<SECTION>_<KEY>`, variables over the file, and
the file over the defaults."""

from .links import LinkSettings, XiaoYi
from .loading import FILE, IAT_SECRET, NAMED, load
from .sections import (
    AgentCredentials,
    EngineSettings,
    HostedAgent,
    Iat,
    Limits,
    McpServer,
    Push,
    Rates,
    Retention,
    Server,
    Settings,
    Signing,
    Tls,
    UpstreamLimits,
)

__all__ = [
    "FILE",
    "IAT_SECRET",
    "NAMED",
    "AgentCredentials",
    "EngineSettings",
    "HostedAgent",
    "Iat",
    "Limits",
    "LinkSettings",
    "McpServer",
    "Push",
    "Rates",
    "Retention",
    "Server",
    "Settings",
    "Signing",
    "Tls",
    "UpstreamLimits",
    "XiaoYi",
    "load",
]
