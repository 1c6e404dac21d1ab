"""The packages of the peers, each set in an environment of its own under `.peers/`, made once."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / ".peers"


class SetupFailed(Exception):
    """A peer could not be installed, or a server did not start; the message says why."""


@dataclass(frozen=True, slots=True)
class PythonPackages:
    """A virtual environment under `.peers/`."""

    folder: str
    packages: tuple[str, ...]

    @property
    def python(self) -> Path:
        return PEERS / self.folder / "bin" / "python"

    def install(self) -> None:
        home = PEERS / self.folder
        with _installed_once(home, self.packages) as needed:
            if needed:
                _run([sys.executable, "-m", "venv", str(home)])
                pip = [str(self.python), "-m", "pip", "install", "-q"]
                _run([*pip, "--disable-pip-version-check", *self.packages])

    def versions(self) -> dict[str, str]:
        script = (
            "import importlib.metadata as m, json;"
            "print(json.dumps({d.name: d.version for d in m.distributions()}))"
        )
        done = subprocess.run([self.python, "-c", script], capture_output=True, check=True)
        installed: dict[str, str] = json.loads(done.stdout)
        return dict(sorted(installed.items()))


@dataclass(frozen=True, slots=True)
class NodePackages:
    """A node project under `.peers/`."""

    folder: str
    packages: tuple[str, ...]

    def install(self) -> None:
        home = PEERS / self.folder
        with _installed_once(home, self.packages) as needed:
            if needed:
                (home / "package.json").write_text('{"private": true}\n')
                npm = ["npm", "install", "--no-fund", "--no-audit", "--save-exact"]
                _run([*npm, *self.packages], cwd=home)

    def versions(self) -> dict[str, str]:
        node = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True)
        found = {"node": node.stdout.strip().removeprefix("v")}
        for package in self.packages:
            name = package.rpartition("@")[0]
            about = (PEERS / self.folder / "node_modules" / name / "package.json").read_text()
            found[name] = json.loads(about)["version"]
        return found


@contextmanager
def _installed_once(home: Path, packages: tuple[str, ...]) -> Iterator[bool]:
    """Whether to install; when that went well, remember for what, so a changed pin is noticed."""
    marker = home / ".bench-packages"
    wanted = "\n".join(packages)
    needed = not marker.exists() or marker.read_text() != wanted
    if needed:
        home.mkdir(parents=True, exist_ok=True)
        print(f"Installing {', '.join(packages)} ...", file=sys.stderr, flush=True)
    yield needed
    marker.write_text(wanted)


def _run(command: list[str], *, cwd: Path | None = None) -> None:
    try:
        subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True)
    except FileNotFoundError as exc:
        raise SetupFailed(f"{command[0]} is needed and not on PATH") from exc
    except subprocess.CalledProcessError as exc:
        raise SetupFailed(f"{' '.join(command)}\n{exc.stdout}{exc.stderr}") from exc
