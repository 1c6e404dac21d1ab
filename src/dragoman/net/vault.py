"""Secrets at rest: what proves us to a receiver is sealed before it reaches the store."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

from msgspec.structs import replace

from ..errors import ConfigError
from ..model import Hook
from ..store.seal import Seal, Unopened

_SHOWN = 4
"""Characters of a secret that its owner is shown later,"""
_LONG = 12
"""if it is at least this long."""


class Vault:
    """Seals and opens the secrets of webhooks with a key made from the server's secret."""

    def __init__(self, secret: bytes) -> None:
        self._seal = Seal(secret, "dragoman webhooks at rest")
        self._sign = hmac.digest(secret, b"dragoman webhook signatures", hashlib.sha256)

    def sealed(self, hook: Hook) -> Hook:
        """The hook as it is stored."""
        return replace(
            hook,
            token=self._closed(hook.token, hook, "token"),
            credentials=self._closed(hook.credentials, hook, "credentials"),
        )

    def opened(self, hook: Hook) -> Hook:
        """The hook as it was given; `ConfigError` if it was sealed with another key."""
        return replace(
            hook,
            token=self._open(hook.token, hook, "token"),
            credentials=self._open(hook.credentials, hook, "credentials"),
        )

    def masked(self, hook: Hook) -> Hook:
        """A stored hook as its owner is shown it."""
        try:
            hook = self.opened(hook)
        except ConfigError:
            hidden = {field: getattr(hook, field) and "****" for field in ("token", "credentials")}
            return replace(hook, **hidden)
        return replace(hook, token=mask(hook.token), credentials=mask(hook.credentials))

    def signing_key(self, hook: Hook) -> bytes:
        """What signs the calls of an opened hook: its token, which the receiver knows, else a key
        that is made from the server's secret and the hook's name."""
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
        return self._seal.closed(secret.encode(), hook.task_id, hook.hook_id, what)

    def _open(self, sealed: str, hook: Hook, what: str) -> str:
        if not sealed:
            return ""
        try:
            return self._seal.opened(sealed, hook.task_id, hook.hook_id, what).decode()
        except Unopened:
            raise ConfigError("The webhook's secrets were sealed with another key") from None


def mask(secret: str) -> str:
    """Enough of a secret to recognise it, not enough to use it."""
    if not secret:
        return ""
    return "****" + (secret[-_SHOWN:] if len(secret) >= _LONG else "")
