"""TLS for both ports, from `[tls]`: certificate, key, and the CA whose clients are let in.

The files are read and matched before anything listens, so a wrong one is an error of the start and
not of the first connection.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from msgspec import Struct

from dragoman.core.errors import ConfigError
from dragoman.settings import Tls


class Pem(Struct, frozen=True, kw_only=True):
    """The certificate, key and CA as bytes, as gRPC takes them."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None
    """The CA of clients. If it is given, only clients with a certificate of this CA are let in."""


def check(tls: Tls) -> None:
    """Raises `ConfigError` if these files cannot serve TLS."""
    if bool(tls.cert) != bool(tls.key):
        raise ConfigError("[tls] needs both cert and key.")
    if tls.client_ca and not tls.cert:
        raise ConfigError("[tls] client_ca needs cert and key too.")
    if not tls.cert:
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for path in filter(None, (tls.cert, tls.key, tls.client_ca)):
        if not Path(path).is_file():
            raise ConfigError(f"[tls]: there is no file {path}.")
    try:
        context.load_cert_chain(tls.cert, tls.key, password=_locked)
        if tls.client_ca:
            context.load_verify_locations(tls.client_ca)
    except (ssl.SSLError, OSError) as exc:
        why = getattr(exc, "reason", None) or exc.strerror or "not PEM"
        raise ConfigError(f"[tls]: certificate, key or CA cannot be used: {why}.") from None


def _locked() -> str:
    # Granian ends the whole process over a key it cannot unlock, and it can unlock but few.
    raise ConfigError("[tls]: the key is locked with a password; give one that only we may read.")


def granian_options(tls: Tls) -> dict[str, Any]:
    """Returns the `ssl_*` options of Granian, which are empty without TLS."""
    if not tls.cert:
        return {}
    from granian.constants import SSLProtocols

    return {
        "ssl_cert": Path(tls.cert),
        "ssl_key": Path(tls.key),
        "ssl_protocol_min": {"1.2": SSLProtocols.tls12, "1.3": SSLProtocols.tls13}[tls.minimum],
        "ssl_ca": Path(tls.client_ca) if tls.client_ca else None,
        "ssl_client_verify": bool(tls.client_ca),
    }


def pem(tls: Tls) -> Pem | None:
    """Returns the files as bytes, or None without TLS."""
    if not tls.cert:
        return None
    return Pem(
        certificate=Path(tls.cert).read_bytes(),
        key=Path(tls.key).read_bytes(),
        client_ca=Path(tls.client_ca).read_bytes() if tls.client_ca else None,
    )


def name_in(subject: str, alternatives: tuple[str, ...]) -> str:
    """Returns the one name of a verified client certificate: its first alternative name, else its
    subject.

    RFC 9525: alternative names are what a certificate vouches for; the subject is for people.
    """
    return next(filter(None, alternatives), subject)
