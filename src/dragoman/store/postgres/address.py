"""Reads the URL of a store on PostgreSQL: our own parameters, and the rest for the driver."""

from __future__ import annotations

import os
import re
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from dragoman.core.errors import ConfigError

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")


class PostgresAddress(Struct, frozen=True, kw_only=True):
    """Where the database is, and how we connect to it."""

    dsn: str
    """The URL for the driver. It may hold a password, so it must not be shown."""
    place: str = ""
    """The hosts and ports, or the folder of a socket, as the log tells them."""
    database: str = ""
    """The name of the database, if the URL tells it."""
    schema: str = "dragoman"
    """The schema that holds the tables."""
    connections: int = 8
    """The maximum number of connections of this process, besides those that listen."""
    statement_cache: bool = True
    """Whether statements stay prepared. A pooler that assigns connections per transaction, such as
    PgBouncer before 1.21, cannot do that."""


def parse_address(url: str) -> PostgresAddress:
    """Returns the parts of a URL. Raises `ConfigError` for a parameter that makes no sense."""
    parts = urlsplit(url)
    rest: list[tuple[str, str]] = []
    found = PostgresAddress(dsn="")
    schema, connections, cached = found.schema, found.connections, found.statement_cache
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name == "schema":
            schema = value
        elif name == "connections":
            connections = int(value) if value.isdecimal() else 0
        elif name == "statement_cache":
            cached = {"on": True, "off": False}.get(value)  # type: ignore[assignment]
        else:
            rest.append((name, value))
    if not _SCHEMA.fullmatch(schema):
        raise ConfigError("'schema' of the store must be a lower-case name of letters and digits.")
    if not 2 <= connections <= 1000:
        raise ConfigError("'connections' of the store must be a number from 2 to 1000.")
    if cached is None:
        raise ConfigError("'statement_cache' of the store must be 'on' or 'off'.")
    # libpq takes the host from the URL, from its parameter `host`, or from the environment.
    hosts = parts.netloc.rpartition("@")[2] or dict(rest).get("host", "")
    dsn = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(rest), ""))
    database = re.sub(r"[^A-Za-z0-9_-]", "_", parts.path.strip("/")) or "postgres"
    return PostgresAddress(
        dsn=dsn,
        place=hosts or os.environ.get("PGHOST", "") or "localhost",
        database=database,
        schema=schema,
        connections=connections,
        statement_cache=cached,
    )
