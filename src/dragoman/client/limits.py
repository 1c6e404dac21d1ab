"""How long, how often and how much: every limit of the client in one place."""

from __future__ import annotations

from msgspec import Struct

MIB = 1024 * 1024


class ClientLimits(Struct, frozen=True, kw_only=True):
    """Times in seconds, sizes in bytes."""

    connect: float = 10.0
    """To reach the other side."""
    answer: float = 30.0
    """For an answer that nobody has to work for."""
    wait: float = 330.0
    """For an answer that waits for the agent. Our own server waits 300."""
    idle: float = 60.0
    """Of silence in a stream, before the connection is taken for dead and made anew."""
    patience: float = 60.0
    """Without any sign of life after a stream broke, before it is given up; some tries at least."""
    retries: int = 4
    """How often a call is tried again where that is safe."""
    backoff: float = 0.2
    """Before the first repetition; each time twice as long, with jitter,"""
    backoff_most: float = 10.0
    """at most this, and at most this is waited when the other side says Retry-After."""
    poll: float = 0.5
    """Between two looks at a task, where the other side has no streams; grows to ten times that."""
    connections: int = 1000
    """At once with one origin; every open stream is one, except over HTTP/2."""
    interfaces: int = 16
    """Of a card; those behind are not looked at."""
    card_size: int = MIB
    answer_size: int = 32 * MIB
    event_size: int = 16 * MIB
    file_size: int = 100 * MIB
    """Of a file that is sent or fetched."""
