"""`[limits]`: the resources that callers and their tasks may use."""

from __future__ import annotations

from msgspec import Struct


class EngineSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part of `[limits]` that applies to tasks: their number, their size and their times."""

    max_wait: float = 300.0
    """How long a blocking send waits."""
    max_runs: int = 10_000
    """Concurrent runs; further tasks are queued."""
    max_queue: int = 10_000
    """Queued tasks of one agent; further tasks are refused."""
    max_queue_total: int = 50_000
    """Queued tasks of all agents together."""
    runs_per_tenant: int = 0
    """Tasks of one tenant that run at a time, in all processes on one store; further ones are
    queued. 0: no limit."""
    runs_per_skill: int = 0
    """Tasks of one skill that run at a time, in all processes, unless its code says max_runs."""
    max_parked: int = 1_000
    """Runs kept in memory while they wait for their caller; the oldest is dropped."""
    max_task_size: int = 64 * 1024 * 1024
    """The size of the artifacts and messages of one task; a larger task fails."""
    max_relayed_size: int = 256 * 1024 * 1024
    """What the unfinished relayed tasks of one caller may have written together, in one process;
    the task that exceeds it fails, and further ones are refused."""
    lease: float = 30.0
    """How long an unresponsive process keeps its tasks."""
    waiting: float = 7 * 86_400.0
    """How long a task waits for its caller."""
    keep_events: float = 7 * 86_400.0
    """How long the log of a finished task is kept."""
    keep_tasks: float = 30 * 86_400.0
    """How long a finished task is kept."""


MAY_BE_ZERO = frozenset(("runs_per_tenant", "runs_per_skill"))
"""The keys of `[limits]` that may be 0, which means that there is no limit."""


class Limits(EngineSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[limits]`: the resources that callers may use. Sizes in bytes, times in seconds."""

    body_size: int = 4 * 1024 * 1024
    body_idle: float = 20.0
    """How long a request body may pause."""
    body_time: float = 120.0
    """How long a whole request body may take."""
    head_size: int = 8192
    """The size of the request line and headers, at least 8192. A larger value adds 11 KiB to the
    memory of an idle stream."""
    head_time: float = 30.0
    """How long request headers may take, and how long an idle connection is kept."""
    hello_time: float = 10.0
    """How long a new connection may take to send its first request, and a WebSocket to
    authenticate."""
    hello_size: int = 65_536
    """How much a new connection may send before its first request is complete."""
    answer_time: float = 300.0
    """How long a client may take to read a whole response."""
    http2_streams: int = 100
    """Concurrent requests on one HTTP/2 connection."""
    streams: int = 10_000
    """Concurrent streams."""
    stall: float = 30.0
    """How long the reader of a response or a stream may read nothing."""
    connections: int = 20_000
    """Concurrent connections; further ones wait in the system's queue."""
    connections_per_address: int = 2_000
    """Concurrent connections from one address, or one /64 of IPv6; trusted_proxies are exempt."""
