"""Tells webhooks what happened: the dialect's words, our proof, one guarded POST."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from urllib.parse import quote

from dragoman.core.errors import BadParams, DragomanError
from dragoman.core.events import Stamped
from dragoman.core.model import Hook, Task
from dragoman.dialects.a2a.push import push, wants_task
from dragoman.engine.webhook_transport import WebhookAnswer
from dragoman.security.outbound.guarded_http import (
    GuardedHttp,
    GuardedReply,
    Unreachable,
    parse,
    safe_field,
)
from dragoman.security.secret_box import SECRETS, SecretBox

LONGEST_ID = 256
NEED_PROOF = frozenset(
    ("concealed", "digest", "dpop", "gnap", "hoba", "mutual", "negotiate", "ntlm", "vapid")
)
"""Schemes that want an answer to a challenge or a proof made for each request, beside SCRAM's: a
secret that is fixed cannot follow their names."""
ANSWER_SIZE = 4096
"""Read of an answer, and shown to nobody: it may come from a place its owner must not see."""
_SCHEME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")  # RFC 9110 §5.6.2: a token


class WebhookSender:
    """Carries deliveries; implements `engine.webhook_transport.WebhookTransport`."""

    def __init__(
        self,
        egress: GuardedHttp,
        vault: SecretBox,
        timeout: float = 15.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._egress = egress
        self._vault = vault
        self._timeout = timeout
        self._clock = clock

    async def check(self, hook: Hook) -> None:
        """Refuses, with `BadParams`, a hook that could never or must never be called."""
        if len(hook.hook_id) > LONGEST_ID:
            raise BadParams(f"An id has at most {LONGEST_ID} characters", field="id")
        if not hook.hook_id.isprintable():
            raise BadParams("An id has no control characters", field="id")
        for field in SECRETS:
            value = getattr(hook, field)
            if value and not safe_field(value):
                raise BadParams("This cannot stand in a header", field=field)
        if not all(map(_SCHEME.fullmatch, hook.schemes)):
            raise BadParams("This is not the name of an authentication scheme", field="scheme")
        if hook.schemes and hook.credentials and not _scheme(hook):
            names = ", ".join(hook.schemes)
            raise BadParams(f"We cannot authenticate with any of: {names}", field="scheme")
        await self._egress.check(hook.url)

    def sealed(self, hook: Hook, known: Hook | None = None) -> Hook:
        """See `SecretBox.sealed`. A masked secret is kept only for the same receiver: a caller that
        may set a webhook but not read its secrets could have them sent elsewhere."""
        if known is not None and self._origin(hook) != self._origin(known):
            known = None
        return self._vault.sealed(hook, known)

    def masked(self, hook: Hook) -> Hook:
        """See `SecretBox.masked`."""
        return self._vault.masked(hook)

    def wants_task(self, hook: Hook) -> bool:
        """Whether the hook's dialect tells whole tasks."""
        return wants_task(hook)

    def host(self, hook: Hook) -> str:
        """Whom a hook calls: hooks of one host fail together."""
        try:
            return parse(hook.url, self._egress.rules).authority
        except DragomanError:
            return ""

    def _origin(self, hook: Hook) -> tuple[str, str]:
        return hook.url.partition(":")[0].lower(), self.host(hook)

    async def deliver(self, hook: Hook, entry: Stamped, task: Task | None) -> WebhookAnswer:
        """One try. Never raises for what the receiver does."""
        try:
            hook = self._vault.opened(hook)
            body, content_type = push(hook, entry, task)
            headers = {"content-type": content_type, **self._proof(hook, entry.seq, body)}
            reply = await self._egress.request(
                "POST",
                hook.url,
                headers=headers,
                body=body,
                seconds=self._timeout,
                max_size=ANSWER_SIZE,
            )
        except Unreachable as exc:
            return WebhookAnswer(error=str(exc))
        except DragomanError as exc:
            return WebhookAnswer(error=f"refused: {exc.message}")
        return WebhookAnswer(
            status=reply.status, retry_after=self._retry_after(reply), size=len(body)
        )

    def _proof(self, hook: Hook, seq: int, body: bytes) -> dict[str, str]:
        headers = {"user-agent": "dragoman"}
        scheme = _scheme(hook)
        if scheme and hook.credentials:
            headers["authorization"] = f"{scheme} {hook.credentials}"
        if hook.token:
            # 0.3 and most SDKs name it with X, a2a-go without (a2a-wire D8).
            headers["x-a2a-notification-token"] = hook.token
            headers["a2a-notification-token"] = hook.token
        # Standard Webhooks: the same id in every attempt, so that a receiver can tell a repeat.
        id, at = webhook_id(hook, seq), str(int(self._clock()))
        signature = signed(self._vault.signing_key(hook), id, at, body)
        return headers | {
            "webhook-id": id,
            "webhook-timestamp": at,
            "webhook-signature": f"v1,{signature}",
        }

    def _retry_after(self, reply: GuardedReply) -> float | None:
        """Seconds the receiver asks us to stay away (RFC 9110 §10.2.3)."""
        given = reply.headers.get("retry-after", "").strip()
        if given.isascii() and given.isdigit():
            return float(given[:9])
        try:
            return parsedate_to_datetime(given).timestamp() - self._clock() if given else None
        except (ValueError, OverflowError):
            return None

    async def close(self) -> None:
        """Lets go of connections."""
        await self._egress.close()


def _scheme(hook: Hook) -> str:
    """The first of its schemes that we can do: its name, then the credentials. Else nothing."""
    for scheme in hook.schemes:
        name = scheme.lower()
        if name not in NEED_PROOF and not name.startswith("scram-"):
            return scheme
    return ""


def webhook_id(hook: Hook, seq: int) -> str:
    """Names a delivery. Callers choose hook ids, so the task's id keeps two of them apart."""
    words = (hook.hook_id,) if hook.hook_id == hook.task_id else (hook.hook_id, hook.task_id)
    return ".".join((*(quote(word, safe="-_~") for word in words), str(seq)))


def signed(key: bytes, id: str, at: str, body: bytes) -> str:
    """The signature of Standard Webhooks, version 1."""
    content = b".".join((id.encode(), at.encode(), body))
    return base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()
