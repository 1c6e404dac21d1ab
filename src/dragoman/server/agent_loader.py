"""The agent in an author's file: imported, found by its name, and what is wrong told by line."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from dragoman.agent import Agent
from dragoman.backend import Backend
from dragoman.core.errors import ConfigError


def load_agent(where: str) -> Agent:
    """The agent in `file.py` or `file.py:name`; `ConfigError` says what is wrong and where."""
    file, colon, name = where.rpartition(":")
    if not colon or not name.isidentifier():
        file, name = where, ""
    path = Path(file)
    if not path.is_file():
        if path.suffix != ".py" and Path(f"{file}.py").is_file():
            raise ConfigError(f"There is no file {file}. Did you mean {file}.py?")
        raise ConfigError(f"There is no file {file}. Give the path of a Python file with an Agent.")
    module = _imported(path)
    found = {key: value for key, value in vars(module).items() if isinstance(value, Agent)}
    if name:
        if name not in found:
            listed = ", ".join(found) or "none"
            raise ConfigError(f"{path} has no agent called '{name}' (agents in it: {listed}).")
        return _with_skills(found[name], path)
    distinct = {id(agent): key for key, agent in reversed(found.items())}
    if not distinct:
        raise ConfigError(f"{path} has no Agent. Add: agent = Agent('My agent')")
    if len(distinct) > 1:
        names = ", ".join(sorted(distinct.values()))
        raise ConfigError(f"{path} has several agents ({names}). Choose one: {path}:NAME")
    return _with_skills(found[next(iter(distinct.values()))], path)


def _with_skills(agent: Agent, path: Path) -> Agent:
    if not agent.skills and not isinstance(agent, Backend):
        raise ConfigError(
            f"Agent '{agent.name}' in {path} has no skills. Add @agent.skill(\"id\")."
        )
    return agent


def _imported(path: Path) -> ModuleType:
    """The module in this file. Its folder becomes importable, as with `python file.py`."""
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    # Its own name, as an import from beside it would use, unless that would hide another module.
    name = path.stem
    if name in sys.stdlib_module_names or name in sys.modules:
        name = f"{name}_agent"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except ConfigError:
        raise
    except SyntaxError as exc:
        raise ConfigError(f"{_short(exc.filename or path)}:{exc.lineno}: {exc.msg}") from None
    except Exception as exc:  # the author's file may raise anything; show where, not our stack
        raise ConfigError(f"{_where(exc, path)}: {type(exc).__name__}: {exc}") from exc
    return module


def _short(path: str | Path) -> Path:
    """As the user would type it: relative if it lies below."""
    found, here = Path(path), Path.cwd()
    return found.relative_to(here) if found.is_relative_to(here) else found


def _where(exc: BaseException, path: Path) -> str:
    """The last line of the author's file on the way to the error."""
    line, trace, own = 0, exc.__traceback__, str(path.resolve())
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == own:
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"{path}:{line}" if line else str(path)
