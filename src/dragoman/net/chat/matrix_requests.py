"""Requests to a Matrix homeserver, and what its answers mean."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import nio

from dragoman.core.errors import ConfigError, PeerRefused, PeerUnreachable, TooLarge
from dragoman.core.log import Logger, quiet
from dragoman.settings.chat import MatrixSettings

from .credentials import secret_of
from .outbox import pause_in

log = Logger("chat")
quiet("nio")

ANSWER_TIMEOUT_SECONDS = 60.0
"""The time in which the server must answer."""
LARGE_TIMEOUT_SECONDS = 300.0
"""The same for what may be large: the state of all rooms, or a file."""
PATIENCE_SECONDS = 120.0
"""How long we let the server put us off."""
DEVICE = "Dragoman"
_GONE = (aiohttp.ClientError, TimeoutError, OSError, ValueError)
"""What the package raises if the server does not answer, or answers nonsense."""


class MatrixRequests:
    """The requests of one user."""

    def __init__(self, settings: MatrixSettings) -> None:
        if not settings.homeserver.startswith(("https://", "http://")):
            raise ConfigError(f"A homeserver is https://..., not {settings.homeserver!r}.")
        self._settings = settings
        self._token = secret_of(settings.token, "DRAGOMAN_MATRIX_TOKEN", "token")
        self._password = secret_of(settings.password, "DRAGOMAN_MATRIX_PASSWORD", "password")
        if not self._token and not (self._password and settings.user):
            raise ConfigError("Matrix needs a token, or a user and a password.")
        self.homeserver = settings.homeserver.rstrip("/")
        self.client: Any = None
        self.display_name = ""

    @property
    def has_password(self) -> bool:
        """Whether a session that the server has ended can be opened again."""
        return not self._token

    async def log_in(self, device: str) -> str:
        """Proves who we are. Returns the id of our device; `device` is the one of last time."""
        if self.client is None:
            config = nio.AsyncClientConfig(
                max_limit_exceeded=0, max_timeouts=0, request_timeout=ANSWER_TIMEOUT_SECONDS
            )
            self.client = nio.AsyncClient(self.homeserver, self._settings.user, config=config)
        client = self.client
        if self._token:
            client.access_token = self._token
        else:
            client.device_id = device
            found = await self.ask(client.login, self._password, device_name=DEVICE)
            device = found.device_id
        client.user_id = client.user = (await self.ask(client.whoami)).user_id
        profile = await self.ask(client.get_displayname, client.user_id)
        self.display_name = profile.displayname or ""
        log.info("On Matrix", homeserver=self.homeserver, user=client.user_id)
        return device

    async def ask(
        self,
        method: Callable[..., Awaitable[Any]],
        *args: object,
        seconds: float = ANSWER_TIMEOUT_SECONDS,
        **kwargs: object,
    ) -> Any:
        """Makes a request, and makes it again if the server asks for a pause. Raises `ConfigError`
        if the server does not know us, `PeerRefused` if it refuses, and `PeerUnreachable` if it
        does not answer."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                async with asyncio.timeout(seconds):
                    answer = await method(*args, **kwargs)
            except _GONE as exc:
                why = str(exc) or type(exc).__name__
                raise PeerUnreachable(
                    f"{self.homeserver} does not answer: {why}", sent=True
                ) from exc
            if not isinstance(answer, nio.ErrorResponse):
                return answer
            asked = answer.retry_after_ms
            pause = pause_in(asked / 1000 if isinstance(asked, int | float) else None)
            if answer.status_code != "M_LIMIT_EXCEEDED" or time.monotonic() + pause > deadline:
                self._fail(answer)
            await asyncio.sleep(pause)

    def _fail(self, answer: Any) -> None:
        status = getattr(answer.transport_response, "status", 0)
        match answer.status_code:
            case _ if status >= 500 or status == 429:
                raise PeerUnreachable(f"{self.homeserver}: {answer.message} ({status})")
            case "M_UNKNOWN_TOKEN" | "M_MISSING_TOKEN":
                raise ConfigError(f"{self.homeserver} does not take the token: {answer.message}")
            case "M_FORBIDDEN" if isinstance(answer, nio.LoginError):
                raise ConfigError(f"{self.homeserver} does not take the password: {answer.message}")
            case "M_TOO_LARGE":
                raise TooLarge(answer.message)
            case None:
                raise PeerUnreachable(f"{self.homeserver} does not answer as a Matrix server")
            case code:
                raise PeerRefused(f"{answer.message} ({code})")

    async def close(self) -> None:
        """Ends the connections."""
        if self.client is not None:
            await self.client.close()
