"""The metadata, the certificate and the trailers of a gRPC call."""

from __future__ import annotations

from collections.abc import Iterable

from dragoman.security.tls import name_in

from ..driver import Exchange
from .builtin_services import Servicer

Trailers = tuple[tuple[str, str | bytes], ...]


def headers_in(metadata: Iterable[tuple[str, str | bytes]]) -> dict[str, str]:
    """Returns metadata as headers. Repeated values are joined by commas, binary ones left out."""
    headers: dict[str, str] = {}
    for name, value in metadata:
        if isinstance(value, str):
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def certificate_name(servicer: Servicer) -> str:
    """Returns the name in the client's verified certificate, or an empty text without one."""
    shown = servicer.auth_context()
    if "x509_common_name" not in shown and "x509_subject_alternative_name" not in shown:
        return ""
    names = [each.decode() for each in shown.get("x509_subject_alternative_name", ())]
    subject = next(iter(shown.get("x509_common_name", ())), b"").decode()
    return name_in(subject, tuple(names))


def trailers_of(exchange: Exchange, place: str = "") -> Trailers:
    """Returns the trailers with the active extensions and the position of the last event."""
    found: list[tuple[str, str | bytes]] = []
    if exchange.echo:
        found.append((exchange.session.extensions_header, exchange.echo))
    if place:
        found.append(("last-event-id", place))
    return tuple(found)
