"""Hears webhooks: checks who calls, reads what any version of A2A says, tells each thing once."""

from .app import Receiver
from .notice import Notice
from .proof import Issuer, Proof, prove
from .reading import entry_in, read

__all__ = ["Issuer", "Notice", "Proof", "Receiver", "entry_in", "prove", "read"]
