"""Opens files under a folder and nothing else, even if other processes change the tree.

Theory. A path that is checked and then opened may have changed in between: someone puts a symbolic
link where a folder was. So nothing here checks first. A path is split into steps (`steps_of`
refuses every step that leads up), and the steps are walked from a descriptor of the root, either by
the kernel in one call (`openat2`, Linux 5.6) or by us, each from the descriptor of the one before,
without following links. The opened file is then examined through its own descriptor, which nobody
can exchange.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePath

from dragoman.core.errors import WorkspaceViolation

Steps = tuple[str, ...]
Door = Callable[[int, Steps, int, int], int]
"""(root, steps, flags, mode) -> descriptor; raises `OSError` with `ELOOP` or `EXDEV` if the path
leads out of the root."""

MOST_STEPS = 64
MOST_SHOWN = 200

PASSING = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0)
"""The flags to open a folder in the middle of a path. With `O_PATH` it need not be readable."""
FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
# Opening a pipe must not block, and a terminal must not become our controlling terminal.
_CAREFUL = (
    getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
)

_O_PATH = getattr(os, "O_PATH", 0)
# The flags that are allowed with O_PATH, which opens nothing; openat2 refuses all others.
_PASSING_BY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)

_FOREIGN = re.compile(r"[\0\\]|^[A-Za-z]:|[\ud800-\udfff]")
"""NUL, and separators of other systems (backslashes, drives), so that a path means the same on
every system."""


def steps_of(path: str | PurePath) -> Steps:
    """Splits a path into names; () is the root itself. Raises `WorkspaceViolation` for `..`,
    absolute paths, and everything else that is not a plain relative path."""
    text = str(path) if isinstance(path, PurePath) else path
    if not isinstance(text, str) or text.startswith("/") or _FOREIGN.search(text):
        raise violation(path)
    steps = tuple(step for step in text.split("/") if step not in ("", "."))
    if ".." in steps or len(steps) > MOST_STEPS:
        raise violation(path)
    return steps


def violation(path: object, why: str = "lies outside of the workspace") -> WorkspaceViolation:
    """Returns the error for a path that leads out of the workspace."""
    shown = ascii(str(path)[:MOST_SHOWN])[1:-1]
    return WorkspaceViolation(f"`{shown}` {why}", path=shown)


# The two implementations.


def _careful(flags: int) -> int:
    return flags | (_PASSING_BY if flags & _O_PATH else _CAREFUL)


class _How(ctypes.Structure):
    """`struct open_how` of openat2(2)."""

    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


_OPENAT2 = 437  # the same on every architecture but Alpha
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
_TRIES = 64


def by_kernel(root: int, steps: Steps, flags: int, mode: int = 0) -> int:
    """Opens with openat2: the kernel guarantees that the whole path is under the root."""
    create = bool(flags & os.O_CREAT)
    resolve = _BENEATH | _NO_SYMLINKS | _NO_MAGICLINKS
    # NO_SYMLINKS returns ELOOP for the last step too, unless O_NOFOLLOW asks for the link itself.
    how = _How(_careful(flags) & ~os.O_NOFOLLOW, mode if create else 0, resolve)
    path = os.fsencode("/".join(steps) or ".")
    for _ in range(_TRIES):
        found: int = _libc().syscall(_OPENAT2, root, path, ctypes.byref(how), ctypes.sizeof(how))
        if found >= 0:
            return found
        code = ctypes.get_errno()
        # EAGAIN: the tree was moved during the walk, so the kernel cannot guarantee anything.
        if code not in (errno.EAGAIN, errno.EINTR):
            raise OSError(code, os.strerror(code))
    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))


def _libc() -> ctypes.CDLL:
    global _loaded
    if _loaded is None:
        _loaded = ctypes.CDLL(None, use_errno=True)
        _loaded.syscall.restype = ctypes.c_long
        _loaded.syscall.argtypes = (
            *(ctypes.c_long, ctypes.c_int, ctypes.c_char_p),
            *(ctypes.POINTER(_How), ctypes.c_size_t),
        )
    return _loaded


_loaded: ctypes.CDLL | None = None


def by_steps(root: int, steps: Steps, flags: int, mode: int = 0) -> int:
    """Opens step by step, each from the folder before it, without following a link."""
    here, last = root, steps[-1] if steps else "."
    try:
        for step in steps[:-1]:
            there = _step(step, PASSING, 0, here)
            if here != root:
                os.close(here)
            here = there
        return _step(last, flags, mode, here)
    finally:
        if here != root:
            os.close(here)


def _step(name: str, flags: int, mode: int, folder: int) -> int:
    try:
        found = os.open(name, _careful(flags), mode, dir_fd=folder)
    except NotADirectoryError:
        # O_DIRECTORY returns the same error for a link. This check only chooses the error text.
        if _is_link(name, folder):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
        raise
    if stat.S_ISLNK(os.fstat(found).st_mode):  # O_PATH opens a link itself
        os.close(found)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return found


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def best_door(root: int) -> Door | None:
    """Returns the safest implementation that this system supports; None if it supports none, so
    that there are no workspaces."""
    if sys.platform == "linux":
        try:
            os.close(by_kernel(root, (), PASSING))
        except OSError:  # an older kernel, or a sandbox that does not know the call
            pass
        else:
            return by_kernel
    needed = {os.open, os.stat, os.mkdir, os.unlink, os.rmdir, os.rename}
    return by_steps if needed <= os.supports_dir_fd and hasattr(os, "O_NOFOLLOW") else None


class Root:
    """The open root of a workspace, from which everything beneath it is opened."""

    def __init__(self, descriptor: int, door: Door) -> None:
        self._descriptor = descriptor
        self._door = door
        self._closed = False

    def open(self, steps: Steps, flags: int, mode: int = 0) -> int:
        """Returns a descriptor of the file at the path. Raises the `OSError` of the system."""
        if self._closed:
            raise OSError(errno.EBADF, "The workspace is closed")
        return self._door(self._descriptor, steps, flags, mode)

    def close(self) -> None:
        """Makes sure that nothing can be opened any more.

        The descriptor itself is closed with its last reference: a thread that is about to use its
        number must not reach another folder.
        """
        self._closed = True

    def __del__(self) -> None:
        os.close(self._descriptor)


_OUT = frozenset((errno.ELOOP, errno.EXDEV, errno.EMLINK))
"""The errors of a path that leads out. FreeBSD returns EMLINK for a link that is not followed."""


class _Given(str):
    """Returns a path as it was given."""

    __slots__ = ()


@contextmanager
def told_of(path: object) -> Iterator[None]:
    """Makes errors name the path as it was passed, never its location on this machine."""
    try:
        yield
    except OSError as exc:
        if isinstance(exc.filename, _Given):
            raise
        if exc.errno in _OUT:
            raise violation(path, "leads through a link") from None
        raise OSError(exc.errno, exc.strerror, _Given(path)) from None
