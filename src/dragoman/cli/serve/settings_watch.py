"""`dragoman gateway --watch`: applies changes of the settings file to a running gateway."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from dragoman.agent import Agent
from dragoman.core.errors import ConfigError, DragomanError
from dragoman.core.log import Logger
from dragoman.server.agent_loader import load_agents
from dragoman.server.agent_names import Naming
from dragoman.server.app import App
from dragoman.settings import HostedAgent, Settings

log = Logger("gateway")
PAUSE = 0.5
"""Seconds between two checks of the file."""
MISSES = 4
"""The number of checks without a file before that is reported: an editor may just be replacing
it."""


class SettingsWatch:
    """Keeps the agents of a running gateway in line with its settings file.

    A section that has not changed is left alone. An error in the file is reported with its line,
    and everything stays unchanged.
    """

    def __init__(
        self,
        path: Path,
        load: Callable[[], Settings],
        settings: Settings,
        agents: Mapping[str, Agent],
    ) -> None:
        """`load` reads the settings as at the start of the gateway; `settings` and `agents` are
        those with which it was started."""
        self._path, self._load = path, load
        self._settings = settings
        self._agents = dict(agents)
        self._content = _content(path)
        self._pending: bytes | None = None
        self._misses = 0
        self._now = asyncio.Event()
        self._told: tuple[str, ...] = ()

    async def run(self, app: App) -> None:
        """Follows the file until it is canceled. SIGHUP has it read at once."""
        self._follow_hangup()
        while True:
            asked = await self._asked()
            content = await asyncio.to_thread(_content, self._path)
            if not asked and not self._is_settled(content):
                continue
            self._content, self._pending = content, None
            try:
                await self._apply(app)
            except ConfigError as exc:
                log.error("The settings are not taken over", why=exc.message)
            except Exception as exc:  # the next version of the file may be better
                log.error("The settings could not be taken over", exc)

    def _follow_hangup(self) -> None:
        """Has the file read after a SIGHUP, unless it was our terminal that was closed."""
        terminal = sys.stdin is not None and sys.stdin.isatty()

        def hung_up() -> None:
            if terminal and not os.isatty(0):
                signal.raise_signal(signal.SIGTERM)
            else:
                self._now.set()

        if hasattr(signal, "SIGHUP"):
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hung_up)

    async def _asked(self) -> bool:
        """Waits until the next check. Returns whether a signal has requested it."""
        try:
            async with asyncio.timeout(PAUSE):
                await self._now.wait()
        except TimeoutError:
            return False
        self._now.clear()
        return True

    def _is_settled(self, content: bytes | None) -> bool:
        """Returns whether the file has changed, and was the same in two checks: half of a file that
        is being written may be valid, with fewer agents."""
        self._misses = self._misses + 1 if content is None else 0
        if content is None:
            if self._misses == MISSES:
                log.error("There is no settings file any more", file=self._path)
            return False
        settled = content == self._pending
        self._pending = content
        return settled and content != self._content

    async def _apply(self, app: App) -> None:
        before = self._settings
        settings = await asyncio.to_thread(self._load)
        unchanged = {
            name: self._agents[name]
            for name, section in settings.agents.items()
            if name in self._agents and _same(before.agents.get(name), section)
        }
        # Files are imported in a thread, so that the loop can serve all other agents.
        agents = await asyncio.to_thread(load_agents, (), settings, unchanged)
        assert isinstance(agents, Mapping)  # noqa: S101  sections have names
        gone = [name for name in self._agents if name not in agents]
        changed = {name: agent for name, agent in agents.items() if name not in unchanged}
        self._tell_of_others(settings)
        leaving = [asyncio.create_task(self._remove(app, name)) for name in gone]
        await asyncio.sleep(0)  # from now on their names, hosts and tenants are free
        served = await self._serve(app, changed, settings)
        await asyncio.gather(*leaving)
        sections, current = {}, {}
        for name, section in settings.agents.items():
            if name in unchanged or name in served:
                sections[name], current[name] = section, agents[name]
            elif name in self._agents:  # it was refused, so it stays unchanged
                sections[name], current[name] = before.agents[name], self._agents[name]
        self._settings, self._agents = replace(before, agents=sections), current
        log.info(
            "The settings were taken over",
            served=",".join(served),
            removed=",".join(gone),
            unchanged=len(unchanged),
        )

    async def _serve(
        self, app: App, agents: Mapping[str, Agent], settings: Settings
    ) -> tuple[str, ...]:
        """Serves these agents, and returns the names of those that could be served. One may have
        the host or the tenant of another that changes too, so all are tried until nothing moves."""
        left, served = dict(agents), []
        while left:
            refused: dict[str, DragomanError] = {}
            for name, agent in left.items():
                section = settings.agents[name]
                naming = Naming(section.host, section.tenant)
                try:
                    if app.registry is not None:
                        await app.registry.claim(name, section.addresses)
                    await app.replace_agent(name, agent, naming=naming)
                    served.append(name)
                except DragomanError as exc:
                    refused[name] = exc
            if len(refused) == len(left):
                for name, error in refused.items():
                    why = settings.agents[name].error(name, "", error.message)
                    log.error("An agent is not served", agent=name, why=why.message)
                break
            left = {name: left[name] for name in refused}
        return tuple(served)

    async def _remove(self, app: App, name: str) -> None:
        if name in app.mounts:
            await app.remove_agent(name)
        if app.registry is not None:
            await app.registry.release(name)

    def _tell_of_others(self, settings: Settings) -> None:
        """Names the sections that have changed but take effect only at the next start."""
        new, old = (msgspec.structs.asdict(each) for each in (settings, self._settings))
        changed = tuple(key for key in new if key != "agents" and new[key] != old[key])
        if changed and changed != self._told:
            names = ", ".join(f"[{key}]" for key in changed)
            log.warning("Sections have changed that need a restart", sections=names)
        self._told = changed


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _same(one: HostedAgent | None, other: HostedAgent) -> bool:
    """Returns whether two sections have the same content, wherever they are in the file."""
    return one is not None and replace(one, places={}) == replace(other, places={})
