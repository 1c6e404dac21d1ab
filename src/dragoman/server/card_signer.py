"""Creates the signer of the cards of a server."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from dragoman.settings import Signing

if TYPE_CHECKING:
    from dragoman.security.card_signing import Signer


def card_signer(signing: Signing) -> Signer | None:
    """Returns the signer, or None if there are no keys. The cryptography is loaded only if it is
    needed, because most servers sign nothing."""
    if not signing.keys:
        return None
    from dragoman.security.card_signing import Signer

    return Signer(signing, time.time())
