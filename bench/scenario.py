"""What a scenario is."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from .peers import Server
from .sample import Pace, Sample


@dataclass(frozen=True, slots=True)
class Scenario:
    """One kind of load, and the servers it is put on."""

    name: str
    title: str
    run: Callable[[Server, Pace], Awaitable[Sample]]
    subjects: tuple[str, ...]
    store: str = "memory"
    # What one unit of `cpu_us` and `per_second` is.
    unit: str = "request"
    grpc: bool = False
    # What the subjects do if they are clients of our server, and the CPU is theirs.
    clients: Literal["", "send", "stream"] = ""
    # Whether the server shares all cores with the load, because it has several processes.
    spread: bool = False
    # The most rounds in which it is run; what takes long or varies little needs no more.
    rounds: int = 99
