"""Seals credentials that a caller sends to a run, so that the store holds them encrypted."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from dragoman.core.log import Logger
from dragoman.core.model import Json, Message
from dragoman.store import rules
from dragoman.store.codec import Unpacker, pack
from dragoman.store.writes import Input

if TYPE_CHECKING:
    from dragoman.store.seal import Seal

log = Logger("runner")


class SealedContent(Struct):
    """The part of an input that is sealed."""

    message: Message
    value: Json = None


_unpack = Unpacker(SealedContent)


class InputSealer:
    """Seals and opens inputs that answer a question for credentials."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    @cached_property
    def _seal(self) -> Seal:
        # Loading the ciphers takes long, and few agents ask for credentials.
        from dragoman.store.seal import Seal

        return Seal(self._secret, "dragoman credentials at rest")

    def seal(self, task_id: str, said: Input) -> Input:
        """Returns the input in a form that may be stored."""
        box = self._seal.seal(pack(SealedContent(said.message, said.value)), task_id)
        return replace(rules.wipe(said), by=said.by, sealed=box)

    def open(self, task_id: str, said: Input) -> Input:
        """Returns the original input. It stays sealed if it was sealed with another key."""
        if not said.sealed:
            return said
        from dragoman.store.seal import Unopened

        try:
            given = _unpack(self._seal.open(said.sealed, task_id))
        except Unopened:
            log.warning("Credentials are sealed with another key, so we ask again", task=task_id)
            return said
        return replace(said, message=given.message, value=given.value, sealed="")
