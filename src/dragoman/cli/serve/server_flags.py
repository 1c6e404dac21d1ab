"""The flags that the commands which start a server have in common."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

if TYPE_CHECKING:  # help about a server loads no settings
    from dragoman.settings import Settings

Host = Annotated[str | None, Parameter(help="Address to listen on. [default: 127.0.0.1]")]
Port = Annotated[
    int | None, Parameter(alias="-p", help="HTTP port, 0 for a free one. [default: 8420]")
]
Grpc = Annotated[
    bool | None,
    Parameter(help="Speak gRPC too, on its own port. [default: no]", negative="--no-grpc"),
]
GrpcPort = Annotated[
    int | None,
    Parameter(help="Speak gRPC on this port, 0 for a free one. [default: 8421, with --grpc]"),
]
StoreFlag = Annotated[
    str | None,
    Parameter(
        help="Where tasks live: sqlite:///PATH, postgresql://HOST/DB, file:///DIR or memory:. "
        "[default: sqlite:///dragoman.db]"
    ),
]
Insecure = Annotated[
    bool | None, Parameter(help="Listen to the network although no authentication is set up.")
]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"] | None,
    Parameter(alias="-l", help="How much to log. [default: info]"),
]
LogFormat = Annotated[
    Literal["text", "json"] | None,
    Parameter(help="How to log: `json` is one object a line. [default: text]"),
]
Workers = Annotated[
    int | None,
    Parameter(help="Processes that serve the port; they share the store. [default: 1]"),
]
ConfigFile = Annotated[
    Path | None, Parameter(name="--config", help="Settings file. [default: dragoman.toml]")
]


def set_up_json_log(settings: Settings) -> None:
    """Sets up the log before agents are loaded, if it is one of JSON, so that whatever they print
    while they are imported, and an error that ends the start, is an object too."""
    if settings.server.log_format == "json":
        from dragoman.observability.log import set_up

        set_up(settings.server.log_level, settings.server.log_format)
