"""A command on a terminal of its own: what is typed, and what a person would see."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyte

from cli.run import ENVIRON

WIDTH, HEIGHT = 80, 200


class Terminal:
    """A pseudo-terminal with a screen."""

    def __init__(self, process: subprocess.Popen[bytes], handle: int, width: int = WIDTH) -> None:
        self.process, self._handle = process, handle
        self._screen = pyte.Screen(width, HEIGHT)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""

    @property
    def text(self) -> str:
        """What stands on the screen."""
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip()

    def type(self, text: str) -> None:
        """Keys, as they come from a keyboard."""
        os.write(self._handle, text.encode())

    def until(self, words: str, seconds: float = 120) -> None:
        """Waits for these words to be on the screen."""
        self._read(lambda: words in self.text, seconds)
        assert words in self.text, self.text

    def count(self, words: str) -> int:
        """How often these words are on the screen by now."""
        self._read(lambda: not select.select([self._handle], [], [], 0)[0], 120)
        return self.text.count(words)

    def ends(self, seconds: float = 120) -> int:
        """The exit code."""
        self._read(lambda: self.process.poll() is not None, seconds)
        self._read(lambda: False, seconds)  # to the end of what it said
        return self.process.wait(1)

    @property
    def echoes(self) -> bool:
        """Whether keys are shown as they are typed."""
        return bool(termios.tcgetattr(self._handle)[3] & termios.ECHO)

    def interrupt(self) -> None:
        """Ctrl-C, as the terminal does it for the processes in front."""
        self.process.send_signal(signal.SIGINT)

    def _read(self, done: object, seconds: float) -> None:
        assert callable(done)
        until = time.monotonic() + seconds
        while not done() and time.monotonic() < until:
            if not select.select([self._handle], [], [], 0.05)[0]:
                continue
            try:
                got = os.read(self._handle, 65536)
            except OSError:  # the other side is gone
                return
            self.raw += got
            self._stream.feed(got)


@contextmanager
def terminal(*args: str, cwd: Path, width: int = WIDTH, **environ: str) -> Iterator[Terminal]:
    """`dragoman ARGS` on a terminal of 80 columns, or of so many."""
    ours, theirs = pty.openpty()
    known = {**ENVIRON, "TERM": "xterm", "COLUMNS": str(width), "LINES": "50", **environ}
    process = subprocess.Popen(
        [sys.executable, "-m", "dragoman", *args],
        cwd=cwd,
        env={**known, "DRAGOMAN_CONFIG_DIR": str(cwd / "config")},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours, width)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(ours)


def settled(text: str, url: str) -> str:
    """A session as it stands in the docs: what differs each time is replaced."""
    text = text.replace(url, "http://127.0.0.1:8420")
    text = re.sub(
        r"\b[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]{21}\b", "01a1e1da-5641-7000-82dc-fbcab3239055", text
    )
    return re.sub(r"in \d+\.\d s", "in 0.1 s", text)
