"""Verifies a server that is identified by its IP address, for which no authority issues a
certificate.

Such a server is identified by its public key. The key is compared before anything is sent. The
connection itself then trusts only the certificate that had this key.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import ssl

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from dragoman.core.errors import ConfigError, PeerUnreachable

PREFIX = "sha256/"
SECONDS = 10.0


def pin_of(certificate: bytes) -> str:
    """Returns the pin of a certificate (DER): `sha256/` and the Base64 of the digest of its public
    key."""
    key = x509.load_der_x509_certificate(certificate).public_key()
    digest = hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
    return PREFIX + base64.b64encode(digest.digest()).decode()


def check_pin(pin: str) -> None:
    """Raises `ConfigError` for an invalid pin."""
    try:
        good = pin.startswith(PREFIX) and len(base64.b64decode(pin.removeprefix(PREFIX))) == 32
    except ValueError:
        good = False
    if not good:
        raise ConfigError("A pin is sha256/ and the Base64 of the SHA-256 of a public key (SPKI).")


async def pinned_context(host: str, port: int, pin: str) -> ssl.SSLContext:
    """Returns the TLS context that trusts the server at this address, if it has the pinned key.
    Raises `PeerUnreachable` if it has another one."""
    try:
        async with asyncio.timeout(SECONDS):
            # Nothing is sent over this connection: it only shows the certificate.
            _, writer = await asyncio.open_connection(host, port, ssl=unverified())
    except (OSError, TimeoutError, ssl.SSLError) as exc:
        raise PeerUnreachable(f"{host}:{port} cannot be reached: {exc}") from exc
    try:
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        writer.close()
    if found is None or pin_of(found) != pin:
        raise PeerUnreachable(f"{host}:{port} does not have the pinned key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # it is identified by its key, not by a name
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=found)
    return context


def unverified() -> ssl.SSLContext:
    """Returns a TLS context that trusts every server: to read a certificate, and for the backup
    server of the platform if the operator insists."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
