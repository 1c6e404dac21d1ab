"""Loads agents from their authors' files. An error names the line of the file that caused it."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import dragoman
from dragoman.agent import Agent
from dragoman.core.errors import ConfigError
from dragoman.settings import HostedAgent, Settings

from .agent_names import Agents, checked, slug, unique

Modules = dict[Path, ModuleType]
"""The modules that are already imported: a file with two agents is executed once."""


def load_agents(
    given: Sequence[str], settings: Settings, known: Mapping[str, Agent] | None = None
) -> Agents:
    """Returns the agents in these files, each given as `load_agent` takes it, with a name before it
    or without: `NAME=file.py`. Without files, the sections `[agents.NAME]` of the settings name the
    agents. Agents that are `known` are not loaded again."""
    modules: Modules = {}
    if not given:
        there = known or {}
        hosted = {
            name: there[name] if name in there else _hosted(name, each, settings, modules)
            for name, each in settings.agents.items()
        }
        if any(each.fallbacks for each in settings.agents.values()):
            from dragoman.gateway.configuration import link_fallbacks

            link_fallbacks(hosted, settings)
        return hosted
    named = [split_name(each) for each in given]
    found = [(name, load_agent(where, modules)) for name, where in named]
    if len(found) == 1 and not found[0][0]:
        return found[0][1]
    return unique([(name or slug(agent.name), agent) for name, agent in found])


def _hosted(name: str, about: HostedAgent, settings: Settings, modules: Modules) -> Agent:
    """Returns the agent of a section `[agents.NAME]`: in a file, or at an address elsewhere."""
    key = ""
    try:
        checked(name)
        key = "file"
        if about.file:
            return load_agent(about.file, modules)
    except ConfigError as exc:
        raise about.error(name, key, exc.message) from None
    from dragoman.gateway.configuration import upstream_of

    return upstream_of(name, about, settings)


def split_name(given: str) -> tuple[str, str]:
    """Returns the name and the file of `NAME=file.py`. The name of a mere file is empty."""
    name, equals, where = given.partition("=")
    if not equals or "/" in name or "\\" in name or Path(given).is_file():
        return "", given
    return checked(name), where


def folder_in(given: str) -> Path | None:
    """Returns the folder of the file in `NAME=file.py:name`, or None if there is no such file."""
    path, _ = _split(split_name(given)[1])
    if path.is_file():
        return path.parent
    return Path.cwd() if _MODULE(split_name(given)[1]) else None


def _split(where: str) -> tuple[Path, str]:
    """Returns the file and the name of `file.py:name`."""
    file, colon, name = where.rpartition(":")
    if not colon or not name.isidentifier():
        return Path(where), ""
    return Path(file), name


def load_agent(where: str, modules: Modules | None = None) -> Agent:
    """Returns the agent in `file.py`, `file.py:name` or `package.module:name`; the name may be that
    of a function that makes the agent. Raises a `ConfigError` that says what is wrong and where."""
    path, name = _split(where)
    file = str(path)
    if not path.is_file() and _MODULE(where):
        return _chosen(_imported_by_name(file), name, file)
    if not path.is_file():
        if path.suffix != ".py" and Path(f"{file}.py").is_file():
            raise ConfigError(f"There is no file {file}. Did you mean {file}.py?")
        raise ConfigError(f"There is no file {file}. Give the path of a Python file with an Agent.")
    modules = modules if modules is not None else {}
    module = modules.get(path.resolve()) or _imported(path)
    modules[path.resolve()] = module
    return _chosen(module, name, path)


_MODULE = re.compile(r"(?!.*\.py(:|$))[A-Za-z_]\w*((\.\w+)+(:\w+)?|:\w+)").fullmatch
"""`package.module`, `package.module:name` or `module:name`."""


def _chosen(module: ModuleType, name: str, path: Path | str) -> Agent:
    """Returns the agent of this name, or the only one; or the one that the function of this name
    makes."""
    found = {key: value for key, value in vars(module).items() if isinstance(value, Agent)}
    if name:
        made = vars(module).get(name)
        if callable(made) and not isinstance(made, Agent):
            return _with_skills(_made(made, name, path), path)
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


def _made(factory: Callable[[], object], name: str, path: Path | str) -> Agent:
    """Returns the agent that a function of the author's makes."""
    with _explained(path):
        agent = factory()
    if not isinstance(agent, Agent):
        raise ConfigError(f"{name}() in {path} gave a {type(agent).__name__}, not an Agent.")
    return agent


def _with_skills(agent: Agent, path: Path | str) -> Agent:
    if not agent.skills and not agent.is_backend:
        raise ConfigError(
            f"Agent '{agent.name}' in {path} has no skills. Add @agent.skill(\"id\")."
        )
    return agent


def _imported(path: Path) -> ModuleType:
    """Returns the module in this file. Its folder becomes importable, as with `python file.py`."""
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    # The module keeps its own name, so that its neighbours can import it, unless that name would
    # hide another module.
    name, number = path.stem, 1
    while name in sys.stdlib_module_names or name in sys.modules:
        name = f"{path.stem}_agent{number if number > 1 else ''}"
        number += 1
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with _explained(path):
        spec.loader.exec_module(module)
    return module


def _imported_by_name(name: str) -> ModuleType:
    """Returns the module of this name. The current folder is searched too, as with `python -m`."""
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    with _explained(name):
        return importlib.import_module(name)


@contextmanager
def _explained(path: Path | str) -> Iterator[None]:
    """Turns whatever the author's code raises into a `ConfigError` that names its line."""
    try:
        yield
    except ConfigError as exc:  # of ours: the definition of the agent is wrong
        raise ConfigError(f"{_where(exc, path)}: {exc.message}") from None
    except SyntaxError as exc:
        raise ConfigError(f"{_short(exc.filename or path)}:{exc.lineno}: {exc.msg}") from None
    except Exception as exc:  # the author's file may raise anything; show where, not our stack
        raise ConfigError(f"{_where(exc, path)}: {type(exc).__name__}: {exc}") from exc


def _short(path: str | Path) -> Path:
    """Returns the path as the user would type it: relative if it is below the current folder."""
    found, here = Path(path), Path.cwd()
    return found.relative_to(here) if found.is_relative_to(here) else found


def _where(exc: BaseException, path: Path | str) -> str:
    """Returns the last line in the traceback of the error that is the author's: in this file, or in
    a module that it imports."""
    found, trace, not_theirs = "", exc.__traceback__, _not_the_authors()
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith(("<", *not_theirs)):
            found = f"{_short(file)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found or str(path)


def _not_the_authors() -> list[str]:
    """Returns the folders of Dragoman, of the standard library and of installed packages."""
    import sysconfig

    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    ours = str(Path(dragoman.__file__).parent)
    return [os.path.join(folder, "") for folder in (ours, *map(sysconfig.get_path, kinds))]
