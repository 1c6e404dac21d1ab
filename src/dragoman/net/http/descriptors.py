"""Our own descriptors: which are connections, whose, how much went over them; and how to end one.

Granian and gRPC hold the connections and tell nothing about them. They are descriptors of this
process all the same, which Linux lists. All of this only reads, except `shut_down`.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
from contextlib import suppress
from pathlib import Path

RESERVE = 256
"""Descriptors kept for files, logs and what the agent opens."""
_LIST = Path("/proc/self/fd")
AVAILABLE = _LIST.is_dir()
"""Whether this system lists them."""
_BYTES = struct.Struct("@QQ")
_BYTES_ACKED = 120
"""Where `tcpi_bytes_acked` and `tcpi_bytes_received` stand in `struct tcp_info` (Linux 4.1)."""
_ABORT = struct.pack("ii", 1, 0)
"""For SO_LINGER: what was not read yet is dropped."""


def open_descriptors() -> tuple[list[int], int]:
    """All that are open, and how many there may be; 0 if there is no limit."""
    limit = _soft_limit()
    try:
        return [int(each) for each in os.listdir(_LIST)], limit
    except OSError:  # none is left to look with
        return list(range(limit)), limit


def spare() -> int:
    """How many may be connections."""
    limit = _soft_limit()
    return limit - min(RESERVE, limit // 2) if limit else 1 << 30


def _soft_limit() -> int:
    try:
        import resource
    except ModuleNotFoundError:  # Windows has no such limit
        return 0
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 0 if soft == resource.RLIM_INFINITY else soft


def socket_inode(fd: int) -> int:
    """What tells a socket from all others, those that had or will have this descriptor too; 0 if
    it is none."""
    try:
        found = os.fstat(fd)
    except OSError:  # closed by now
        return 0
    return found.st_ino if stat.S_ISSOCK(found.st_mode) else 0


def _borrowed(fd: int) -> socket.socket:
    """A socket object for a descriptor that is not ours to close: `detach` it in the end. It does
    not read addresses: which version of IP they are of would cost three more system calls."""
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=fd)


def peer(fd: int, port: int) -> tuple[str, str] | None:
    """Address and port of the other end, if this is a connection to our port."""
    try:
        sock = socket.socket(fileno=fd)  # it finds out itself which version of IP this is
    except OSError:  # closed by now
        return None
    try:
        ours = sock.getsockname()
        if not isinstance(ours, tuple) or len(ours) < 2 or ours[1] != port:
            return None
        there = sock.getpeername()
        # A socket for both versions of IP has addresses of the older one in a form of its own.
        return str(there[0]).partition("%")[0].removeprefix("::ffff:"), str(there[1])
    except OSError:  # not TCP, or not connected
        return None
    finally:
        sock.detach()


def transferred(fd: int) -> tuple[int, int]:
    """Bytes that the peer acknowledged, and that it sent; zeros where the system does not tell."""
    sock = _borrowed(fd)
    try:
        told = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_ACKED + _BYTES.size)
        acked, received = _BYTES.unpack_from(told, _BYTES_ACKED)
        return acked, received
    except (OSError, struct.error):
        return 0, 0
    finally:
        sock.detach()


def shut_down(fd: int, inode: int, *, abort: bool) -> bool:
    """Ends a connection, if the descriptor still is that connection's. With `abort` nothing of
    what was not read yet stays."""
    with suppress(OSError):
        try:
            # While we hold a descriptor of our own, the connection cannot turn into another.
            held = os.dup(fd)
        except OSError:  # none is left
            held = fd
        sock = _borrowed(held)
        try:
            if socket_inode(held) != inode:
                return False
            if abort:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
            sock.shutdown(socket.SHUT_RDWR)
        finally:
            sock.detach()
            if held != fd:
                os.close(held)
        return True
    return False
