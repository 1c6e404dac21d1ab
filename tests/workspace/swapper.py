"""Swaps what lies in a workspace against links to the outside, as fast as it can.

A process of its own: it must not wait for the one that reads.
"""

from __future__ import annotations

import os
import sys
import time
from itertools import cycle
from pathlib import Path


def main(root: Path, outside: Path, seconds: float) -> None:
    """Each name of the workspace is by turns itself, a link to a secret, and a hard link to it."""
    spare = root.parent / "spare"
    spare.mkdir()
    (spare / "folder-link").symlink_to(outside)
    (spare / "file-link").symlink_to(outside / "secret.txt")
    os.link(outside / "secret.txt", spare / "hard-link")
    (root / "box").mkdir()
    (root / "box" / "secret.txt").write_text("inside")
    (root / "secret.txt").write_text("inside")
    end = time.monotonic() + seconds
    swaps = 0
    for other in cycle(("file-link", "hard-link")):
        exchange(root / "box", spare / "folder-link", spare / "held")
        exchange(root / "secret.txt", spare / other, spare / "held")
        exchange(root / "box", spare / "folder-link", spare / "held")
        exchange(root / "secret.txt", spare / other, spare / "held")
        swaps += 4
        if time.monotonic() > end:
            break
    print(swaps)


def exchange(one: Path, other: Path, held: Path) -> None:
    try:
        os.rename(one, held)
    except FileNotFoundError:
        return
    os.rename(other, one)
    os.rename(held, other)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))
