"""`[files]`: the files that the server offers for download, and those that it downloads."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

MIB = 1024 * 1024
_Size = Annotated[int, Meta(ge=1)]
_Seconds = Annotated[float, Meta(gt=0)]


class FileSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[files]`: files by reference. Sizes in bytes, times in seconds."""

    folder: str = ""
    """The folder in which files are kept. Empty: beside the store; for a store in memory, a
    temporary one."""
    expires: _Seconds = 86_400.0
    """How long the address of a file is valid at most; afterwards the file is deleted. It is never
    longer than tasks are kept."""
    max_size: _Size = 256 * MIB
    """The size of one file."""
    max_total: _Size = 4096 * MIB
    """The size of all files together."""
    downloads: _Size = 100
    """Concurrent downloads from us; further ones are refused."""
    fetch_time: _Seconds = 300.0
    """How long the download of a linked file may take."""
    types: tuple[str, ...] = ()
    """If not empty, only linked files of these media types are downloaded, such as `image/*`."""
