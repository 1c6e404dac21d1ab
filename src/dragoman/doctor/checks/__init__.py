"""All checks; importing this fills the table."""

from . import (
    card,
    card_served,
    envelope,
    extras,
    grpc,
    inputs,
    listing,
    push,
    rest,
    send,
    streams,
    tasks,
)

__all__ = [
    "card",
    "card_served",
    "envelope",
    "extras",
    "grpc",
    "inputs",
    "listing",
    "push",
    "rest",
    "send",
    "streams",
    "tasks",
]
