"""Calls a function of a backend's author."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from msgspec.structs import replace

from dragoman.agent import Shape
from dragoman.core.errors import ConfigError
from dragoman.core.model import from_caller
from dragoman.core.operations import Operation, SendMessage
from dragoman.core.peer import Context


class Function:
    """A function of the author, and the way in which it is called."""

    def __init__(self, what: str, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise ConfigError(f"Backend: {what} must be a function, not {function!r}")
        self.what, self.function, self.shape = what, function, Shape.of(function)
        try:
            inspect.signature(function).bind(None, None)
            self._wants_caller = True
        except TypeError:
            self._wants_caller = False
            try:
                inspect.signature(function).bind(None)
            except TypeError:
                raise ConfigError(
                    f"Backend: {what} takes the operation, and the caller if it wants: "
                    f"def {what}(op) or def {what}(op, caller)"
                ) from None

    async def ask(self, threads: ThreadPoolExecutor, op: Operation[Any], ctx: Context) -> Any:
        """Calls the function and returns its result. Plain functions run in a thread."""
        if isinstance(op, SendMessage):
            op = replace(op, message=from_caller(op.message))
        asked = partial(self.function, *((op, ctx) if self._wants_caller else (op,)))
        if self.shape is not Shape.PLAIN:
            value = asked()
        else:
            value = await asyncio.get_running_loop().run_in_executor(threads, asked)
        return await value if inspect.isawaitable(value) else value
