"""Migrates a database to the layout that this code knows.

Each layout is a numbered `.pre.sql` file, and may have a `.post.sql` file of the same number. A
`pre` step only adds, so processes of the version before go on working; it runs when the first
process of a new version starts. A `post` step removes what only older versions need, and runs as
soon as no worker of an older version is alive. A transaction-level advisory lock makes processes
that start together wait for each other; a step and the note that it ran are one transaction.
"""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable

from dragoman.core.errors import ConfigError

from .pool import Database

LOCK = 0x44524147
"""The key of the advisory lock ("DRAG")."""

_MADE = "SELECT to_regclass('dragoman.layout')"
_MAKE = """
CREATE SCHEMA IF NOT EXISTS dragoman;
CREATE TABLE IF NOT EXISTS dragoman.layout (
  number  integer NOT NULL,
  step    text NOT NULL,
  ran_at  timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (number, step)
)"""
_RAN = "SELECT number, step FROM dragoman.layout"
_NOTE = "INSERT INTO dragoman.layout (number, step) VALUES ($1, $2)"
_OLDER = """
SELECT 1 FROM dragoman.worker WHERE layout < $1
  AND lease_until > (extract(epoch FROM clock_timestamp()) * 1000)::bigint LIMIT 1"""

Step = tuple[int, str, str]
"""The number of a layout, `pre` or `post`, and the statements."""


def scripts() -> list[Step]:
    """Returns every step, oldest first."""
    folder: Traversable = files("dragoman.store.postgres") / "sql"
    found = []
    for file in folder.iterdir():
        name, _, end = file.name.partition(".")
        if end in ("pre.sql", "post.sql"):
            number, step = int(name.partition("_")[0]), end.removesuffix(".sql")
            found.append((number, step, file.read_text(encoding="utf-8")))
    return sorted(found, key=lambda step: (step[0], step[1] == "post"))


def newest(steps: list[Step]) -> int:
    """Returns the number of the newest layout."""
    return steps[-1][0]


async def migrate(db: Database, steps: list[Step]) -> None:
    """Runs the steps that are missing, within the transaction of the connection. Raises
    `ConfigError` if a newer version has removed what this one needs."""
    await db.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
    # `CREATE SCHEMA IF NOT EXISTS` needs a right that a role may lack once the schema is there.
    if await db.fetchval(_MADE) is None:
        await db.execute(_MAKE)
    ran = {(number, step) for number, step in await db.fetch(_RAN)}
    known = newest(steps)
    newer = [number for number, step in ran if step == "post" and number > known]
    if newer:
        raise ConfigError(
            f"The database has layout {max(newer)}, this version of dragoman knows {known}. "
            "Use a newer dragoman or another schema."
        )
    for number, step, script in steps:
        if (number, step) in ran:
            continue
        if step == "post" and await db.fetch(_OLDER, number):
            continue  # a process of an older version still needs it
        await db.execute(script)
        await db.execute(_NOTE, number, step)
