"""The doctor visits agents that nobody here wrote: what it says about them is true and of use."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli.run import dragoman
from doctor.servers import wait_for
from dragoman.doctor import Orders, Report, examine
from interop.peers import A2A_SDK
from ports import own_port

pytestmark = pytest.mark.slow  # starts processes

STRANGERS = Path(__file__).with_name("strangers")
TOKEN = "a-token-that-nobody-may-see-0123"
QUESTION = {"text": "hi", "ask_text": "trip"}


@contextmanager
def stranger(log: Path, script: str, *args: str, python: list[str]) -> Iterator[str]:
    """Starts one of them, and yields its address."""
    port = own_port()
    command = [*python, str(STRANGERS / script), str(port), *args]
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_for(port, process, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@contextmanager
def sdk_that_asks(folder: Path, *args: str) -> Iterator[str]:
    python = A2A_SDK.start(A2A_SDK.ready())
    with stranger(folder / "log", "a2a_sdk_asks.py", *args, python=python) as url:
        yield url


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("rest") / "log"
    with stranger(log, "rest_0_3.py", python=[sys.executable]) as url:
        yield url


def outcomes(report: Report) -> dict[str, str]:
    return {result.id: result.outcome for result in report.results}


def test_a_locked_agent_is_asked_for_its_credentials_and_not_failed(tmp_path: Path) -> None:
    with sdk_that_asks(tmp_path, TOKEN) as url:
        done = dragoman("doctor", url, cwd=tmp_path)
        assert done.returncode == 3
        first = done.stdout.splitlines()[0]
        assert first.startswith(f"Desk that asks at {url} asks for credentials (401)")
        assert "--header 'Authorization: Bearer {TOKEN}'" in first
        assert "jsonrpc-1.0  1 ok, 0 failed" in done.stdout  # auth.refused, as it should be
        told = json.loads(dragoman("doctor", url, "--json", cwd=tmp_path).stdout)
        assert told["interfaces"] == []
        assert {one["on"] for one in told["results"] if one["outcome"] == "fail"} <= {"card"}
        assert "--header" in told["leftOut"][0]

        wrong = dragoman(
            *("doctor", url, "--header", "Authorization: Bearer {MINE}"),
            cwd=tmp_path,
            MINE="not-the-token",
        )
        assert wrong.returncode == 3
        assert "refuses the credentials of --header (401)" in wrong.stdout.splitlines()[0]

        header = ("--header", "Authorization: Bearer {MINE}", "--only", "get.*")
        right = dragoman("doctor", url, *header, cwd=tmp_path, MINE=TOKEN)
        assert right.returncode == 0, right.stdout
        assert (
            "get.unknown" in dragoman("doctor", url, *header, "-v", cwd=tmp_path, MINE=TOKEN).stdout
        )


def test_follow_ups_without_their_context_are_found_to_fail(tmp_path: Path) -> None:
    """a2a-sdk 1.3.0 gives a follow-up that names only its task a context of its own, and fails the
    task at the second one."""
    with sdk_that_asks(tmp_path) as url:
        report = examine(url, Orders(**QUESTION, only=("ask.*",)))
        assert outcomes(report) == {
            "ask.message": "pass",
            "ask.answer": "pass",
            "ask.task-only": "fail",
            "ask.other-context": "pass",
        }
        (found,) = [result for result in report.results if result.outcome == "fail"]
        assert "contextId" in found.why
        silent = examine(url, Orders(text="hi", only=("ask.*",)))
        assert set(outcomes(silent).values()) == {"skipped"}
        assert all("--ask-text" in result.why for result in silent.results)
        no_question = examine(url, Orders(text="hi", ask_text="hi", only=("ask.answer",)))
        assert "asks no question" in no_question.results[0].why


def test_an_agent_of_1_0_alone_is_not_warned_about_0_2(tmp_path: Path) -> None:
    with sdk_that_asks(tmp_path) as url:
        report = examine(url, Orders(only=("card.*",)))
    assert outcomes(report)["card.old-path"] == "skipped"
    warned = [result for result in report.results if result.outcome in ("warning", "fail")]
    assert [result.id for result in warned if "1.0" not in result.check.spec] == []


def test_webhooks_of_0_3_are_set_in_the_form_that_the_agent_takes(rest: str) -> None:
    report = examine(rest, Orders(only=("push.*",)))
    assert outcomes(report) == {
        **dict.fromkeys(("push.set", "push.get", "push.list", "push.several"), "pass"),
        **dict.fromkeys(("push.delete", "push.unknown-task", "push.unknown-config"), "pass"),
        **dict.fromkeys(("push.url", "push.private"), "pass"),
        "push.undeclared": "skipped",
    }


def test_a_port_that_has_answered_http_is_not_thought_to_be_https(rest: str) -> None:
    report = examine(rest, Orders(only=("subscribe.unknown",)))
    (found,) = report.results
    assert found.outcome == "fail"
    assert found.why == "it closed the connection without an answer"
