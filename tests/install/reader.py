"""A reader who does what a page says: saves its files, and types its commands one after another."""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from install.environments import README_INSTALL, Environment
from pages import Block, blocks

DONE = ("make demo", "make test", README_INSTALL)
"""Commands in a clone: other tests and the installation do them."""
PORT = 8420
"""The port that all pages name."""
_PROGRAM = r"(?:cd|curl|dragoman|make|pip|pytest)\b"
COMMAND = re.compile(rf"^{_PROGRAM}.*(?:\n(?!{_PROGRAM}).+)*", re.M)
"""A command, with the lines that continue it."""

AWAITING = """
import ast, asyncio, sys, types
code = compile(sys.stdin.read(), "page.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
asyncio.run(types.FunctionType(code, {"__name__": "__main__"})())
"""


@dataclass
class Reader:
    """Reads one page in one folder. A server runs until the page starts another one."""

    empty: Environment
    folder: Path
    port: int
    said: dict[str, str] = field(default_factory=dict)
    """Every command that was run, and what it printed."""
    _serving: ExitStack = field(default_factory=ExitStack)

    def read(self, page: Path) -> None:
        """Does all that the page says."""
        with self._serving:
            for block in blocks(page):
                if block.language == "python" and (file := _saved_as(page, block)):
                    (self.folder / file).write_text(block.text, "utf-8")
                elif block.language == "sh":
                    for command in COMMAND.findall(block.text):
                        self.type(command)
        self.type_python(page)

    def type(self, command: str) -> None:
        """Types one command."""
        if command in DONE:
            return
        if command.startswith("cd "):
            self.folder /= command.removeprefix("cd ")
        elif command.startswith("dragoman serve "):
            self._serve(command)
        else:
            typed = command.replace(f":{PORT}", f":{self.port}")
            done = self.empty.run("sh", "-ec", typed, cwd=self.folder)
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
            assert "Traceback" not in done.stderr, done.stderr
            self.said[command] = done.stdout

    def type_python(self, page: Path) -> None:
        """Types the Python of the page into `python -m asyncio`, as it says."""
        typed = "\n\n".join(block.text for block in blocks(page, "python"))
        asked = ("python", "-c", "import sys; print(sys.version_info.minor)")
        minor = int(self.empty.run(*asked, cwd=self.folder).stdout)
        # From 3.13 on the REPL takes a decorator that comes through a pipe for a whole statement.
        shell = ["-m", "asyncio"] if minor < 13 else ["-c", AWAITING]
        stdin = f"{typed}\n\nprint('typed')\n"
        done = self.empty.run("python", *shell, cwd=self.folder, stdin=stdin)
        assert done.returncode == 0, done.stderr
        assert "Error" not in done.stderr, done.stderr
        assert "typed" in done.stdout
        self.said["python"] = done.stdout

    def _serve(self, command: str) -> None:
        self._serving.close()  # Ctrl-C at what was served before
        ports = {"DRAGOMAN_SERVER_PORT": str(self.port)}
        if self.empty.extra in ("all", "grpc"):
            ports["DRAGOMAN_SERVER_GRPC_PORT"] = "0"
        server = self.empty.started(*command.split()[1:], cwd=self.folder, **ports)
        self.said[command] = self._serving.enter_context(server).address


def _saved_as(page: Path, block: Block) -> str:
    """The name that a page gives to a block: in its first line, or in the sentence above it."""
    above = page.read_text("utf-8").splitlines()[: block.line - 1]
    sentence = next((line for line in reversed(above) if line.strip()), "")
    found = re.search(r"Save this as `([\w.]+)`", sentence)
    return block.file or (found[1] if found else "")
