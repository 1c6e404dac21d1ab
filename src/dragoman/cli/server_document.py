"""Reads documents for operators from a running server."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from cyclopts import Parameter

from dragoman.client.auth import CardAuth
from dragoman.client.connect import read_document
from dragoman.core.errors import PeerMisbehaved

from .session_options import completed
from .waiting import Wait

T = TypeVar("T")

Authority = Annotated[
    Path | None,
    Parameter(name="--ca", help="File (PEM) with the certificate authority to trust."),
]
AllowPrivate = Annotated[
    bool, Parameter(name="--allow-private", help="Allow addresses in private networks.")
]


def read_from_server(
    url: str, path: str, kind: type[T], what: str, *, ca: Path | None, allow_private: bool
) -> tuple[bytes, T]:
    """Returns a document of a server, as it came and decoded. `what` says in words what it is."""
    address = completed(url).rstrip("/") + path
    body = asyncio.run(_read(address, ca, allow_private=allow_private))
    try:
        return body, msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError:
        raise PeerMisbehaved(f"This is not {what}: {address}") from None


async def _read(address: str, ca: Path | None, *, allow_private: bool) -> bytes:
    async with (
        Wait(address, document=True).limited(),
        CardAuth.of(os.environ, allow_private=allow_private) as auth,
    ):
        return await read_document(address, auth=auth, ca=ca or "", allow_private=allow_private)
