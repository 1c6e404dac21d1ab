"""Credentials as the card asks for them: keys, passwords, tokens, OAuth flows, certificates."""

from .asked import Field, Wanted, wanted
from .card_auth import CardAuth
from .keyring import Keyring, Own
from .login import Person
from .tokens import Kept, Tokens

__all__ = [
    "CardAuth",
    "Field",
    "Kept",
    "Keyring",
    "Own",
    "Person",
    "Tokens",
    "Wanted",
    "wanted",
]
