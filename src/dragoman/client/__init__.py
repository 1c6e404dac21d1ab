"""Talks to any agent: `connect(address)` reads its card, chooses how to speak, and keeps at it."""

from .agent import RemoteAgent
from .connecting import connect
from .conversation import Conversation
from .credentials import Auth, Certificate, Credentials
from .events import Events
from .limits import Limits

__all__ = [
    "Auth",
    "Certificate",
    "Conversation",
    "Credentials",
    "Events",
    "Limits",
    "RemoteAgent",
    "connect",
]
