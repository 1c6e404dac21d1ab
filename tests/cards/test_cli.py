"""`dragoman card` and `dragoman keys`, in processes of their own: what they say, how they end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cards.forge import signed
from cli.run import AGENT, dragoman, serving

pytestmark = pytest.mark.slow  # starts processes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agent.py").write_text(AGENT)
    card = {name: value for name, value in signed().items() if name != "signatures"}
    (tmp_path / "card.json").write_text(json.dumps(card))
    return tmp_path


def test_keys_are_made_for_our_eyes_and_never_written_over(folder: Path) -> None:
    made = dragoman("keys", "new", "card.jwk", "--alg", "EdDSA", "--json", cwd=folder)
    said = json.loads(made.stdout)
    assert (made.returncode, said["file"], said["key"]["alg"]) == (0, "card.jwk", "EdDSA")
    assert (folder / "card.jwk").stat().st_mode & 0o777 == 0o600
    assert "d" not in said["key"]
    again = dragoman("keys", "new", "card.jwk", cwd=folder)
    assert (again.returncode, "never written over" in again.stderr) == (2, True)
    (folder / "keys").mkdir()
    listed = dragoman("keys", "new", "keys", cwd=folder)
    assert listed.returncode == 0
    assert len(list((folder / "keys").glob("card-*.jwk"))) == 1
    public = dragoman("keys", "public", "card.jwk", cwd=folder)
    assert json.loads(public.stdout)["keys"] == [said["key"]]
    for wrong in (["keys", "public"], ["keys", "public", "agent.py"], ["keys", "new", "no/x"]):
        done = dragoman(*wrong, cwd=folder)
        assert (done.returncode, "Traceback" in done.stderr) == (2, False)


def test_sign_then_verify(folder: Path) -> None:
    dragoman("keys", "new", "k.jwk", cwd=folder)
    done = dragoman("card", "sign", "card.json", "--key", "k.jwk", "--out", "s.json", cwd=folder)
    assert done.returncode == 0, done.stderr
    good = dragoman("card", "verify", "s.json", "--key", "k.jwk", cwd=folder)
    assert (good.returncode, "signed by" in good.stdout) == (0, True)
    told = json.loads(
        dragoman("card", "verify", "s.json", "--key", "k.jwk", "--json", cwd=folder).stdout
    )
    assert (told["ok"], told["proved"], told["form"]) == (True, True, "strict")

    dragoman("keys", "new", "other.jwk", cwd=folder)
    dragoman("card", "sign", "s.json", "--add", "--key", "other.jwk", "--out", "t.json", cwd=folder)
    # For readers of 1.0 and of 0.3, and for what a2a-sdk makes of both.
    assert len(json.loads((folder / "t.json").read_text())["signatures"]) == 2 * 4
    for key in ("k.jwk", "other.jwk"):
        assert dragoman("card", "verify", "t.json", "--key", key, cwd=folder).returncode == 0

    altered = json.loads((folder / "s.json").read_text()) | {"name": "Another"}
    (folder / "a.json").write_text(json.dumps(altered))
    # What only readers of 0.3 use counts as much.
    altered = json.loads((folder / "s.json").read_text()) | {"url": "https://evil.example/"}
    (folder / "u.json").write_text(json.dumps(altered))
    weak = json.loads((folder / "s.json").read_text())
    weak["signatures"] = weak["signatures"][2:]
    (folder / "w.json").write_text(json.dumps(weak | {"security": [], "securityRequirements": []}))
    partly = dragoman("card", "verify", "w.json", "--key", "k.jwk", cwd=folder)
    assert (partly.returncode, "do not cover: extensions" in partly.stdout) == (1, True)
    for source, key, why in (
        ("a.json", "k.jwk", "invalid"),
        ("u.json", "k.jwk", "invalid"),
        ("s.json", "other.jwk", "unknown_key"),
        ("card.json", "k.jwk", "unsigned"),
    ):
        bad = dragoman("card", "verify", source, "--key", key, "--json", cwd=folder)
        assert (bad.returncode, json.loads(bad.stdout)["why"]) == (1, why)
    taken = dragoman("card", "verify", "card.json", "--policy", "if-present", cwd=folder)
    assert (taken.returncode, "not signed" in taken.stdout) == (0, True)


def test_validate(folder: Path) -> None:
    for source in ("card.json", "agent.py"):
        done = dragoman("card", "validate", source, cwd=folder)
        assert (done.returncode, done.stdout) == (0, "The card is valid.\n"), done.stdout
    card = json.loads((folder / "card.json").read_text()) | {"iconUrl": "x", "description": ""}
    (folder / "bad.json").write_text(json.dumps(card))
    done = dragoman("card", "validate", "bad.json", cwd=folder)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "error    iconUrl: 'x' is not a web address",
        "warning  description: is empty",
    ]
    told = json.loads(dragoman("card", "validate", "bad.json", "--json", cwd=folder).stdout)
    assert (told["ok"], [p["level"] for p in told["problems"]]) == (False, ["error", "warning"])


@pytest.mark.parametrize(
    "words",
    [
        ["card", "validate", "none.json"],
        ["card", "validate", "agent.py:nobody"],
        ["card", "verify", "http://127.0.0.1:9/"],
        ["card", "verify", "ftp://127.0.0.1/"],
        ["card", "verify", "card.json", "--key", "none.jwk"],
        ["card", "sign", "card.json"],
        ["card", "sign", "card.json", "--key", "card.json"],
        ["card", "sign", "agent.py", "--key", "card.json"],
        ["card", "sign", "card.json", "--key", "x", "--jku", "http://a"],
        ["serve", "agent.py", "--signing-key", "none.jwk"],
    ],
)
def test_a_wrong_question_is_told_in_a_line(folder: Path, words: list[str]) -> None:
    done = dragoman(*words, cwd=folder)
    assert done.returncode == 2
    assert done.stderr.startswith("dragoman: ")
    assert "Traceback" not in done.stderr


def test_a_served_card_is_verified_by_its_address(folder: Path) -> None:
    (folder / "keys").mkdir()
    dragoman("keys", "new", "keys", cwd=folder)
    with serving(
        "agent.py", "--store", "memory:", "--no-grpc", "--signing-key", "keys", cwd=folder
    ) as server:
        key = str(next((folder / "keys").iterdir()))
        good = dragoman("card", "verify", server.url, "--key", key, cwd=folder)
        assert good.returncode == 0, good.stdout + good.stderr
        jwks = f"{server.url}/.well-known/jwks.json"
        fetched = ["card", "verify", server.url, "--key", jwks]
        assert dragoman(*fetched, "--allow-private", cwd=folder).returncode == 0
        assert dragoman(*fetched, cwd=folder).returncode == 1
        assert dragoman("card", "validate", server.url, cwd=folder).returncode == 0


def test_a_secret_on_the_card_stops_the_start(folder: Path) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    (folder / "agent.py").write_text(AGENT.replace("For tests.", f"Uses {secret}"))
    done = dragoman("serve", "agent.py", "--store", "memory:", "--port", "0", cwd=folder)
    assert done.returncode == 2
    assert "description: looks like a GitHub token" in done.stderr
    assert secret not in done.stderr
