"""An agent that joined a host keeps to the folder the host named when it registered."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import cast

from msgspec.structs import replace

from dragoman.core.operations import AnyOperation, Operation, R, SendMessage, Streamed
from dragoman.core.peer import Batch, Context, Peer
from dragoman.workspace import WISH, inside, within


class WorkspaceLimitedPeer:
    """Narrows what is asked in IAT to the host's folder, before the engine checks it against ours:
    nothing that is said can widen either."""

    def __init__(self, peer: Peer, own: str, root: Callable[[], str]) -> None:
        self._peer, self._own, self._root = peer, own, root

    async def call(self, op: Operation[R], ctx: Context) -> R:
        """The answer."""
        return await self._peer.call(cast(Operation[R], self._narrowed(op, ctx)), ctx)  # type: ignore[arg-type]

    def stream(self, op: Streamed, ctx: Context) -> AsyncGenerator[Batch, None]:
        """Every step."""
        return self._peer.stream(cast(Streamed, self._narrowed(op, ctx)), ctx)

    def _narrowed(self, op: AnyOperation, ctx: Context) -> AnyOperation:
        root = self._root()
        if not root or not isinstance(op, SendMessage) or not ctx.dialect.startswith("iat"):
            return op
        if inside(self._own, root):
            return op  # ours is narrower as it is
        said = (op.metadata or {}, op.message.metadata or {})
        wish = next((each[WISH] for each in said if WISH in each), None)
        return replace(op, metadata={**(op.metadata or {}), WISH: within(root, wish)})
