"""`dragoman xiaoyi link`: an agent that dials XiaoYi."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from dragoman import settings as config
from dragoman.core.auth_schemes import Secret
from dragoman.server.agent_loader import load_agent
from dragoman.server.xiaoyi.agent_link import run_link

from .server_flags import ConfigFile, LogFormat, LogLevel, StoreFlag, set_up_json_log

_AccessKeyFile = Annotated[
    Path | None, Parameter(help="File with the access key. [default: DRAGOMAN_XIAOYI_AK]")
]
_SecretKeyFile = Annotated[
    Path | None, Parameter(help="File with the secret key. [default: DRAGOMAN_XIAOYI_SK]")
]


def link(
    file: Annotated[str, Parameter(help="Python file with the agent, or FILE:NAME.")],
    /,
    *,
    agent_id: Annotated[str, Parameter(help="The id of the agent on the platform.")],
    server: Annotated[
        tuple[str, ...],
        Parameter(
            help="Server to dial: ws:// or wss://; repeatable. [default: those of the platform]",
            negative="",
        ),
    ] = (),
    access_key_file: _AccessKeyFile = None,
    secret_key_file: _SecretKeyFile = None,
    pin: Annotated[
        str, Parameter(help="Key of a server known by its IP address: sha256/BASE64.")
    ] = "",
    insecure_backup_without_tls_verification: Annotated[
        bool,
        Parameter(
            help="Dial the backup server without verifying who it is: others may read along.",
            negative="",
        ),
    ] = False,
    media: Annotated[
        Literal["download", "lazy"],
        Parameter(help="Download the files that phones send before the skill runs, or do not."),
    ] = "download",
    media_text: Annotated[
        int, Parameter(help="Add text files up to this size to the text; 0: none.")
    ] = 0,
    store: StoreFlag = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    config_file: ConfigFile = None,
) -> None:
    """Put the agent in a Python file on the phone: dial XiaoYi, and answer over that link.

    No port is opened. The exit code is 77 if the server refuses the keys or the agent id, and 69 if
    no server could be reached for 50 tries.
    """
    from dragoman.xiaoyi.outbound_link import LinkEnded

    settings = config.load(
        {"store": store, "log_level": log_level, "log_format": log_format}, os.environ, config_file
    )
    set_up_json_log(settings)
    found = config.LinkSettings(
        agent_id=agent_id,
        access_key=Secret(file=str(access_key_file)) if access_key_file else None,
        secret_key=Secret(file=str(secret_key_file)) if secret_key_file else None,
        servers=server,
        pin=pin,
        backup_without_tls_verification=insecure_backup_without_tls_verification,
        media=media,
        media_text=media_text,
    )
    try:
        run_link(load_agent(file), settings, found)
    except LinkEnded as exc:
        print(f"dragoman: {exc.message}", file=sys.stderr)
        sys.exit(exc.exit_code)
