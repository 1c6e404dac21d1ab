"""Installs Python packages with uv, which takes a tenth of pip's time, or else with pip.

`python tests/packages.py -r requirements.lock` installs into the environment of that Python, and
`--into PYTHON` as the first words into that of another one.
"""

from __future__ import annotations

import functools
import os
import shlex
import subprocess
import sys
from pathlib import Path

UV = Path(sys.executable).with_name("uv")
QUIET = ("install", "-q")
SAME = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
}
"""The settings of pip that say where packages are, and what uv calls them: it does not read pip's
own. One index is as good as another, as with pip."""


def install(python: str, *words: str) -> None:
    """Installs into the environment of a Python what `pip install` would for those words."""
    done = _run([str(UV), "pip", *QUIET, "--python", python, *words], _settings())
    if done is None or done.returncode:
        pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
        done = _run([*pip, *QUIET, "--no-compile", *words], dict(os.environ))
    if done is None or done.returncode:
        raise RuntimeError(f"could not install {' '.join(words)}:\n{done and done.stdout}")


def _run(command: list[str], environ: dict[str, str]) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(
            command,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        return None


@functools.cache
def _settings() -> dict[str, str]:
    """The environment of uv."""
    listed = _run([sys.executable, "-m", "pip", "config", "list"], dict(os.environ))
    found = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    for line in listed.stdout.splitlines() if listed else ():
        name, _, value = line.partition("=")
        if here := SAME.get(name.rpartition(".")[2]):
            found[here] = " ".join(shlex.split(value)[0].split())
    return found | os.environ


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--into", python, *words]:
            install(python, *words)
        case words:
            install(sys.executable, *words)
