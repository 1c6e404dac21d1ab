"""The agent frameworks, each in an environment of its own, with a served agent and the other way.

`make test` tries the lightest of them, `make test-full` all; `docs/frameworks.md` shows the table.
"""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from frameworks import matrix
from frameworks.matrix import FRAMEWORKS, FULL, OURS, PAGE, THEIRS, TRIED, Framework, Verdicts
from interop.matrix import heard
from interop.peers import AGENT_FRAMEWORK, HEAVY, LIGHT, PeerUnavailable
from interop.serving import served

# The first test of a framework builds its environment and runs a whole script.
pytestmark = pytest.mark.slow
Ask = Callable[[Framework], Verdicts]
BACKGROUND = (
    *("failed_send", "failed_stream", "polled", "polled_by_url"),
    *("resumed", "resumed_by_url", "grpc_alone", "resumed_over_grpc"),
)
"""What the script about agent-framework tries."""


def once(ask: Ask) -> Ask:
    """Asks a framework once; skips it where it cannot run."""

    @cache
    def asked(framework: Framework) -> Verdicts:
        try:
            return ask(framework)
        except PeerUnavailable as exc:
            pytest.skip(str(exc))

    return asked


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Runs the script of a framework's client."""
    with matrix.served_desk(tmp_path_factory.mktemp("desk")) as url:
        yield once(lambda framework: matrix.ask_client(framework, url))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """Tries our client with a framework's server."""
    folder = tmp_path_factory.mktemp("theirs")
    return once(lambda framework: matrix.ask_server(framework, folder))


tried = pytest.mark.parametrize("framework", TRIED, ids=lambda each: each.peer.name)


@pytest.mark.parametrize("operation", THEIRS)
@tried
def test_their_client_with_our_server(client: Ask, framework: Framework, operation: str) -> None:
    verdict = client(framework)[operation]
    assert verdict.ok, verdict.detail


@pytest.mark.parametrize("operation", OURS)
@tried
def test_our_client_with_their_server(server: Ask, framework: Framework, operation: str) -> None:
    verdict = server(framework)[operation]
    assert verdict.ok, verdict.detail


def test_what_the_page_shows_is_what_was_seen(client: Ask, server: Ask) -> None:
    clients = {framework: client(framework) for framework in TRIED}
    servers = {framework: server(framework) for framework in TRIED}
    page, made = PAGE.read_text("utf-8"), matrix.shown(clients, servers)
    again = "run: .venv/bin/python tests/frameworks/matrix.py"
    if FULL:
        assert matrix.filled(page, made) == page, again
    else:
        assert rows(made) <= rows(page), again


def rows(page: str) -> set[str]:
    """The rows of frameworks, without the numbers of their remarks."""
    lines = [line for line in page.splitlines() if "(a2a-sdk " in line]
    return {re.sub(r" \[\d+\]", "", line) for line in lines}


def test_every_framework_is_on_the_page_and_set_up() -> None:
    page = PAGE.read_text("utf-8")
    for framework in FRAMEWORKS:
        assert page.count(f"| {framework.name} |") == 2
        assert (framework.peer in LIGHT) != (framework.peer in HEAVY)
    assert any(framework.peer in LIGHT for framework in TRIED)


@pytest.mark.parametrize("script", sorted(Path(matrix.HERE).glob("*/*.py")), ids=lambda p: p.stem)
def test_every_script_belongs_to_a_framework(script: Path) -> None:
    assert script in {path for each in FRAMEWORKS for path in (each.client, each.server)}


@pytest.mark.skipif(not FULL, reason="needs Google ADK (make test-full)")
@pytest.mark.parametrize("listed", [True, False])
def test_adk_takes_a_card_with_grpc_unless_it_is_listed(tmp_path: Path, *, listed: bool) -> None:
    """It wants every interface on the http origin of the card, and the page says so."""
    (adk,) = [each for each in FRAMEWORKS if each.script == "google_adk"]
    config = "[server]\ngrpc = true\n" + ("" if listed else "grpc_listed = false\n")
    with served(tmp_path, matrix.HERE / "agent.py", config=config) as url:
        card = urllib.request.urlopen(f"{url}/.well-known/agent-card.json", timeout=60).read()
        assert (b'"GRPC"' in card) == listed
        verdict = matrix.ask_client(adk, url)["send"]
        assert verdict.ok != listed, verdict.detail
    said = (tmp_path / "server.log").read_text()
    assert ("grpc_listed = false" in said) == listed, said


@pytest.mark.skipif(not FULL, reason="needs agent-framework (make test-full)")
def test_agent_framework_with_failures_and_work_in_the_background(tmp_path: Path) -> None:
    """What the page says of its gaps, and what works in spite of them."""
    script = matrix.HERE / "agent_framework_background.py"
    with served(tmp_path, matrix.HERE / "agent.py") as url:
        try:
            done = AGENT_FRAMEWORK.run(script, str(matrix.VERDICTS), url, timeout=600)
        except PeerUnavailable as exc:
            pytest.skip(str(exc))
    verdicts = heard(done, BACKGROUND)
    assert not {name: each.detail for name, each in verdicts.items() if not each.ok}
