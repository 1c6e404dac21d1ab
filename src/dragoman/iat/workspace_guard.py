"""Confines an agent that has joined a host to the folder that the host named at its
registration."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import cast

from msgspec.structs import replace

from dragoman.core.operations import AnyOperation, Operation, R, SendMessage, Streamed
from dragoman.core.peer import Batch, Context, Peer
from dragoman.workspace import WISH, inside, within


class WorkspaceLimitedPeer:
    """Narrows the folder of IAT requests to the host's folder, before the engine checks it against
    our own. No request can widen either of them."""

    def __init__(self, peer: Peer, own: str, root: Callable[[], str]) -> None:
        self._peer, self._own, self._root = peer, own, root

    async def call(self, op: Operation[R], ctx: Context) -> R:
        """Returns the answer to the narrowed operation."""
        return await self._peer.call(cast(Operation[R], self._narrowed(op, ctx)), ctx)  # type: ignore[arg-type]

    def stream(self, op: Streamed, ctx: Context) -> AsyncGenerator[Batch, None]:
        """Yields the events of the narrowed operation."""
        return self._peer.stream(cast(Streamed, self._narrowed(op, ctx)), ctx)

    def _narrowed(self, op: AnyOperation, ctx: Context) -> AnyOperation:
        root = self._root()
        if not root or not isinstance(op, SendMessage) or not ctx.dialect.startswith("iat"):
            return op
        if inside(self._own, root):
            return op  # our own folder is the narrower one
        said = (op.metadata or {}, op.message.metadata or {})
        wish = next((each[WISH] for each in said if WISH in each), None)
        return replace(op, metadata={**(op.metadata or {}), WISH: within(root, wish)})
