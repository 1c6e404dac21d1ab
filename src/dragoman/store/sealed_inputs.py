"""Credentials on their way from the caller to the run: the store holds them sealed."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from dragoman.core.log import Logger
from dragoman.core.model import Json, Message

from . import rules
from .codec import Unpacker, pack
from .writes import Input

if TYPE_CHECKING:
    from .seal import Seal

log = Logger("runner")


class SealedContent(Struct):
    """What is sealed of an input."""

    message: Message
    value: Json = None


_unpack = Unpacker(SealedContent)


class InputSealer:
    """Seals and opens inputs that answer a question for credentials."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    @cached_property
    def _seal(self) -> Seal:
        # What it needs is loaded only for those who ask for credentials.
        from .seal import Seal

        return Seal(self._secret, "dragoman credentials at rest")

    def sealed(self, task_id: str, said: Input) -> Input:
        """The input as it may be stored."""
        box = self._seal.closed(pack(SealedContent(said.message, said.value)), task_id)
        return replace(rules.wipe(said), by=said.by, sealed=box)

    def opened(self, task_id: str, said: Input) -> Input:
        """The input as it was given; still sealed if that was done with another key."""
        if not said.sealed:
            return said
        from .seal import Unopened

        try:
            given = _unpack(self._seal.opened(said.sealed, task_id))
        except Unopened:
            log.warning("Credentials are sealed with another key, so we ask again", task=task_id)
            return said
        return replace(said, message=given.message, value=given.value, sealed="")
