"""All limits of the client: times, retries and sizes."""

from __future__ import annotations

from msgspec import Struct

MIB = 1024 * 1024


class ClientLimits(Struct, frozen=True, kw_only=True):
    """The limits of one connection. Times are in seconds, sizes in bytes."""

    connect: float = 10.0
    """The time to open a connection."""
    answer: float = 30.0
    """The time for a response that does not wait for a task."""
    wait: float = 330.0
    """The time for a response that waits for a task. Our own server waits 300."""
    idle: float = 60.0
    """The time without data after which the connection of a stream is replaced."""
    patience: float = 60.0
    """The time without any response after which a broken stream is given up, after at least
    `attempts` attempts."""
    attempts: int = 3
    """The least number of attempts in a row before a broken stream is given up."""
    retries: int = 4
    """The number of retries of a call, where a retry is safe."""
    backoff: float = 0.2
    """The delay before the first retry; it doubles each time, with jitter."""
    backoff_most: float = 10.0
    """The longest delay before a retry, also if the agent sends Retry-After."""
    prefer_again: float = 30.0
    """The time after which a preferred interface that could not be reached is tried again, while
    another one is in use."""
    poll: float = 0.5
    """The time between two polls of a task at an agent without streams; it grows tenfold."""
    connections: int = 1000
    """Concurrent connections to one origin; every open stream is one, except over HTTP/2."""
    interfaces: int = 16
    """The number of interfaces of a card that are considered."""
    card_size: int = MIB
    answer_size: int = 32 * MIB
    event_size: int = 16 * MIB
    task_size: int = 128 * MIB
    """The size of a task that the events of a stream add up to, a little for each event included.
    The client keeps this task so that it can resume the stream, also for callers that only iterate
    over the events. Our own server stops tasks at 64 MiB."""
    file_size: int = 100 * MIB
    """The size of a file that is sent or downloaded."""
