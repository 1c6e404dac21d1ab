"""Sends webhooks: an event encoded by the dialect, with our signature, in one guarded POST."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import time
from collections.abc import Callable, Mapping
from urllib.parse import quote

from dragoman import spans
from dragoman.core.errors import BadParams, DragomanError
from dragoman.core.events import Stamped
from dragoman.core.ids import check_id
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

NO_HEADERS: Mapping[str, str] = {}
NEED_PROOF = frozenset(
    ("concealed", "digest", "dpop", "gnap", "hoba", "mutual", "negotiate", "ntlm", "vapid")
)
"""Authentication schemes that compute a proof for each request, beside those of SCRAM. A fixed
secret cannot satisfy them."""
ANSWER_SIZE = 4096
"""The bytes of a response that are read. Nobody is shown them: they may come from a place that the
webhook's owner must not see."""
_SCHEME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")  # RFC 9110 §5.6.2: a token


class WebhookSender:
    """Sends deliveries over HTTP; implements `engine.webhook_transport.WebhookTransport`."""

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
        """Raises `BadParams` for a hook that cannot be called or must not be called."""
        check_id(hook.hook_id, "id")
        for field in SECRETS:
            value = getattr(hook, field)
            if value and not safe_field(value):
                raise BadParams("This is not valid in a header", field=field)
        if not all(map(_SCHEME.fullmatch, hook.schemes)):
            raise BadParams("This is not the name of an authentication scheme", field="scheme")
        if hook.schemes and hook.credentials and not _scheme(hook):
            names = ", ".join(hook.schemes)
            raise BadParams(f"We cannot authenticate with any of: {names}", field="scheme")
        await self._egress.check(hook.url)

    def sealed(self, hook: Hook, known: Hook | None = None) -> Hook:
        """Encrypts the secrets of a hook; a masked one stays as in `known`. It stays only for the
        same receiver: a caller that may set a webhook but not read its secrets could otherwise have
        them sent elsewhere."""
        if known is not None and self._origin(hook) != self._origin(known):
            known = None
        return self._vault.sealed(hook, known)

    def masked(self, hook: Hook) -> Hook:
        """Returns the hook with its secrets masked, as callers see it."""
        return self._vault.masked(hook)

    def wants_task(self, hook: Hook) -> bool:
        """Returns whether the hook's dialect sends whole tasks instead of events."""
        return wants_task(hook)

    def host(self, hook: Hook) -> str:
        """Returns the host that a hook calls, by which the circuit breaker groups failures."""
        try:
            return parse(hook.url, self._egress.rules).authority
        except DragomanError:
            return ""

    def _origin(self, hook: Hook) -> tuple[str, str]:
        return hook.url.partition(":")[0].lower(), self.host(hook)

    async def deliver(self, hook: Hook, entry: Stamped, task: Task | None) -> WebhookAnswer:
        """Makes one attempt at a delivery. A failure of the receiver is returned and not raised."""
        if spans.tracer is None:
            return await self._post(hook, entry, task)
        parent = spans.tracer.recall(hook.task_id)
        about: spans.About = {"task": hook.task_id, "seq": entry.seq}
        with spans.tracer.span("webhook", "client", parent, about) as span:
            answer = await self._post(hook, entry, task, {"traceparent": span.traceparent})
            span.set(status=answer.status, error=answer.error)
            return answer

    async def _post(
        self, hook: Hook, entry: Stamped, task: Task | None, more: Mapping[str, str] = NO_HEADERS
    ) -> WebhookAnswer:
        try:
            hook = self._vault.opened(hook)
            body, content_type = push(hook, entry, task)
            proof = self._proof(hook, entry.seq, body)
            headers = {"content-type": content_type, **proof, **more}
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
            # 0.3 and most SDKs use the name with X, a2a-go the one without (a2a-wire D8).
            headers["x-a2a-notification-token"] = hook.token
            headers["a2a-notification-token"] = hook.token
        # Standard Webhooks: the id is the same in every attempt, so that a receiver can recognise a
        # repeated delivery.
        id, at = webhook_id(hook, seq), str(int(self._clock()))
        signature = signed(self._vault.signing_key(hook), id, at, body)
        return headers | {
            "webhook-id": id,
            "webhook-timestamp": at,
            "webhook-signature": f"v1,{signature}",
        }

    def _retry_after(self, reply: GuardedReply) -> float | None:
        """Returns the seconds of a Retry-After header (RFC 9110 §10.2.3)."""
        given = reply.headers.get("retry-after", "").strip()
        if given.isascii() and given.isdigit():
            return float(given[:9])
        from email.utils import parsedate_to_datetime  # few receivers send a date

        try:
            return parsedate_to_datetime(given).timestamp() - self._clock() if given else None
        except (ValueError, OverflowError):
            return None

    async def close(self) -> None:
        """Closes the connections."""
        await self._egress.close()


def _scheme(hook: Hook) -> str:
    """Returns the Authorization header for the first of the hook's schemes that we support, or an
    empty text."""
    for scheme in hook.schemes:
        name = scheme.lower()
        if name not in NEED_PROOF and not name.startswith("scram-"):
            return scheme
    return ""


def webhook_id(hook: Hook, seq: int) -> str:
    """Returns the id of a delivery. It contains the task's id, since callers choose hook ids and
    two tasks may have hooks of one id."""
    words = (hook.hook_id,) if hook.hook_id == hook.task_id else (hook.hook_id, hook.task_id)
    return ".".join((*(quote(word, safe="-_~") for word in words), str(seq)))


def signed(key: bytes, id: str, at: str, body: bytes) -> str:
    """Returns the signature of Standard Webhooks, version 1."""
    content = b".".join((id.encode(), at.encode(), body))
    return base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()
