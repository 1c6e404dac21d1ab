"""Our wheel in environments that hold nothing else, so nothing of the tests' can help it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from counts import FULL
from pages import ROOT

README_INSTALL = "pip install '.[all]'"
LIMIT = 300
"""Seconds after which a command hangs."""
# What would lead a command of the empty environment back to this one.
ENVIRON = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("DRAGOMAN_", "PYTHON", "VIRTUAL_ENV"))
}
OWN = sys.executable
SOURCES = ("src", "pyproject.toml", "setup.py", "README.md", "LICENSE")


def extras() -> list[str]:
    """The extras a user may ask for, `all` first; what developers need is not among them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = [
        name for name in project["optional-dependencies"] if name not in ("all", "dev", "docs")
    ]
    return ["all", *named]


def newer_pythons() -> list[str]:
    """Every Python on this machine that is newer than the one that runs the tests."""
    folders = [*map(Path, os.get_exec_path()), *Path.home().glob(".pyenv/versions/*/bin")]
    found: dict[int, str] = {}
    for folder in folders:
        for path in folder.glob("python3.[0-9]*"):
            version = re.fullmatch(r"python3\.(\d+)", path.name)
            if version and int(version[1]) > sys.version_info.minor:
                if _runs(path):
                    found.setdefault(int(version[1]), str(path))
    return [found[minor] for minor in sorted(found)]


def _runs(path: Path) -> bool:
    try:
        return subprocess.run([path, "-c", "import venv"], capture_output=True).returncode == 0
    except OSError:
        return False


def kinds() -> list[tuple[str, str]]:
    """What is tried: a Python and an extra each."""
    if not FULL:
        return [(OWN, ""), (OWN, "all")]
    return [
        *((OWN, extra) for extra in ("", *extras())),
        *((python, extra) for python in newer_pythons() for extra in ("", "all")),
    ]


def copy_tree(folder: Path) -> Path:
    """What a wheel is built from, copied so that the build leaves nothing behind."""
    copy = folder / "tree"
    copy.mkdir()
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("*.egg-info"))
        else:
            shutil.copy(source, copy / name)
    return copy


def build_wheel(tree: Path) -> Path:
    """The wheel of a tree, beside it."""
    pip = [OWN, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps"]
    _do([*pip, "-w", str(tree.parent), str(tree)])
    (wheel,) = tree.parent.glob("*.whl")
    return wheel


@dataclass(frozen=True)
class Environment:
    """An environment that held nothing before our wheel was installed into it."""

    folder: Path
    extra: str

    @property
    def bin(self) -> Path:
        return self.folder / "bin"

    def run(
        self, *command: str, cwd: Path, stdin: str = "", **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command with the environment's programs first on its path."""
        return subprocess.run(
            command,
            cwd=cwd,
            env=self.environ | environ,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )

    @property
    def environ(self) -> dict[str, str]:
        return ENVIRON | {
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.folder),  # where logins would be kept
            # What a person would wait for, and does not need.
            "PIP_QUIET": "1",
            "PIP_NO_COMPILE": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }

    @contextmanager
    def started(self, *words: str, cwd: Path, **environ: str) -> Iterator[Started]:
        """A command that serves, once it has said where; stopped at the end."""
        with (cwd / "stderr.log").open("a+") as log:
            process = subprocess.Popen(
                ["dragoman", *words],
                cwd=cwd,
                env=self.environ | environ,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                found = re.search(r"http://[^\s/]+", line)
                log.seek(0)
                assert found, line + log.read()
                yield Started(process, found[0])
            finally:
                process.send_signal(signal.SIGTERM)
                process.communicate(timeout=LIMIT)

    @contextmanager
    def serving(self, file: str, cwd: Path) -> Iterator[str]:
        """`dragoman serve FILE` on a free port; its address."""
        with self.started("serve", file, "--port", "0", "--allow-private", cwd=cwd) as started:
            yield started.address

    @contextmanager
    def listening(
        self, cwd: Path, *, count: int, token: str
    ) -> Iterator[tuple[str, Callable[[], str]]]:
        """`dragoman listen` for `count` calls: its address, and what it had printed at its end."""
        words = ("listen", "--port", "0", "--count", str(count))
        with self.started(*words, cwd=cwd, DRAGOMAN_HOOK_TOKEN=token) as started:
            yield started.address, lambda: started.process.communicate(timeout=LIMIT)[0]


@dataclass(frozen=True)
class Started:
    """A process that serves, and where."""

    process: subprocess.Popen[str]
    address: str


def install(tree: Path, wheel: Path, folder: Path, python: str, extra: str) -> Environment:
    """An empty environment with what we are and ask for ourselves: with all extras as the README
    says, from the tree, and otherwise from the wheel."""
    _do([python, "-m", "venv", "--without-pip", str(folder)])
    _add_pip(folder)
    made = Environment(folder, extra)
    wanted = f"{wheel}[{extra}]" if extra else str(wheel)
    command = README_INSTALL if extra == "all" else shlex.join(("pip", "install", wanted))
    done = made.run("sh", "-ec", command, cwd=tree)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return made


def _add_pip(folder: Path) -> None:
    """Adds a `pip` like that of the environment, only sooner: it need not be made. In `make test`
    another program does what it installs."""
    python = str(folder / "bin" / "python")
    quick = [OWN, str(ROOT / "tests" / "packages.py"), "--into", python]
    lines = ["#!/bin/sh", f'exec {shlex.join(pip(folder))} "$@"']
    if not FULL:
        lines.insert(1, f'[ "$1" = install ] && shift && exec {shlex.join(quick)} "$@"')
    own = folder / "bin" / "pip"
    own.write_text("\n".join(lines) + "\n")
    own.chmod(0o755)


def pip(folder: Path) -> list[str]:
    """Our pip, at work in that environment."""
    return [OWN, "-m", "pip", "--python", str(folder / "bin" / "python")]


def _do(command: list[str]) -> None:
    done = subprocess.run(command, env=ENVIRON, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
