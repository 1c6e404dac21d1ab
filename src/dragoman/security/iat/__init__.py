"""Authentication of IAT messages: sessions, signatures, and who may open a session."""

from .authenticator import JOINING, PROVED, UNREAD, IatAuthenticator
from .sessions import LOOK, MARK, IatSession, Sessions
from .signatures import Signatures

__all__ = [
    "JOINING",
    "LOOK",
    "MARK",
    "PROVED",
    "UNREAD",
    "IatAuthenticator",
    "IatSession",
    "Sessions",
    "Signatures",
]
