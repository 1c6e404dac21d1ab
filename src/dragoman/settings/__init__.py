"""The settings. Flags take precedence over `DRAGOMAN_<SECTION>_<KEY>`, variables over the file, and
the file over the defaults."""

from .files import FileSettings
from .loading import FILE, IAT_SECRET, NAMED, load
from .policy_rule import PolicyRule
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
from .xiaoyi import LinkSettings, XiaoYi

__all__ = [
    "FILE",
    "IAT_SECRET",
    "NAMED",
    "AgentCredentials",
    "EngineSettings",
    "FileSettings",
    "HostedAgent",
    "Iat",
    "Limits",
    "LinkSettings",
    "McpServer",
    "PolicyRule",
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
