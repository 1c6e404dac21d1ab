"""Hears the statements that a store sends to PostgreSQL."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest


def listen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[Any, ...]]]:
    """Returns a list that receives the statements of all connections that are made from now on, and
    their arguments."""
    asked: list[tuple[str, tuple[Any, ...]]] = []
    plain = asyncpg.connect

    async def listened(*place: Any, **options: Any) -> Any:
        connection = await plain(*place, **options)
        connection.add_query_logger(lambda query: asked.append((query.query, query.args)))
        return connection

    monkeypatch.setattr(asyncpg, "connect", listened)
    return asked
