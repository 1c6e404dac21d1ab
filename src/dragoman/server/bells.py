"""Chooses the bell through which the processes on one store tell each other of changes."""

from __future__ import annotations

from functools import partial

from dragoman.bell import SharedBell
from dragoman.core.errors import ConfigError
from dragoman.core.log import Logger
from dragoman.settings import Settings

log = Logger("bell")

_POSTGRES = ("postgresql", "postgres")
_NATS = ("nats", "tls")
_OFF = "off"


def bell_for(settings: Settings) -> SharedBell | None:
    """Returns the bell of the settings. None: the processes look for changes by themselves, which
    is how those on one SQLite file do it. Raises `ConfigError` if there is no such bell."""
    store, bell = settings.server.store, settings.server.bell
    if store.partition(":")[0] not in _POSTGRES:
        if bell not in ("", _OFF):
            raise ConfigError("A bell is only for a store on PostgreSQL.")
        return None
    from dragoman.store.postgres.address import parse_address

    address = parse_address(store)
    # The schema alone is not enough: several databases may share a NATS server.
    channel = f"dragoman_{address.schema}"
    scheme = bell.partition(":")[0]
    if scheme in _NATS:
        try:
            from dragoman.bell.nats import NatsBell
        except ModuleNotFoundError as error:
            raise ConfigError(
                "A bell on NATS needs the extra 'nats': pip install 'dragoman[nats]'."
            ) from error
        return NatsBell(bell, f"dragoman.{address.database}.{address.schema}")
    if bell and scheme not in _POSTGRES:
        if bell == _OFF:
            return None
        raise ConfigError("'bell' must be 'off', or begin with nats:, tls: or postgresql:.")
    if not bell and not address.statement_cache:
        log.warning("A pooler loses notifications, so set 'bell' to a direct connection")
        return None
    from dragoman.bell.postgres import PostgresBell
    from dragoman.store.postgres.pool import connect

    own = parse_address(bell) if bell else address
    return PostgresBell(partial(connect, own, direct=True), channel)
