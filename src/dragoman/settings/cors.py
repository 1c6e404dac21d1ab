"""`[cors]`: the web pages of other origins that may call us from a browser."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct


class Cors(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[cors]`: cross-origin requests of browsers (Fetch §3.2)."""

    origins: tuple[Annotated[str, Meta(pattern=r"^(\*|https?://[^/\s]+)$")], ...] = ()
    """The origins of the pages, such as `https://shop.example.com`; `*` means any. Empty: only
    pages of our own."""
    headers: tuple[str, ...] = ()
    """Headers that a page may send, beside those of the dialects and of authentication."""
    credentials: bool = False
    """Whether browsers may send cookies and client certificates along."""
    max_age: Annotated[int, Meta(ge=0)] = 600
    """The seconds for which a browser remembers what it may do."""
