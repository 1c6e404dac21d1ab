"""Processes of ours, forked from one that has imported our modules already.

A start costs half a second of work, nearly all of it imports, and the tests start hundreds of
processes. `make test` forks them, `make test-full` starts them as users do (`tests/conftest.py`).

Each worker of pytest has one process that imports and forks. It forks twice, so that the new
process is an orphan, which the worker adopts: for `subprocess` and `asyncio` it is a child like any
other.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent
PR_SET_CHILD_SUBREAPER = 36
MOST = 1 << 17
"""Bytes of a request: arguments and environment."""
MOST_FILES = 256
"""More than the process that forks has open."""
AT_START = ("PYTHON", "LANG", "LC_", "TZ", "LD_", "MALLOC_", "SSL_", "GRPC_")
"""How the names of variables begin that a process reads when it starts. `PYTHONPATH` aside, where
one of these is set to something else a new process is needed."""
ENVIRON = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
LOADED = (
    "dragoman.cli",
    "dragoman.client",
    "dragoman.server",
    "dragoman.gateway",
    "dragoman.store.sqlite",
)
"""Packages whose modules are imported beforehand, and all that those import. gRPC and the packages
of chats are not: they do not expect a fork."""
LATER = {"mcp": ("mcp.server.mcpserver", "dragoman.mcp.stdio")}
"""Modules that are imported before the first process whose command has that word."""
_start = subprocess.Popen._execute_child  # type: ignore[attr-defined]


def install() -> None:
    """Forks what this process starts from now on, where it can be forked."""
    subprocess.Popen._execute_child = _execute_child  # type: ignore[attr-defined]


@contextmanager
def suspended() -> Iterator[None]:
    """Starts processes as users do, for a test that measures what a process needs."""
    now = subprocess.Popen._execute_child  # type: ignore[attr-defined]
    subprocess.Popen._execute_child = _start  # type: ignore[attr-defined]
    try:
        yield
    finally:
        subprocess.Popen._execute_child = now  # type: ignore[attr-defined]


def _execute_child(
    self: Any,
    args: Any,
    executable: Any,
    preexec_fn: Any,
    close_fds: bool,
    pass_fds: Any,
    cwd: Any,
    env: Mapping[str, str] | None,
    startupinfo: Any,
    creationflags: int,
    shell: bool,
    *rest: Any,
) -> None:
    pipes, options = rest[:6], rest[6:]
    plain = executable is None and preexec_fn is None and close_fds and not pass_fds and not shell
    environ = dict(os.environ if env is None else env)
    new_session = bool(options[5])
    # Of the rest: no other user, umask or process group.
    usual = options[:5] == (True, None, None, None, -1) and options[6:] == (-1,)
    if not (plain and usual and _can(args, environ)):
        _start(
            *(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo),
            *(creationflags, shell, *rest),
        )
        return
    stdin, stdout, stderr = (
        number if own == -1 else own for number, own in enumerate((pipes[0], pipes[3], pipes[5]))
    )
    self.pid = _template().fork(
        [os.fsdecode(word) for word in args],
        os.fsdecode(cwd or os.getcwd()),
        environ,
        [stdin, stdout, stderr],
        new_session,
    )
    self._child_created = True
    self._close_pipe_fds(*pipes)


def _can(args: Any, environ: Mapping[str, str]) -> bool:
    if not isinstance(args, list | tuple) or len(args) < 2 or args[0] != sys.executable:
        return False
    if args[1] == "-m":
        package = str(args[2]).partition(".")[0]
        ours = package == "dragoman" or (TESTS / package).is_dir()
    else:
        ours = TESTS in Path(args[1]).parents
    return ours and all(
        ENVIRON.get(name) == value
        for name, value in environ.items()
        if name.startswith(AT_START) and name != "PYTHONPATH"
    )


class _Template:
    """The process that forks, seen from the worker."""

    def __init__(self) -> None:
        self._ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        with its:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(its.fileno())],
                env=ENVIRON,
                pass_fds=[its.fileno()],
                stdin=subprocess.DEVNULL,
            )
        atexit.register(self._end)

    def fork(
        self,
        args: list[str],
        cwd: str,
        environ: dict[str, str],
        files: list[int],
        new_session: bool,
    ) -> int:
        """Starts a process and returns its id."""
        words = {"args": args, "cwd": cwd, "environ": environ, "new_session": new_session}
        request = json.dumps(words).encode()
        with self._lock:
            _adopt(True)
            try:
                socket.send_fds(self._ours, [request], files)
                return int(self._ours.recv(MOST))
            finally:  # other orphans belong to the system, which forgets them when they have ended
                _adopt(False)

    def _end(self) -> None:
        self._ours.close()
        self._process.wait()


_template = functools.cache(_Template)


def _adopt(orphans: bool) -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(orphans), 0, 0, 0)


def _serve(ours: socket.socket) -> dict[str, Any] | None:
    """Forks until the worker ends. Returns what to run in a process that was forked."""
    while True:
        request, files, _, _ = socket.recv_fds(ours, MOST, 3)
        if not request:
            return None
        wanted: dict[str, Any] = json.loads(request)
        for word, modules in LATER.items():
            if any(word in each for each in wanted["args"][1:4]):
                for module in modules:
                    importlib.import_module(module)
        said, saying = os.pipe()
        adopted, adopting = os.pipe()
        middle = os.fork()
        if not middle:
            if os.fork():
                os._exit(0)
            if wanted.pop("new_session"):
                os.setsid()
            os.write(saying, str(os.getpid()).encode())
            os.close(adopting)
            os.read(adopted, 1)  # ends when the worker is the parent
            for number, file in enumerate(files):
                os.dup2(file, number)
            return wanted
        os.close(saying)
        os.close(adopted)
        pid = os.read(said, 100)
        os.waitpid(middle, 0)
        os.close(adopting)
        ours.send(pid)
        for file in (said, *files):
            os.close(file)


def _become(args: list[str], cwd: str, environ: dict[str, str]) -> None:
    """Makes this process what its arguments would have started, and runs the module or script."""
    os.closerange(3, MOST_FILES)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environ)
    for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        old = getattr(sys, f"__{name}__")
        terminal = os.isatty(number)
        new = io.TextIOWrapper(
            open(number, "wb" if number else "rb", -1, closefd=False),  # noqa: SIM115
            old.encoding,
            old.errors,
            newline="\n" if number else None,
            line_buffering=terminal or number == 2,
            write_through=old.write_through,
        )
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.path[:0] = filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.orig_argv = args
    sys.argv[:] = args[1:]  # in place: modules that were imported may hold it
    if args[1] == "-m":
        sys.path.insert(0, cwd)
        del sys.argv[1]
        runpy.run_module(args[2], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, os.path.dirname(args[1]))
        runpy.run_path(args[1], run_name="__main__")


def _main() -> None:
    del sys.path[0]  # the folder of this file
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for those that were forked
    for name in LOADED:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            importlib.import_module(module.name)
    gc.collect()
    gc.freeze()
    ours = socket.socket(fileno=int(sys.argv[1]))
    request = _serve(ours)
    if request is not None:
        ours.detach()
        _become(**request)


if __name__ == "__main__":
    _main()
