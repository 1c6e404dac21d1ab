"""Talks to any agent: `connect(address)` reads its card, chooses how to speak, and keeps at it."""

from .agent import RemoteAgent
from .connect import connect
from .conversation import Conversation
from .credentials import Auth, Certificate, Credentials, SharedSecret
from .event_stream import Events, TaskEvents
from .limits import ClientLimits

__all__ = [
    "Auth",
    "Certificate",
    "ClientLimits",
    "Conversation",
    "Credentials",
    "Events",
    "RemoteAgent",
    "SharedSecret",
    "TaskEvents",
    "connect",
]
