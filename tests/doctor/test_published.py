"""What `docs/doctor.md` says is what the doctor finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor import publish

pytestmark = pytest.mark.slow  # starts processes

NAMES = ("dragoman", "a2a-sdk-1.3.0", "a2a-sdk-0.3.26")


def test_the_page_is_up_to_date() -> None:
    text = publish.PAGE.read_text("utf-8")
    assert publish.filled(text, publish.parts()) == text, "run: python tests/doctor/publish.py"


def test_the_session_is_what_a_terminal_shows(tmp_path: Path) -> None:
    text = publish.PAGE.read_text("utf-8")
    shown = publish.filled(text, {"session": lambda: publish.session(tmp_path)})
    assert shown == text


def test_our_own_server_has_a_full_score(tmp_path: Path) -> None:
    with publish.own(tmp_path) as url:
        report = publish.examined(url)
        oldest = publish.examine(url, publish.Orders(on=("jsonrpc-0.1",), timeout=60.0))
    assert set(report.interfaces) == {
        *("jsonrpc-1.0", "jsonrpc-0.3", "rest-1.0", "rest-0.3", "grpc-1.0", "grpc-0.3"),
    }
    assert oldest.interfaces == ("jsonrpc-0.1",)
    for one in (report, oldest):
        bad = [(r.on, r.id, r.why) for r in one.results if r.outcome in ("fail", "warning")]
        assert bad == []
    assert report.score()["total"]["passed"] > 500
    assert same(publish.findings(report)) == same(publish.kept()["dragoman"])


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES[1:])
def test_the_sdks_are_as_published(name: str, tmp_path: Path) -> None:
    with publish.patients(tmp_path)[name]() as url:
        report = publish.examined(url)
    assert same(publish.findings(report)) == same(publish.kept()[name])


def same(findings: publish.Findings) -> dict[str, str]:
    """What must not differ from run to run."""
    return {f"{one['on']} {one['id']}": one["outcome"] for one in findings["results"]}
