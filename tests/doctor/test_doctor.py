"""The command: what it prints, how it ends, what it keeps to itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cli.run import Served, dragoman, serving
from doctor.proxy import Fault, Told, standing_before
from dragoman.doctor import CHECKS
from dragoman.doctor.check import Broken
from dragoman.doctor.http import frames, strict_json
from dragoman.doctor.shapes import NEW, OLD
from pages import DOCS, section
from security.certs import Authority

pytestmark = pytest.mark.slow  # starts processes

AGENT = Path(__file__).with_name("agent.py")
SECRET = "a-secret-that-nobody-may-see-0123"
LOCKED = """
[auth.keys]
type = "api-key"
in = "header"
name = "X-API-Key"
callers.alice = { secret = { env = "ALICE_KEY" } }
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("patient")
    with serving(str(AGENT), "--store", "memory:", "--no-grpc", cwd=folder) as served:
        yield served


def test_a_table_without_colours_when_piped(served: Served, tmp_path: Path) -> None:
    done = dragoman("doctor", served.url, "--only", "card.*", "-v", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "Patient at" in done.stdout
    assert "card.name" in done.stdout
    assert "Score 100 %" in done.stdout


def test_json_has_everything_and_a_score(served: Served, tmp_path: Path) -> None:
    done = dragoman(
        *("doctor", served.url, "--json", "--only", "get.*", "--on", "rest-1.0"), cwd=tmp_path
    )
    told = json.loads(done.stdout)
    assert done.returncode == 0
    assert told["interfaces"] == ["rest-1.0"]
    assert {one["id"] for one in told["results"]} == {id for id in CHECKS if id.startswith("get.")}
    for one in told["results"]:
        assert {"level", "says", "spec", "outcome", "on", "why"} <= set(one)
    assert told["score"]["total"]["percent"] == 100.0
    assert set(told["score"]["levels"]) == {"must", "should", "may"}


def test_junit_counts_what_failed(served: Served, tmp_path: Path) -> None:
    spoiled = Fault((), ask=lambda a: Told(200, {}, b"{}") if a.op == "get" else None)
    with standing_before(served.port) as proxy:
        proxy.fault = spoiled
        done = dragoman(
            *("doctor", proxy.url, "--only", "get.*", "--on", "rest-1.0", "--junit", "out.xml"),
            cwd=tmp_path,
        )
    assert done.returncode == 1
    assert "FAIL get.unknown" in done.stdout
    assert "came 200" in done.stdout
    (suite,) = ElementTree.parse(tmp_path / "out.xml").getroot()
    assert int(suite.get("failures", 0)) == len(suite.findall("testcase/failure")) > 0
    assert suite.get("name") == "rest-1.0"


def test_a_warning_is_no_failure_unless_strict(served: Served, tmp_path: Path) -> None:
    spoiled = Fault((), tell=lambda a, told: told.headers.pop("etag", "") and None)
    with standing_before(served.port) as proxy:
        proxy.fault = spoiled
        codes = [
            dragoman("doctor", proxy.url, "--only", "card.etag", *more, cwd=tmp_path).returncode
            for more in ((), ("--strict",))
        ]
    assert codes == [0, 1]


def test_nobody_there_is_3_and_a_wrong_command_is_2(served: Served, tmp_path: Path) -> None:
    nobody = dragoman("doctor", f"{served.url}/nobody", "--only", "card.*", cwd=tmp_path)
    assert nobody.returncode == 3
    assert "No A2A agent" in nobody.stdout
    for wrong in (
        ("--only", "card.nmae"),
        ("--timeout", "0"),
        ("--header", "no colon"),
        ("--header", "X-Key: {NOT_SET}"),
    ):
        done = dragoman("doctor", served.url, *wrong, cwd=tmp_path)
        assert done.returncode == 2, wrong
        assert "Traceback" not in done.stderr
    assert dragoman("doctor", "http://ada:pw@127.0.0.1:1", cwd=tmp_path).returncode == 2


def test_credentials_open_a_locked_agent_and_are_never_shown(tmp_path: Path) -> None:
    (tmp_path / "dragoman.toml").write_text(LOCKED)
    flags = ("--store", "memory:", "--grpc-port", "0")
    with serving(str(AGENT), *flags, cwd=tmp_path, ALICE_KEY=SECRET) as served:
        header = ("--header", "X-API-Key: {MINE}", "--slow-text", "slow go")
        done = dragoman("doctor", served.url, *header, "--json", cwd=tmp_path, MINE=SECRET)
        without = dragoman("doctor", served.url, "--only", "send.*", cwd=tmp_path)
        told = json.loads(done.stdout)
        bad = [one for one in told["results"] if one["outcome"] in ("fail", "warning")]
        assert bad == []
        assert done.returncode == 0
        assert without.returncode == 3
        assert "--header 'X-API-Key: {KEY}'" in without.stdout
        held = {one["id"]: one["outcome"] for one in told["results"]}
        assert held["auth.refused"] == held["card.schemes"] == held["card.security"] == "pass"

        def leak(asked: object, told: Told) -> None:
            told.status, told.body = 500, f"you sent {SECRET}".encode()

        with standing_before(served.port) as proxy:
            proxy.fault = Fault((), tell=lambda a, t: leak(a, t) if a.op != "card" else None)
            for how in ((), ("--json",)):
                leaky = dragoman(
                    *("doctor", proxy.url, *header, "--only", "get.*", "--junit", "j.xml", *how),
                    cwd=tmp_path,
                    MINE=SECRET,
                )
                assert leaky.returncode == 1
                written = leaky.stdout + leaky.stderr + (tmp_path / "j.xml").read_text()
                assert "you sent ***" in written
                assert SECRET not in written


def test_an_agent_that_can_do_little_is_as_sound(tmp_path: Path) -> None:
    """What is switched off is refused as the spec says, and a required extension is asked for."""
    (tmp_path / "dragoman.toml").write_text(LOCKED)
    narrow = str(AGENT.with_name("narrow_agent.py"))
    flags = ("--store", "memory:", "--grpc-port", "0")
    with serving(narrow, *flags, cwd=tmp_path, ALICE_KEY=SECRET) as served:
        header = ("--header", "X-API-Key: {MINE}")
        done = dragoman("doctor", served.url, *header, "--json", cwd=tmp_path, MINE=SECRET)
    told = json.loads(done.stdout)
    bad = [one for one in told["results"] if one["outcome"] in ("fail", "warning")]
    assert [(one["on"], one["id"], one["why"], one["came"]) for one in bad] == []
    held = {(one["on"], one["id"]): one["outcome"] for one in told["results"]}
    for on in told["interfaces"]:
        for id in (
            *("push.undeclared", "stream.undeclared", "extensions.required"),
            "extended.declared",
        ):
            assert held[on, id] == "pass", (on, id)
    assert held["card", "card.provider"] == held["card", "card.links"] == "pass"


def test_an_authority_of_your_own(tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    cert, key = ours.issue("server")
    (tmp_path / "dragoman.toml").write_text(f'[tls]\ncert = "{cert}"\nkey = "{key}"\n')
    flags = ("--store", "memory:", "--grpc-port", "0")
    words = ("--only", "send.*", "--on", "jsonrpc-1.0", "--on", "grpc-1.0", "--json")
    with serving(str(AGENT), *flags, cwd=tmp_path) as served:
        assert served.url.startswith("https://")
        done = dragoman("doctor", served.url, *words, "--ca", ours.ca, cwd=tmp_path)
        told = json.loads(done.stdout)
        assert done.returncode == 0, [one for one in told["results"] if one["outcome"] == "fail"]
        assert sorted(told["interfaces"]) == ["grpc-1.0", "jsonrpc-1.0"]
        assert dragoman("doctor", served.url, cwd=tmp_path).returncode == 3
        for path in (tmp_path / "missing.pem", AGENT):
            wrong = dragoman("doctor", served.url, "--ca", str(path), cwd=tmp_path)
            assert wrong.returncode == 2
            assert "--ca" in wrong.stderr
            assert "Traceback" not in wrong.stderr


def test_every_flag_is_told(tmp_path: Path) -> None:
    shown = dragoman("doctor", "--help", cwd=tmp_path).stdout
    flags = set(re.findall(r"--[a-z][a-z-]+", shown)) - {"--help"}
    told = section(DOCS / "doctor.md", "what-it-needs-to-know")
    assert sorted(flag for flag in flags if f"`{flag}`" not in told) == []


def test_raw_json_is_read_strictly() -> None:
    for body in (b"NaN", b'{"a": Infinity}', b'"\xff"', b"{", b"[" * 100_000):
        with pytest.raises(Broken):
            strict_json(body)
    assert strict_json(b'{"a": [1, null]}') == {"a": [1, None]}


def test_events_come_in_any_pieces() -> None:
    wire = b': hi\r\ndata: {"a":\r\ndata: 1}\r\n\r\nevent: x\ndata:2\n\ndata: 3'
    for size in (1, 3, len(wire)):
        pieces = (wire[at : at + size] for at in range(0, len(wire), size))
        found = [(f.data, f.name, f.lines) for f in frames(pieces)]
        assert found[:2] == [('{"a":\n1}', "", 2), ("2", "x", 1)]


def test_shapes_see_what_is_wrong() -> None:
    task = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}
    assert list(NEW.problems("Task", task)) == []
    old = {**task, "kind": "task", "status": {"state": "working"}}
    assert list(OLD.problems("Task", old)) == []
    assert list(OLD.problems("Task", task)) == [
        "Task.kind is missing",
        "Task.status.state is 'TASK_STATE_WORKING', not one of submitted, working, "
        "input-required, completed, canceled, failed, rejected, auth-required, unknown",
    ]
    odd = {**task, "history": [{"messageId": "", "role": "ROLE_USER", "parts": [{}]}]}
    assert [problem.split(" ")[0] for problem in NEW.problems("Task", odd)] == [
        "Task.history[0].messageId",
        "Task.history[0].parts[0]",
    ]
    late = {**task, "status": {"state": "TASK_STATE_WORKING", "timestamp": "2026-01-01T00:00:00"}}
    assert len(list(NEW.problems("Task", late))) == 1


def test_one_of_several_agents_is_examined_as_its_card_says(tmp_path: Path) -> None:
    files = (f"alpha={AGENT}", f"beta={AGENT}")
    with serving(*files, "--store", "memory:", "--grpc-port", "0", cwd=tmp_path) as served:
        done = dragoman(
            *(
                "doctor",
                f"{served.url}/agents/beta",
                "--json",
                "--only",
                "send.*",
                "--only",
                "get.*",
            ),
            *("--only", "across.*"),
            cwd=tmp_path,
        )
    told = json.loads(done.stdout)
    assert {"jsonrpc-1.0", "rest-1.0", "grpc-1.0", "jsonrpc-0.3", "rest-0.3"} == set(
        told["interfaces"]
    )
    assert told["score"]["total"]["percent"] == 100.0, [
        one for one in told["results"] if one["outcome"] not in ("ok", "skipped")
    ]
