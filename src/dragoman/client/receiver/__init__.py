"""Receives webhooks: verifies the sender, parses every version of A2A, delivers each event once."""

from .app import Receiver
from .notice import Notice
from .parse import entry_in, read
from .verify import Issuer, Proof, prove

__all__ = ["Issuer", "Notice", "Proof", "Receiver", "entry_in", "prove", "read"]
