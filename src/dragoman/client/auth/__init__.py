"""The credentials that a card asks for: keys, passwords, tokens, OAuth flows, certificates."""

from .card_auth import CardAuth
from .credential_request import CredentialRequest, Field, wanted
from .login_flows import Person
from .token_store import StoredToken, TokenStore
from .user_credentials import Own, UserCredentials

__all__ = [
    "CardAuth",
    "CredentialRequest",
    "Field",
    "Own",
    "Person",
    "StoredToken",
    "TokenStore",
    "UserCredentials",
    "wanted",
]
