"""The number of the layout of a file store: an older version refuses what it cannot read."""

from __future__ import annotations

from pathlib import Path

from dragoman.core.errors import ConfigError

from .writer import replace_file

LAYOUT = 1
"""Grows when an older version could not read, or would damage, what this one writes."""
FILE_NAME = "layout"


def check_layout(folder: Path) -> None:
    """Raises `ConfigError` for the folder of a newer version. Nothing is created or changed.
    Folders without a number are of the first layout."""
    try:
        text = (folder / FILE_NAME).read_text("utf-8").strip()
    except FileNotFoundError:
        return
    if not text.isdecimal() or int(text) > LAYOUT:
        raise ConfigError(
            f"{folder} has layout {text[:20]!r}, this version of dragoman knows {LAYOUT}. "
            "Use a newer dragoman or another folder."
        )


def write_layout(folder: Path) -> None:
    """Writes the number into the folder, unless it is there."""
    path = folder / FILE_NAME
    if not path.exists():
        replace_file(path, f"{LAYOUT}\n".encode())
