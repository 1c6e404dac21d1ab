"""The transport that calls webhooks for the queue; `net.webhooks` implements it over HTTP."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from dragoman.core.events import Stamped
from dragoman.core.model import Hook, Task


class WebhookAnswer(Struct, frozen=True, gc=False, kw_only=True):
    """The outcome of one call of a webhook."""

    status: int = 0
    """The HTTP status; 0 if there was no answer."""
    error: str = ""
    """What prevented an answer."""
    retry_after: float | None = None
    """The seconds from the receiver's `Retry-After`."""
    size: int = 0
    """The number of bytes that were posted."""

    @property
    def arrived(self) -> bool:
        """Returns whether the receiver accepted the call. Only 2xx counts, because redirects are
        not followed (a2a-wire §13.6)."""
        return 200 <= self.status < 300

    @property
    def blames_host(self) -> bool:
        """Returns whether the failure concerns the whole host and not only this webhook."""
        return self.status == 0 or self.status == 429 or self.status >= 500


class WebhookTransport(Protocol):
    """Calls webhooks, and knows what may be called and stored."""

    async def check(self, hook: Hook) -> None:
        """Raises `BadParams` for a hook that must not be called."""

    def sealed(self, hook: Hook, known: Hook | None = None) -> Hook:
        """Returns the hook in the form that is stored. A masked secret stands for the secret of the
        `known` hook. Raises `BadParams` if that hook has none."""

    def masked(self, hook: Hook) -> Hook:
        """Returns a stored hook as it may be shown."""

    def wants_task(self, hook: Hook) -> bool:
        """Returns whether the hook is sent whole tasks instead of single events."""

    def host(self, hook: Hook) -> str:
        """Returns the host that the hook calls; empty if there is none."""

    async def deliver(self, hook: Hook, entry: Stamped, task: Task | None) -> WebhookAnswer:
        """Calls the hook once."""

    async def close(self) -> None:
        """Closes all connections."""
