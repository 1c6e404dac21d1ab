"""Imports of packages that are not installed with Dragoman."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def requires(package: str) -> Iterator[None]:
    """Has a failed import inside say what to install."""
    try:
        yield
    except ModuleNotFoundError as exc:
        raise ModuleNotFoundError(
            f"{exc.name} is missing, which this adapter needs: pip install {package}",
            name=exc.name,
        ) from None
