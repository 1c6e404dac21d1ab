"""Agents that were met in rooms."""

from __future__ import annotations

from typing import Any

from .said import Said


class MetAgents:
    def __init__(self, *a: Any) -> None: ...
    async def hear_plain(self, said: Said) -> bool:
        return False

    async def hear_card(self, said: Said) -> None: ...
    async def hear(self, said: Said) -> None: ...
