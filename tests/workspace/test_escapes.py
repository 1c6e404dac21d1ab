"""More than a hundred ways out, each tried with every verb: none leads out."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.core.errors import TooLarge, WorkspaceViolation
from dragoman.workspace import Folder
from workspace.conftest import SECRET, state_of

PROC_ROOT = "/proc/self/root"
"""Linux shows the root of the file system here, whatever it is."""

# `OUT` is the absolute path of the folder beside the workspace, `ROOT` that of the workspace.
REFUSED = [
    # Up.
    *("..", "../", "../outside/secret.txt", "../../outside/secret.txt", "sub/../../outside"),
    *("sub/../inside.txt", "./../outside/secret.txt", ".//..//outside/secret.txt", "sub/.."),
    *("a/b/c/../../../../outside/secret.txt", "..//outside/secret.txt", "nothing/../../outside"),
    *("inside.txt/../../outside/secret.txt", "sub/deep/../../..", "../space/inside.txt"),
    # Absolute.
    *("/", "//", "///etc/passwd", "/etc/passwd", "/etc/shadow", "OUT/secret.txt", "OUT", "ROOT"),
    *("ROOT/inside.txt", "ROOT/../outside/secret.txt", "//OUT/secret.txt", "/./etc/passwd"),
    # /proc and friends.
    *(f"{PROC_ROOT}/etc/passwd", "/proc/self/cwd", "/proc/self/environ", "/proc/1/root"),
    *("/proc/self/fd/0", "/dev/fd/0", "/dev/stdin", "/dev/null", "/sys/kernel", "/proc/self/exe"),
    # What other systems take for a way out.
    *("..\\outside\\secret.txt", "sub\\..\\..\\outside", "C:\\Windows\\win.ini", "C:/x", "c:x"),
    *("\\\\server\\share\\x", "\\\\?\\C:\\x", "\\\\.\\pipe\\x", "\\etc\\passwd", "a\\b"),
    # Bytes that end a path early, and what is no path.
    *("inside.txt\0", "inside.txt\0/../../outside/secret.txt", "\0", "../outside/secret.txt\0.txt"),
    *("\ud800", "a/\udfff", "../\udc80"),
    # Deeper than anything is.
    "/".join(["a"] * 65),
]
MADE = sorted(
    f"{start}{'../' * ups}{middle}{target}"
    for start in (".//", "sub/", "sub/deep/", "nothing/", "inside.txt/")
    for ups in (1, 2, 4, 40)
    for middle in ("", "./", "space/../")
    for target in ("outside/secret.txt", "etc/passwd", "new.txt")
)
"""Ways up, put together."""
LINKS = {
    # name: where it leads
    "to-file": "OUT/secret.txt",
    "to-folder": "OUT",
    "up": "..",
    "up-file": "../outside/secret.txt",
    "to-root": "/",
    "to-proc": PROC_ROOT,
    "to-cwd": "/proc/self/cwd",
    "to-fd": "/proc/self/fd",
    "to-null": "/dev/null",
    "loop": "loop",
    "dangling": "OUT/new.txt",
    "inner": "inside.txt",
    "inner-folder": "sub",
    "chain": "to-folder",
    "sub/up": "../..",
    "sub/deep/up": "../../../outside",
}
BEHIND = [
    *LINKS,
    *("to-folder/secret.txt", "to-folder/sub/secret.txt", "to-folder/new.txt", "up/outside"),
    *("up/outside/secret.txt", "to-root/etc/passwd", "to-proc/etc/passwd", "to-cwd/setup.py"),
    *("to-fd/0", "to-fd/1", "loop/x", "inner-folder/inside.txt", "chain/secret.txt"),
    *("sub/up/outside/secret.txt", "sub/deep/up/secret.txt", "./to-folder//secret.txt"),
    *("to-folder/./secret.txt", "to-folder/", "sub/./up", "sub//deep/up/sub/secret.txt"),
]
PLAIN = [
    # Odd, but names like any other: they are beneath the root, and there is nothing there.
    *("~", "~/x", "~root/.ssh/id_rsa", "$HOME/x", "%2e%2e/%2e%2e/etc/passwd", "%2e%2e%2fetc"),
    *("...", ".../x", "..../....//etc", "‥/outside", "．．/outside/secret.txt", "‥∕outside"),
    *("..%00/x", "..;/outside", "。。/x", "file:///etc/passwd", "http://x/../y".replace("..", "")),
    *(f"{PROC_ROOT[1:]}/etc/passwd", "etc/passwd", "..\u200b/outside", "\u202e..", " ..", ".. "),
    *("-rf", "con", "nul", "aux.txt", "inside.txt:stream", "%c0%ae%c0%ae/etc", "a" * 300),
]

Verb = Callable[[Folder, str], Any]
READS: dict[str, Verb] = {
    "read_bytes": lambda folder, path: folder.read_bytes(path),
    "read_text": lambda folder, path: folder.read_text(path),
    "open": lambda folder, path: folder.open(path).read(),
    "list": lambda folder, path: folder.list(path),
    "exists": lambda folder, path: folder.exists(path),
    "inside": lambda folder, path: folder.inside(path).list(),
    "inside_read": lambda folder, path: folder.inside(path).read_text("secret.txt"),
}
WRITES: dict[str, Verb] = {
    "write_bytes": lambda folder, path: folder.write_bytes(path, b"x"),
    "write_text": lambda folder, path: folder.write_text(path, "x"),
    "open_w": lambda folder, path: folder.open(path, "w").close(),
    "open_a": lambda folder, path: folder.open(path, "a").close(),
    "open_x": lambda folder, path: folder.open(path, "xb").close(),
    "open_r+": lambda folder, path: folder.open(path, "r+").close(),
    "remove": lambda folder, path: folder.remove(path),
    "mkdir": lambda folder, path: folder.mkdir(path),
    "rename": lambda folder, path: folder.rename(path, "moved"),
    "rename_to": lambda folder, path: folder.rename("inside.txt", path),
    "rename_in": lambda folder, path: folder.rename("inside.txt", f"{path}/moved"),
    "inside_write": lambda folder, path: folder.inside(path).write_text("new.txt", "x"),
}
VERBS = READS | WRITES
every_verb = pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)


def spelled(path: str, root: Path, outside: Path) -> str:
    return path.replace("OUT", str(outside)).replace("ROOT", str(root))


@pytest.fixture
def links(root: Path, outside: Path) -> None:
    for name, target in LINKS.items():
        (root / name).symlink_to(spelled(target, root, outside))


@pytest.fixture(autouse=True)
def untouched(outside: Path, root: Path) -> Iterator[None]:
    """After every test: what lies outside is as it was."""
    before = state_of(outside)
    beside = sorted(os.listdir(root.parent))
    yield
    assert state_of(outside) == before
    assert sorted(os.listdir(root.parent)) == beside


def test_there_are_more_than_a_hundred_ways() -> None:
    assert len({*REFUSED, *BEHIND}) > 90
    assert len({*REFUSED, *MADE, *BEHIND, *PLAIN}) >= 300


@every_verb
def test_a_path_that_leads_up_or_elsewhere_is_refused(
    folder: Folder, root: Path, outside: Path, verb: Verb
) -> None:
    for path in (*REFUSED, *MADE):
        with pytest.raises(WorkspaceViolation):
            print(repr(path), verb(folder, spelled(path, root, outside)))


@every_verb
@pytest.mark.usefixtures("links")
def test_a_link_is_never_followed(folder: Folder, verb: Verb) -> None:
    # O_EXCL says of a link itself that it is there.
    expected = (WorkspaceViolation, *([FileExistsError] if verb is WRITES["open_x"] else []))
    for path in BEHIND:
        with pytest.raises(expected):
            print(repr(path), verb(folder, path))


@every_verb
def test_odd_names_stay_beneath(folder: Folder, verb: Verb) -> None:
    for path in PLAIN:
        try:
            found = verb(folder, path)
        except (OSError, WorkspaceViolation, TooLarge):
            continue
        assert SECRET not in str(found)


@every_verb
def test_what_is_no_path_is_refused(folder: Folder, verb: Verb) -> None:
    if verb is WRITES["rename_in"]:
        return  # writes a path around it
    for path in (None, 1, b"inside.txt", b"../outside", ["inside.txt"], object()):
        with pytest.raises(WorkspaceViolation):
            verb(folder, path)  # type: ignore[arg-type]


def test_a_hard_link_is_not_opened(folder: Folder, root: Path, outside: Path) -> None:
    os.link(outside / "secret.txt", root / "hard.txt")
    tried = VERBS.keys() - {"open_x", "list", "inside", "inside_read", "inside_write", "mkdir"}
    for verb in tried - {"rename_in"}:
        with pytest.raises(WorkspaceViolation, match="hard link"):
            print(verb, VERBS[verb](folder, "hard.txt"))
    with pytest.raises(FileExistsError):
        folder.open("hard.txt", "x")


def test_pipes_sockets_and_devices_are_not_opened(folder: Folder, root: Path) -> None:
    os.mkfifo(root / "pipe")
    listening = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(root)  # the path of a socket is short
    try:
        listening.bind("sock")
    finally:
        os.chdir(here)
    with listening:
        for name in ("pipe", "sock"):
            for verb in (folder.read_bytes, folder.open, folder.remove, folder.exists):
                with pytest.raises((WorkspaceViolation, OSError)):
                    verb(name)
            with pytest.raises((WorkspaceViolation, OSError)):
                folder.write_text(name, "x")
            assert next(e for e in folder.list() if e.name == name).kind == "other"


def test_a_violation_says_which_path_but_not_where_we_are(folder: Folder, root: Path) -> None:
    with pytest.raises(WorkspaceViolation) as caught:
        folder.read_text("../outside/secret.txt\n")
    assert caught.value.reason == "workspace_violation"
    assert caught.value.public == {"path": "../outside/secret.txt\\n"}
    for path in ("nothing", "inside.txt/x", "sub"):
        with pytest.raises(OSError, match=path) as missing:
            folder.read_text(path)
        assert str(root) not in str(missing.value)


def test_a_link_is_listed_but_not_what_it_leads_to(
    folder: Folder, links: None, outside: Path
) -> None:
    kinds = {entry.name: entry for entry in folder.list()}
    assert {kinds[name].kind for name in LINKS if "/" not in name} == {"other"}
    assert kinds["to-file"].size == 0
    assert kinds["sub"].kind == "folder"
    assert (kinds["inside.txt"].kind, kinds["inside.txt"].size) == ("file", 6)
