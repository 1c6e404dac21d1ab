"""The settings. Flags take precedence over `DRAGOMAN_<SECTION>_<KEY>`, variables over the file, and
the file over the defaults."""

from .agent_credentials import AgentCredentials, TokenExchangeSettings
from .chat import AnyChannelSettings, ChannelSettings
from .cors import Cors
from .files import FileSettings
from .limits import EngineSettings, Limits
from .loading import FILE, IAT_SECRET, NAMED, load
from .policy_rule import PolicyRule
from .rooms import Contact, RoomSettings
from .sections import (
    HostedAgent,
    Iat,
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
from .tracing import Tracing
from .xiaoyi import LinkedAgentSettings, LinkSettings, XiaoYi

__all__ = [
    "FILE",
    "IAT_SECRET",
    "NAMED",
    "AgentCredentials",
    "AnyChannelSettings",
    "ChannelSettings",
    "Contact",
    "Cors",
    "EngineSettings",
    "FileSettings",
    "HostedAgent",
    "Iat",
    "Limits",
    "LinkSettings",
    "LinkedAgentSettings",
    "McpServer",
    "PolicyRule",
    "Push",
    "Rates",
    "Retention",
    "RoomSettings",
    "Server",
    "Settings",
    "Signing",
    "Tls",
    "TokenExchangeSettings",
    "Tracing",
    "UpstreamLimits",
    "XiaoYi",
    "load",
]
