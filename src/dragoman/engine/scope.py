"""Whose tasks a call is about."""

from __future__ import annotations

from ..peer import Context
from ..store.base import Scope


def scope_of(ctx: Context) -> Scope:
    """The caller's own tasks, and nobody else's."""
    return Scope(ctx.tenant, ctx.principal)
