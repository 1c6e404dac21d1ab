"""The tools of a host: Python functions that are described by their type hints."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from dragoman.agent.parameters import Params
from dragoman.agent.parts import builtins_of
from dragoman.core.card import Tool
from dragoman.core.errors import AgentMisbehaved, BadParams, ConfigError, DragomanError
from dragoman.core.model import Json


class HostTool(Struct, frozen=True):
    """A function that the host runs for sub-agents."""

    description: Tool
    function: Callable[..., Any]
    params: Params

    async def run(self, arguments: Json) -> Json:
        """Runs the tool and returns the answer for the sub-agent: `{"result": ...}` or `{"error":
        ...}`.

        Arguments and result are checked (R04). The sub-agent sees the message of an exception only
        if it is one of our own errors.
        """
        try:
            given = self.params.take({} if arguments is None else arguments)
            if inspect.iscoroutinefunction(self.function):
                value = await self.function(**given)
            else:
                value = await asyncio.to_thread(self.function, **given)
            self.params.check_result(value)
            return {"result": builtins_of(value)}
        except BadParams as exc:
            return refused("bad_params", exc.message)
        except AgentMisbehaved as exc:
            return refused("tool_failed", exc.message)
        except DragomanError as exc:
            return refused(exc.reason, exc.message)
        except Exception as exc:  # the author's function may raise anything; its stack stays here
            return refused("tool_failed", f"{type(exc).__name__} in tool {self.description.name}")


def refused(code: str, message: str) -> Json:
    """Returns the answer to a call that failed."""
    return {"error": {"code": code, "message": message}}


def tool_of(function: Callable[..., Any], name: str = "", description: str = "") -> HostTool:
    """Creates a tool from a function: its name, the first line of its docstring, and the schemas of
    its type hints."""
    if not inspect.isroutine(function):
        raise ConfigError(f"A tool must be a function, not {function!r}")
    name = name or function.__name__
    try:
        signature = inspect.signature(function, eval_str=True)
    except (NameError, TypeError, ValueError) as exc:
        raise ConfigError(f"Tool `{name}`: its annotations cannot be read: {exc}") from exc
    words = description or (inspect.getdoc(function) or "").partition("\n")[0]
    params = Params(name, _with_turn(function, signature))
    described = Tool(
        name=name,
        description=words,
        parameters=params.input_schema or {"type": "object"},
        returns=params.output_schema,
    )
    return HostTool(described, function, params)


def _with_turn(function: Callable[..., Any], signature: inspect.Signature) -> Callable[..., Any]:
    """Returns a function with the same signature and a turn in front, as `Params` expects of
    skills."""

    def shape(*given: Any) -> Any:
        return function(*given)

    turn = inspect.Parameter("turn", inspect.Parameter.POSITIONAL_ONLY)
    shape.__name__ = function.__name__
    shape.__signature__ = signature.replace(  # type: ignore[attr-defined]  # what inspect looks at
        parameters=[turn, *signature.parameters.values()]
    )
    return shape
