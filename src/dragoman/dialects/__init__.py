"""The table of all dialects, which the server, the client, the gateway, the doctor and the tests
read."""

from dragoman.core.dialect import Dialect
from dragoman.core.errors import ConfigError

from .a2a import DIALECTS as A2A
from .iat import DIALECTS as IAT
from .lite import DIALECTS as LITE
from .xiaoyi import DIALECTS as XIAOYI

DIALECTS: dict[str, Dialect] = {each.name: each for each in (*A2A, *IAT, *XIAOYI, *LITE)}
"""The dialects by name. Newer versions come first, which is the order in which clients prefer
them."""


def register(dialect: Dialect) -> None:
    """Adds a dialect of your own, which is served and called from now on."""
    if dialect.name in DIALECTS:
        raise ConfigError(f"There is a dialect {dialect.name!r} already.")
    DIALECTS[dialect.name] = dialect


__all__ = ["DIALECTS", "register"]
