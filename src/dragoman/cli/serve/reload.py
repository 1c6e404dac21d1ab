"""`dragoman serve --reload`: a parent that starts the server again when a file changes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

PAUSE = 0.4
IGNORED = {".git", ".venv", "venv", "__pycache__", "node_modules", ".mypy_cache", ".ruff_cache"}


def watch(folders: Sequence[Path]) -> None:
    """Runs the same command without `--reload`, and starts it again after every change, until
    Ctrl-C."""
    command = [sys.executable, "-m", "dragoman", *(a for a in sys.argv[1:] if a != "--reload")]
    environ = {**os.environ, "DRAGOMAN_SERVER_RELOAD": "false"}
    stopped = False

    def heard(number: int, frame: object) -> None:
        nonlocal stopped
        stopped = True

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, heard)
    while not stopped:
        before = snapshot(folders)
        # It has a session of its own: Ctrl-C is for us, and a second one would interrupt its
        # shutdown.
        child = subprocess.Popen(command, env=environ, start_new_session=True)  # noqa: S603
        while not stopped and snapshot(folders) == before:
            time.sleep(PAUSE)  # a file watcher would not be worth a dependency here
        if not stopped:
            print("dragoman: files changed, starting again", file=sys.stderr)
        end(child)


def snapshot(folders: Sequence[Path]) -> dict[str, int]:
    """Returns when each Python or TOML file under the folders was last changed."""
    found: dict[str, int] = {}
    for root, inside, files in chain.from_iterable(map(os.walk, dict.fromkeys(folders))):
        inside[:] = [name for name in inside if name not in IGNORED]
        for name in files:
            if name.endswith((".py", ".toml")):
                path = os.path.join(root, name)
                try:
                    found[path] = os.stat(path).st_mtime_ns
                except FileNotFoundError:  # an editor is replacing it at this moment
                    found[path] = 0
    return found


def end(child: subprocess.Popen[bytes]) -> None:
    """Tells the server to stop, which takes at most five seconds."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(6)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
