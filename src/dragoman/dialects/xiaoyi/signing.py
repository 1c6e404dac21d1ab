"""The signature of a handshake: `x-sign` is `Base64(HMAC-SHA256(SK, x-ts))`.

The access key and the agent id are not part of the signed text, so a server must not accept the
same signature twice, and must know which agents an access key may claim.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping

ACCESS_KEY, SIGN, TIMESTAMP, AGENT_ID = "x-access-key", "x-sign", "x-ts", "x-agent-id"
"""The headers of a handshake. Their names are compared without regard to case."""
EXTENSIONS = "dragoman-link"
"""Our own header, in which an agent lists what it understands beyond the source document. The
frames of the source document have no place for that, and agents of others run a request that they
do not know as if it were a message."""
RESUBSCRIBE, HOPS, FILE_BYTES = "resubscribe", "hops", "file-bytes"
"""What it may list: the method `tasks/resubscribe`, the member `hops` of a request, and the content
of files, where others read only their address."""


def sign(secret_key: str, timestamp: str) -> str:
    """Returns the signature of a timestamp, which is a decimal number of milliseconds."""
    digest = hmac.new(secret_key.encode(), timestamp.encode(), hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


def verify(secret_key: str, timestamp: str, signature: str) -> bool:
    """Returns whether a signature is that of the timestamp. The comparison takes the same time
    wherever the two differ."""
    expected = sign(secret_key, timestamp)
    return hmac.compare_digest(expected.encode(), signature.encode())


def handshake_headers(
    access_key: str, secret_key: str, agent_id: str, now_ms: int
) -> dict[str, str]:
    """Returns the headers with which an agent dials a server."""
    stamp = str(now_ms)
    return {
        ACCESS_KEY: access_key,
        SIGN: sign(secret_key, stamp),
        TIMESTAMP: stamp,
        AGENT_ID: agent_id,
        EXTENSIONS: f"{RESUBSCRIBE}, {HOPS}, {FILE_BYTES}",
    }


def extensions_in(headers: Mapping[str, str]) -> frozenset[str]:
    """Returns what an agent understands beyond the source document."""
    return frozenset(each.strip() for each in headers.get(EXTENSIONS, "").split(","))
