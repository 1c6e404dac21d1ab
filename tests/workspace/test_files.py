"""What a workspace is for: files, folders, and their limits."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

import pytest

from dragoman.core.errors import ConfigError, TooLarge, Unsupported, WorkspaceViolation
from dragoman.core.peer import ANYONE, Context
from dragoman.workspace import Folder, Space, Workspaces, granted, keep_apart, space_of
from dragoman.workspace.openat import Door


def test_what_is_written_is_read(folder: Folder, root: Path) -> None:
    folder.write_text("new.txt", "héllo\n")
    assert folder.read_text("new.txt") == "héllo\n"
    assert folder.read_bytes(PurePosixPath("new.txt")) == "héllo\n".encode()
    folder.write_bytes("new.txt", b"\x00")
    assert (root / "new.txt").read_bytes() == b"\x00"
    assert folder.exists("new.txt")
    assert not folder.exists("other.txt")
    assert not folder.exists("inside.txt/x")
    assert folder.exists(".")


def test_a_write_is_whole_and_leaves_nothing_behind(folder: Folder, root: Path) -> None:
    (root / "run.sh").write_text("old")
    (root / "run.sh").chmod(0o755)
    with (root / "run.sh").open() as reader:
        folder.write_text("run.sh", "new")
        assert reader.read() == "old"  # who reads it still sees all of the old one
    assert (root / "run.sh").stat().st_mode & 0o777 == 0o755
    assert sorted(os.listdir(root)) == ["inside.txt", "run.sh", "sub"]


@pytest.mark.parametrize("mode", ["r", "rb", "rt", "w", "wb", "a", "ab", "x", "r+", "w+b", "a+"])
def test_open_does_what_open_does(folder: Folder, root: Path, mode: str) -> None:
    ours, theirs = "new.txt", root / "theirs.txt"
    if "x" not in mode:
        folder.write_text(ours, "12345")
        theirs.write_text("12345")
    what = b"ab" if "b" in mode else "ab"
    found = []
    for file in (folder.open(ours, mode), theirs.open(mode)):
        with file:
            if file.writable():
                file.write(what)
            file.seek(0)
            found.append(file.read() if file.readable() else None)
    assert found[0] == found[1]
    assert folder.read_text(ours) == theirs.read_text()


def test_modes_that_open_does_not_know(folder: Folder) -> None:
    for mode in ("", "rw", "z", "rbt", "U", "r++"):
        with pytest.raises(ValueError, match="mode"):
            folder.open("inside.txt", mode)


def test_folders(folder: Folder, root: Path) -> None:
    folder.mkdir("a/b/c")
    folder.mkdir("a/b/c")
    folder.write_text("a/b/c/x.txt", "x")
    assert [(e.name, e.kind) for e in folder.list("a/b/c")] == [("x.txt", "file")]
    folder.rename("a/b", "b")
    assert folder.read_text("b/c/x.txt") == "x"
    with pytest.raises(OSError, match="empty"):
        folder.remove("b")
    folder.remove("b/c/x.txt")
    folder.remove("b/c")
    folder.remove("b")
    folder.remove("a")
    assert sorted(os.listdir(root)) == ["inside.txt", "sub"]
    for wrong in (folder.remove, folder.read_text, folder.list):
        with pytest.raises(FileNotFoundError):
            wrong("nothing")
    with pytest.raises(FileNotFoundError, match="nothing"):
        folder.rename("nothing", "x")
    for wrong in (folder.read_text, lambda path: folder.write_text(path, "")):
        with pytest.raises(IsADirectoryError):
            wrong("sub")
    with pytest.raises(FileExistsError):
        folder.open("inside.txt", "x")
    with pytest.raises(NotADirectoryError):
        folder.mkdir("inside.txt/x")


def test_the_workspace_itself_is_not_moved_or_removed(folder: Folder, root: Path) -> None:
    for path in ("", ".", "./"):
        for verb in (folder.remove, folder.open, folder.read_text):
            with pytest.raises(WorkspaceViolation):
                verb(path)
        with pytest.raises(WorkspaceViolation):
            folder.rename(path, "x")
    folder.mkdir(".")
    assert root.is_dir()


def test_a_narrower_folder_sees_no_more(folder: Folder) -> None:
    inner = folder.inside("sub")
    assert inner.read_text("inside.txt") == "inside"
    assert [entry.name for entry in inner.list()] == ["deep", "inside.txt"]
    for path in ("../inside.txt", "/", "deep/../../inside.txt"):
        with pytest.raises(WorkspaceViolation):
            inner.read_text(path)
        with pytest.raises(WorkspaceViolation):
            inner.inside(path)


# Limits: 10,000 bytes, 50 entries, 5,000 bytes in a file.


def test_a_file_has_a_size(folder: Folder, root: Path) -> None:
    with pytest.raises(TooLarge, match="5000"):
        folder.write_bytes("big", b"x" * 5_001)
    assert not folder.exists("big")
    with pytest.raises(TooLarge):
        fill(folder, "big", pieces=200, size=100)
    assert (root / "big").stat().st_size <= 5_000
    (root / "huge").write_bytes(b"x" * 5_001)
    with pytest.raises(TooLarge):
        folder.read_bytes("huge")


def test_a_workspace_has_a_size(folder: Folder, root: Path) -> None:
    folder.write_bytes("a", b"x" * 5_000)
    with pytest.raises(TooLarge, match="10000"):
        folder.write_bytes("b", b"x" * 5_000)
    assert not folder.exists("b")
    folder.write_bytes("a", b"y" * 5_000)  # replacing takes no room
    folder.write_bytes("a", b"")
    folder.write_bytes("b", b"x" * 4_000)
    folder.remove("b")
    (root / "theirs").write_bytes(b"x" * 9_000)  # not through this door
    folder.write_bytes("c", b"x" * 5_000)  # not seen yet
    with pytest.raises(TooLarge):
        folder.write_bytes("d", b"x" * 5_000)
    (root / "theirs").unlink()
    folder.write_bytes("d", b"x" * 4_000)
    assert sum(path.stat().st_size for path in root.rglob("*") if path.is_file()) <= 10_000


def fill(folder: Folder, path: str, *, pieces: int, size: int, at: int = 0) -> None:
    with folder.open(path, "wb") as file:
        file.seek(at)
        for _ in range(pieces):
            file.write(b"x" * size)


def test_holes_and_appends_count(folder: Folder, root: Path) -> None:
    with folder.open("a", "wb") as file:
        file.write(b"x" * 4_000)
        file.seek(0)
        file.write(b"y" * 4_000)
    with pytest.raises(TooLarge):
        fill(folder, "hole", pieces=1, size=1, at=1 << 40)
    with pytest.raises(TooLarge), folder.open("hole", "r+b") as file:
        file.truncate(1 << 40)
    for _ in range(3):
        with folder.open("log", "a") as file:
            file.write("x" * 1_000)
    with folder.open("a", "r+b") as file:
        file.truncate(10)
    folder.write_bytes("b", b"x" * 5_000)
    assert (root / "log").stat().st_size == 3_000
    assert (root / "hole").stat().st_size == 0


def test_a_workspace_has_a_count(folder: Folder, root: Path) -> None:
    for number in range(0, 50 - 4, 2):  # four were there
        folder.write_text(f"f{number}", "")
        folder.mkdir(f"d{number}")
    for verb in (
        lambda: folder.write_text("x", ""),
        lambda: folder.mkdir("x"),
        lambda: folder.open("x", "w"),
        lambda: folder.open("x", "x"),
    ):
        with pytest.raises(TooLarge):
            verb()
    folder.remove("f0")
    folder.open("x", "w").close()
    folder.rename("x", "f2")  # replaced: one less
    folder.write_text("y", "")
    assert sum(1 for _ in root.rglob("*")) == 50


# Who gets which folder.


def folder_for(space: Space, door: Door, *, wish: object = None, **who: str) -> Folder:
    workspaces = Workspaces(space, lambda _: door)
    workspaces.open()
    caller = Context(tenant=who.get("tenant", ""), principal=who.get("principal", "ann"))
    about = None if wish is None else {"workspace_root": wish}
    task, context = who.get("task", "t1"), who.get("context", "c1")
    workspaces.check(task, context, caller, about)  # type: ignore[arg-type]
    return workspaces.folder(task, context, caller, about)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("per", "own"),
    [
        ("task", {"task"}),
        ("context", {"context", "principal", "tenant"}),
        ("caller", {"principal", "tenant"}),
        ("shared", set()),
    ],
)
def test_who_shares_a_folder(tmp_path: Path, door: Door, per: str, own: set[str]) -> None:
    space = Space(root=str(tmp_path / "r"), per=per)  # type: ignore[arg-type]
    folder_for(space, door).write_text("x", "mine")
    assert folder_for(space, door).read_text("x") == "mine"
    for what in ("task", "context", "principal", "tenant"):
        assert folder_for(space, door, **{what: "other"}).exists("x") == (what not in own), what


@pytest.mark.parametrize(
    "name", ["../../x", "..", ".", "", "a/b", "a\0b", "x" * 300, "\ud800", "/"]
)
def test_names_of_callers_make_no_paths(tmp_path: Path, door: Door, name: str) -> None:
    for per in ("task", "context", "caller"):
        space = Space(root=str(tmp_path / "r"), per=per)  # type: ignore[arg-type]
        odd = folder_for(space, door, task=name, context=name, principal=name, tenant=name)
        odd.write_text("x", "y")
    assert os.listdir(tmp_path) == ["r"]
    assert sorted(os.listdir(tmp_path / "r")) == ["callers", "contexts", "tasks"]
    assert {
        len(list((tmp_path / "r" / kind).iterdir())) for kind in os.listdir(tmp_path / "r")
    } == {1}


def test_a_caller_may_narrow_but_not_widen(root: Path, door: Door, outside: Path) -> None:
    space = Space(root=str(root), per="shared")
    for wish in ("sub", "./sub/", f"{root}/sub", f"{root}//sub/."):
        assert folder_for(space, door, wish=wish).read_text("inside.txt") == "inside"
        with pytest.raises(WorkspaceViolation):
            folder_for(space, door, wish=wish).read_text("../inside.txt")
    assert folder_for(space, door, wish=str(root)).exists("sub")
    wider = [
        "..",
        "/",
        str(root.parent),
        str(outside),
        f"{root}/..",
        f"{root}/../outside",
        "sub/..",
    ]
    for wish in (*wider, f"{root}x", f"{root}-other", "/proc/self/root", 1, ["sub"], {}, "a\\b"):
        with pytest.raises(WorkspaceViolation):
            folder_for(space, door, wish=wish)
    (root / "link").symlink_to(outside)
    with pytest.raises(WorkspaceViolation):
        folder_for(space, door, wish="link").list()


def test_a_caller_does_not_get_the_folder_of_another_task(root: Path, door: Door) -> None:
    space = Space(root=str(root))
    folder_for(space, door, task="theirs").write_text("x", "theirs")
    for wish in (f"{root}/tasks/theirs", "../theirs", str(root)):
        with pytest.raises(WorkspaceViolation):
            folder_for(space, door, task="mine", wish=wish)
    assert not folder_for(space, door, task="mine", wish="tasks/theirs").exists("x")
    assert folder_for(space, door, task="theirs", wish=f"{root}/tasks/theirs").exists("x")


# What is granted.


def test_what_cannot_be_a_workspace(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be opened"):
        Workspaces(Space(root=str(tmp_path / "file"))).open()
    with pytest.raises(ConfigError, match="whole machine"):
        space_of("/")
    with pytest.raises(ConfigError, match="files"):
        space_of(Space(root="x", files=0))
    with pytest.raises(ConfigError, match="This system"):
        Workspaces(Space(root=str(tmp_path)), lambda _: None).open()
    assert space_of("") is None
    assert space_of(None) is None
    assert space_of(tmp_path) == Space(root=str(tmp_path))


def test_a_closed_workspace_leads_nowhere(workspaces: Workspaces, folder: Folder) -> None:
    workspaces.close()
    with pytest.raises(OSError, match="closed"):
        folder.read_text("inside.txt")
    with pytest.raises(Unsupported):
        workspaces.folder("t", "c", ANYONE, None)


def test_the_host_decides_and_its_limits_hold() -> None:
    agent = Space(root="theirs", per="shared", size=5, files=10**9)
    assert granted(Space(root="ours"), agent) == Space(root="ours")
    assert granted(Space(size=10, files=7), agent) == Space(
        root="theirs", per="shared", size=5, files=7
    )
    assert granted(Space(), None) is None


def test_the_store_does_not_lie_in_a_shared_workspace(tmp_path: Path) -> None:
    shared = Space(root=str(tmp_path), per="shared")
    for store in (tmp_path, tmp_path / "store"):
        with pytest.raises(ConfigError, match="store"):
            keep_apart(shared, store)
    keep_apart(shared, tmp_path.parent)
    keep_apart(shared, None)
    keep_apart(Space(root=str(tmp_path)), tmp_path)
