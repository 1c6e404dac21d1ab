"""The checks of the doctor. Importing this package registers all of them."""

from . import (
    ask,
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
    "ask",
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
