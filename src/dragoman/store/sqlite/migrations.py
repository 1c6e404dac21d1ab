"""Migrates a SQLite file to the layout that this code knows.

Each layout is a numbered `.sql` file, and `user_version` is the number of the last one that ran.
The steps and their number are one transaction, so a crash leaves the old layout or the new one. A
file with a newer layout is refused: code that does not know a layout must not write to it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from dragoman.core.errors import ConfigError

APPLICATION = 0x44524147
"""Marks a SQLite file as ours ("DRAG"), so that nobody else's database is migrated by mistake."""


def scripts() -> list[tuple[int, str]]:
    """Returns the number and the statements of every layout, oldest first."""
    found = [
        (int(file.name.partition("_")[0]), file.read_text(encoding="utf-8"))
        for file in Path(__file__).with_name("sql").glob("*.sql")
    ]
    return sorted(found)


def migrate(connection: sqlite3.Connection, path: str, steps: list[tuple[int, str]]) -> None:
    """Runs the steps that are missing in one transaction: each transaction waits for the disk.
    Several processes may do so at the same time."""
    newest = steps[-1][0]
    if _version(connection) < newest:
        connection.execute("BEGIN IMMEDIATE")
        try:
            # The version is read again under the lock: another process may have run the steps.
            version = _version(connection)
            _check_owner(connection, path)
            for number, script in steps:
                if number > version:
                    for statement in _statements(script):
                        connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {max(version, newest)}")
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
    _check_owner(connection, path)
    version = _version(connection)
    if version > newest:
        raise ConfigError(
            f"{path} has layout {version}, this version of dragoman knows {newest}. "
            "Use a newer dragoman or another file."
        )


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _check_owner(connection: sqlite3.Connection, path: str) -> None:
    """Raises `ConfigError` if the tables in the file are not ours. An empty file may become
    ours."""
    mark = int(connection.execute("PRAGMA application_id").fetchone()[0])
    tables = int(connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0])
    if tables and mark != APPLICATION:
        raise ConfigError(f"{path} is a SQLite database, but not one of dragoman's.")


def _statements(script: str) -> Iterator[str]:
    """Yields the statements of a script. `executescript` cannot be used: it commits the transaction
    in which the step runs."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
