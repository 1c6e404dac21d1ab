"""The user's credentials for an origin, from a callback, the environment or `credentials.toml`.

The name of a variable contains the host (`DRAGOMAN_LOGIN_AGENT_EXAMPLE_COM_TOKEN`). Two hosts must
never share a variable, or one would be sent the other's secret. Therefore a dot becomes one
underscore, a hyphen becomes two, and hosts with underscores have no variables.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from dragoman.core.auth_schemes import Secret
from dragoman.core.errors import BadParams, ConfigError
from dragoman.security.verifiers import read_secret

from ..credentials import PORTS, Certificate, origin_of
from . import private_files
from .origins import is_safe, shown

PREFIX = "DRAGOMAN_LOGIN_"


class Own(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A user's credentials for one origin. `repr` shows the names of the fields, never values."""

    token: str = ""
    """A fixed bearer token."""
    api_key: str = ""
    user: str = ""
    password: str = ""
    client_id: str = ""
    """The id of the OAuth client that the authorization server knows."""
    client_secret: str = ""
    """The secret of the OAuth client; public clients have none."""
    scopes: tuple[str, ...] = ()
    """The scopes to ask for instead of those on the card."""
    audience: str = ""
    """The audience, for authorization servers that require one in the request."""
    issuer: str = ""
    """The only authorization server to which the client's secret may be sent."""
    cert: str = ""
    """The path of the client certificate."""
    cert_key: str = ""
    """The path of its key, if that is in another file."""
    also: tuple[str, ...] = ()
    """Other origins that may be sent the same credentials."""
    schemes: dict[str, Own] = {}
    """The credentials by the name of the scheme, for cards that have several schemes of one
    kind."""

    def __repr__(self) -> str:
        return f"Own({', '.join(name for name, value in asdict(self).items() if value)})"

    def for_scheme(self, name: str) -> Own:
        """Returns the credentials for this scheme of the card."""
        special = self.schemes.get(name)
        if special is None:
            return self
        return replace(self, **{key: value for key, value in asdict(special).items() if value})


Ask = Callable[[str], Awaitable[Own | None]]
"""A function that returns the credentials for an origin (`https://host:port`), or None to look
elsewhere."""

_SECRETS = ("token", "api_key", "password", "client_secret")
_FIELDS = (
    *("token", "api_key", "user", "password", "client_id", "client_secret"),
    *("scopes", "audience", "issuer", "cert", "cert_key"),
)
"""The fields that a variable may hold. None is the end of another, so no name has two meanings."""


class UserCredentials:
    """Finds credentials by origin, in the first of the three sources that knows the origin."""

    def __init__(
        self,
        *,
        ask: Ask | None = None,
        environ: Mapping[str, str] | None = None,
        file: Path | None = None,
        shared: Mapping[str, str] | None = None,
    ) -> None:
        self._ask = ask
        self._shared = shared or {}
        """Maps an origin without credentials to the origin whose credentials it may be sent."""
        self._environ = environ or {}
        self._file = _from_file(file) if file is not None else {}

    @classmethod
    def of(
        cls,
        environ: Mapping[str, str],
        ask: Ask | None = None,
        shared: Mapping[str, str] | None = None,
    ) -> UserCredentials:
        """Reads the user's own credentials: variables, then `credentials.toml` in the user's
        folder."""
        file = private_files.folder(environ) / private_files.CREDENTIALS
        return cls(ask=ask, environ=environ, file=file, shared=shared)

    async def find(self, origin: str) -> tuple[str, Own]:
        """Returns the credentials for an origin, and their owner: the origin itself, or another one
        that shares them with it.

        There are none for an origin over plain http, where others could read a secret.
        """
        if not is_safe(origin):
            return origin, Own()
        if self._ask is not None and (given := await self._ask(origin)) is not None:
            return origin, given
        return self.known(origin)

    def known(self, origin: str) -> tuple[str, Own]:
        """Returns the same as `find`, but does not ask the callback."""
        if not is_safe(origin):
            return origin, Own()
        if (told := self._from_environ(origin)) is not None:
            return origin, told
        if origin in self._file:
            return origin, self._file[origin]
        for owner, own in self._file.items():
            if origin in own.also:
                return owner, own
        if (of := self._shared.get(origin, origin)) != origin:
            return self.known(of)
        return origin, Own()

    def certificate(self, origin: str) -> Certificate | None:
        """Returns the client certificate for an origin."""
        _, own = self.known(origin)
        return Certificate(own.cert, own.cert_key) if own.cert else None

    def _from_environ(self, origin: str) -> Own | None:
        name = variable(origin)
        if not name:
            return None
        found = {
            field: value
            for field in _FIELDS
            if (value := self._environ.get(f"{name}_{field.upper()}", ""))
        }
        if not found:
            return None
        scopes = tuple(found.pop("scopes", "").split())
        return msgspec.convert({**found, "scopes": scopes}, Own)


def variable(origin: str) -> str:
    """Returns the prefix of an origin's variables, or an empty text if it can have none."""
    scheme, _, rest = origin.partition("://")
    host, _, port = rest.rpartition(":")
    if not host.replace("-", "").replace(".", "").isalnum() or not host.isascii():
        return ""
    words = host.upper().replace("-", "__").replace(".", "_")
    return f"{PREFIX}{words}" + ("" if port == str(PORTS[scheme]) else f"_{port}")


def _from_file(path: Path) -> dict[str, Own]:
    content = private_files.read_private(path)
    if content is None:
        return {}
    import tomllib  # most people have no such file

    try:
        said = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        why = "not text" if isinstance(exc, UnicodeDecodeError) else str(exc)
        raise ConfigError(f"{path}: {why}") from None
    return {_origin(path, name): _own(path, name, about) for name, about in said.items()}


def _origin(path: Path, name: str) -> str:
    """Returns a table's name as an origin; a bare host means https."""
    try:
        origin = origin_of(name if "://" in name else f"https://{name}")
    except BadParams:
        raise ConfigError(f"{path}: ['{name[:200]}'] is not the address of an agent.") from None
    if not is_safe(origin):
        raise ConfigError(f"{path}: ['{name}'] is plain http; nothing secret is sent there.")
    return origin


def _own(path: Path, name: str, about: object) -> Own:
    """Reads one table, and the secrets that it refers to in variables and files."""
    if not isinstance(about, dict):
        raise ConfigError(f"{path}: '{name[:200]}' must be a table of an origin: [\"https://...\"]")
    given = dict(about)
    for field in _SECRETS:
        if isinstance(given.get(field), dict):
            try:
                where = msgspec.convert(given[field], Secret)
            except msgspec.ValidationError as exc:
                raise ConfigError(f"{path}: ['{name}'] {field}: {exc}") from None
            given[field] = read_secret(where, f"{path}: ['{name}'] {field}")
    if isinstance(given.get("schemes"), dict):
        given["schemes"] = {
            scheme: _own(path, f"{name}'.schemes.'{scheme}", each)
            for scheme, each in given["schemes"].items()
        }
    if isinstance(given.get("also"), list):
        given["also"] = [_origin(path, each) for each in given["also"] if isinstance(each, str)]
    try:
        return msgspec.convert(given, Own)
    except msgspec.ValidationError as exc:  # names fields and types, never values
        raise ConfigError(f"{path}: ['{name}']: {exc}") from None


def described(origin: str) -> str:
    """Returns the places for an origin's credentials, as a phrase for a message."""
    name = variable(origin)
    where = f'["{shown(origin)}"] in {private_files.CREDENTIALS}'
    return f"{where} or {name}_..." if name else where
