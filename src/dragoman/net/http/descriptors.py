"""Examines the file descriptors of this process: peers and byte counts of connections.

Granian and gRPC own the connections and do not list them, but Linux lists the descriptors of a
process. Everything here only reads, except `shut_down`.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
from contextlib import suppress
from pathlib import Path

RESERVE = 256
"""The number of descriptors reserved for files, logs and the agent's own use."""
_LIST = Path("/proc/self/fd")
AVAILABLE = _LIST.is_dir()
"""Whether this system lists descriptors."""
_BYTES = struct.Struct("@QQ")
_BYTES_ACKED = 120
"""The offset of `tcpi_bytes_acked` and `tcpi_bytes_received` in `struct tcp_info` (Linux 4.1)."""
_ABORT = struct.pack("ii", 1, 0)
"""The value of SO_LINGER with which unsent data is dropped."""


def open_descriptors() -> tuple[list[int], int]:
    """Returns the open descriptors, and the limit of their number (0 without a limit)."""
    limit = _soft_limit()
    try:
        return [int(each) for each in os.listdir(_LIST)], limit
    except OSError:  # there is no descriptor left to list the folder with
        return list(range(limit)), limit


def spare() -> int:
    """Returns how many descriptors connections may use."""
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
    """Returns the inode of a socket, or 0 if the descriptor is no socket. Descriptors are reused,
    inodes of open sockets are unique."""
    try:
        found = os.fstat(fd)
    except OSError:  # closed by now
        return 0
    return found.st_ino if stat.S_ISSOCK(found.st_mode) else 0


def _borrowed(fd: int) -> socket.socket:
    """Returns a socket object for a descriptor that is not ours to close, so `detach` it at the
    end. It cannot read addresses: finding out the version of IP would cost three system calls."""
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=fd)


def peer(fd: int, port: int) -> tuple[str, str] | None:
    """Returns the address and port of the client, or None if this is no connection to our port."""
    try:
        sock = socket.socket(fileno=fd)  # the constructor finds out the version of IP
    except OSError:  # closed by now
        return None
    try:
        ours = sock.getsockname()
        if not isinstance(ours, tuple) or len(ours) < 2 or ours[1] != port:
            return None
        there = sock.getpeername()
        # A socket for both versions of IP shows IPv4 addresses as IPv4-mapped IPv6 addresses.
        return str(there[0]).partition("%")[0].removeprefix("::ffff:"), str(there[1])
    except OSError:  # not TCP, or not connected
        return None
    finally:
        sock.detach()


def transferred(fd: int) -> tuple[int, int]:
    """Returns the bytes that the client has acknowledged and sent, or zeros if the system does not
    tell."""
    try:
        sock = _borrowed(fd)
    except OSError:  # closed by now
        return 0, 0
    try:
        told = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_ACKED + _BYTES.size)
        acked, received = _BYTES.unpack_from(told, _BYTES_ACKED)
        return acked, received
    except (OSError, struct.error):
        return 0, 0
    finally:
        sock.detach()


def shut_down(fd: int, inode: int, *, abort: bool) -> bool:
    """Shuts a connection down, if the descriptor still belongs to it. With `abort`, unsent data is
    dropped."""
    with suppress(OSError):
        try:
            # Our own duplicate keeps the connection open, so that the descriptor cannot be reused
            # between the check and the shutdown.
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
