"""`[channels.NAME]`: the chat services that agents can live in, one struct for each kind."""

from __future__ import annotations

from dragoman.core.auth_schemes import Secret

from .rooms import RoomSettings


class ChannelSettings(
    RoomSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"
):
    """What channels of all kinds have."""

    messages_per_second: float | None = None
    """How many messages per second are sent in the long run; by default what the service allows."""


class LoopbackSettings(ChannelSettings, frozen=True, kw_only=True, tag="loopback"):
    """`kind = "loopback"`: rooms on this machine, for trying it out."""

    user: str = ""
    """The name under which we are known in the rooms; by default that of the user of this machine,
    or a new one if it is taken."""
    hub: str = "local"
    """Members of the same hub meet."""
    shared: bool = True
    """Whether other processes of the same user can join the hub, over a socket."""
    person: bool = False
    """Whether we say that a person speaks here, and not a program."""


class StdioSettings(ChannelSettings, frozen=True, kw_only=True, tag="stdio"):
    """`kind = "stdio"`: one JSON object per line on standard input and output."""

    user: str = "agent"
    """The name under which we are known."""


class IrcSettings(ChannelSettings, frozen=True, kw_only=True, tag="irc"):
    """`kind = "irc"`: channels of an IRC network."""

    host: str
    port: int = 0
    """By default 6697 with TLS and 6667 without."""
    tls: bool = True
    nick: str = "dragoman"
    user: str = ""
    """The account for SASL; by default the nick."""
    password: Secret | None = None
    """The password of the account; without it, the variable DRAGOMAN_IRC_PASSWORD."""
    login: str = "sasl"
    """How the password is used: `sasl`, `nickserv` or `server`."""


class MatrixSettings(ChannelSettings, frozen=True, kw_only=True, tag="matrix"):
    """`kind = "matrix"`: rooms of a Matrix homeserver."""

    homeserver: str
    """The address of the homeserver, such as `https://matrix.example.org`."""
    user: str = ""
    """The user id, such as `@bot:example.org`; not needed with a token."""
    token: Secret | None = None
    """An access token; without it, the variable DRAGOMAN_MATRIX_TOKEN."""
    password: Secret | None = None
    """The password, if there is no token; without it, the variable DRAGOMAN_MATRIX_PASSWORD."""
    accept_invites: bool = False
    """Whether rooms to which we are invited are joined. Then all rooms of the account are heard."""
    notices: bool = False
    """Whether what we say is marked as said by a program (`m.notice`), which many programs do not
    answer."""


class TelegramSettings(ChannelSettings, frozen=True, kw_only=True, tag="telegram"):
    """`kind = "telegram"`: chats of a Telegram bot."""

    token: Secret | None = None
    """The token of the bot; without it, the variable DRAGOMAN_TELEGRAM_TOKEN."""
    api: str = "https://api.telegram.org"
    """The Bot API server."""


class DiscordSettings(ChannelSettings, frozen=True, kw_only=True, tag="discord"):
    """`kind = "discord"`: channels of a Discord server."""

    token: Secret | None = None
    """The token of the bot; without it, the variable DRAGOMAN_DISCORD_TOKEN."""
    api: str = "https://discord.com/api/v10"
    """The route base of the REST API."""
    gateway: str = ""
    """The address of the gateway, if it is not that of Discord."""


AnyChannelSettings = (
    LoopbackSettings
    | StdioSettings
    | IrcSettings
    | MatrixSettings
    | TelegramSettings
    | DiscordSettings
)
