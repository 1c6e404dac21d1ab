"""Encrypts the secrets of webhooks before they reach the store."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

from msgspec.structs import replace

from dragoman.core.errors import BadParams, ConfigError
from dragoman.core.model import Hook
from dragoman.store.seal import Seal, Unopened

SECRETS = ("token", "credentials")
"""The fields of a webhook that are sealed and masked."""
_HIDDEN = "****"
_SHOWN = 4
"""The number of characters of a secret that its owner is shown later."""
_LONG = 12
"""The least length of a secret of which any characters are shown."""


class SecretBox:
    """Seals and opens the secrets of webhooks with a key made from the server's secret."""

    def __init__(self, secret: bytes) -> None:
        self._seal = Seal(secret, "dragoman webhooks at rest")
        self._sign = hmac.digest(secret, b"dragoman webhook signatures", hashlib.sha256)

    def sealed(self, hook: Hook, known: Hook | None = None) -> Hook:
        """Returns the hook as it is stored. A secret that is given masked stays the one of the
        `known` hook, which is stored under the same id. Raises `BadParams` if that is not what was
        masked."""
        shown = self.masked(known) if known is not None else None
        stored: dict[str, str] = {}
        for field in SECRETS:
            secret: str = getattr(hook, field)
            if not _masked(secret):
                stored[field] = self._closed(secret, hook, field)
            elif shown is not None and getattr(shown, field) == secret:
                stored[field] = getattr(known, field)
            else:
                # It would be sent to the receiver as if it were the secret itself.
                raise BadParams("This is a masked value; send the value itself", field=field)
        return replace(hook, **stored)

    def opened(self, hook: Hook) -> Hook:
        """Returns the webhook as it was given. Raises `ConfigError` if it was sealed with another
        key."""
        return replace(
            hook, **{field: self._open(getattr(hook, field), hook, field) for field in SECRETS}
        )

    def masked(self, hook: Hook) -> Hook:
        """Returns a stored webhook as its owner sees it."""
        try:
            hook = self.opened(hook)
        except ConfigError:
            hidden = {field: getattr(hook, field) and _HIDDEN for field in SECRETS}
            return replace(hook, **hidden)
        return replace(hook, **{field: mask(getattr(hook, field)) for field in SECRETS})

    def signing_key(self, hook: Hook) -> bytes:
        """Returns what signs the calls of an opened hook: its token, which the receiver knows, else
        a key that is made from the server's secret and the hook's name."""
        if hook.token.startswith("whsec_"):
            try:
                return base64.b64decode(hook.token.removeprefix("whsec_"), validate=True)
            except binascii.Error:
                return hook.token.encode()
        if hook.token:
            return hook.token.encode()
        return hmac.digest(self._sign, f"{hook.task_id}/{hook.hook_id}".encode(), hashlib.sha256)

    def _closed(self, secret: str, hook: Hook, what: str) -> str:
        if not secret:
            return ""
        return self._seal.seal(secret.encode(), hook.task_id, hook.hook_id, what)

    def _open(self, sealed: str, hook: Hook, what: str) -> str:
        if not sealed:
            return ""
        try:
            return self._seal.open(sealed, hook.task_id, hook.hook_id, what).decode()
        except Unopened:
            raise ConfigError("The webhook's secrets were sealed with another key") from None


def mask(secret: str) -> str:
    """Returns enough of a secret to recognise it, and not enough to use it."""
    if not secret:
        return ""
    return _HIDDEN + (secret[-_SHOWN:] if len(secret) >= _LONG else "")


def _masked(secret: str) -> bool:
    """Returns whether this is what `mask` makes of a secret."""
    return secret.startswith(_HIDDEN) and len(secret) in (len(_HIDDEN), len(_HIDDEN) + _SHOWN)
