"""The stores on which servers are measured."""

import sys
from contextlib import ExitStack
from pathlib import Path

SECRET_KEY = {"DRAGOMAN_SECRET_KEY": "k" * 32}
"""The key of all servers, since one on PostgreSQL makes none of its own."""
TESTS = Path(__file__).resolve().parent.parent / "tests"


def store_url(store: str, scratch: str, stack: ExitStack) -> str:
    """Returns the URL of a new store. What it needs ends with the stack."""
    if store == "postgres":
        # A server of its own, as the tests start it, which synchronizes its disk.
        sys.path.append(str(TESTS))
        from postgres import Server as Postgres

        database = Postgres()
        stack.callback(database.remove)
        return database.url
    return "memory:" if store == "memory" else f"sqlite:///{scratch}/tasks.db"
