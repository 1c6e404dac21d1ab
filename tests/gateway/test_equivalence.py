"""Every scenario of docs/equivalence.md holds through a gateway, in every binding of a caller."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from dragoman.core.auth_schemes import Known, Secret, Tokens
from dragoman.gateway import UpstreamAgent
from dragoman.gateway.upstream_pool import UpstreamPool
from dragoman.settings import Server, Settings
from equivalence.callers import BINDINGS
from equivalence.server import make_agent, open_server, serving
from equivalence.table import SCENARIOS
from equivalence.test_equivalence import outcome
from waiting import until

TOKEN = "the-token-of-the-gateway-itself"
FULL = bool(os.environ.get("DRAGOMAN_FULL"))
OPENED_FIRST = "a caller of 0.1 names its task, which is opened before the agent can refuse it"
APART: dict[tuple[str, str], tuple[Any, str]] = {
    **{
        ("references to other tasks", version): (
            [],
            "they are tasks that the caller has here; others could be those of another caller",
        )
        for version in ("1.0", "0.3")
    },
    **{
        ("the extended card", version): (
            (True, True, True),
            "the agent knows the gateway, which has the scopes, and not its callers",
        )
        for version in ("1.0", "0.3")
    },
    ("a skill that is not there", "0.1"): (None, OPENED_FIRST),
    ("typed parameters that are wrong", "0.1"): (None, OPENED_FIRST),
    ("a stream that is refused", "0.1"): (None, OPENED_FIRST),
}
"""What is otherwise through a gateway, by the version of the caller, and why. None: a task that
failed, and says the same."""


@pytest.mark.slow  # every scenario, in every binding
@pytest.mark.parametrize("dialect", ["a2a-1.0", "a2a-1.0-rest"] if FULL else ["a2a-1.0"])
async def test_every_scenario_holds_through_a_gateway(tmp_path: Path, dialect: str) -> None:
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "callers").mkdir()
    known = Known(secret=Secret(file=str(tmp_path / "token")), scopes=("deep",))
    own = Settings(
        server=Server(store="memory:"), auth={"token": Tokens(callers={"gateway": known})}
    )
    wrong: list[str] = []
    async with serving(make_agent(), own) as (_, url):
        pool = UpstreamPool("far", {url: {"auth": TOKEN, "dialect": dialect}})
        agent = UpstreamAgent("far", pool)
        async with open_server(tmp_path / "callers", agent) as running:
            await until(lambda: agent.dialect)
            for row in SCENARIOS:
                found = await asyncio.gather(*(outcome(row, running, each) for each in BINDINGS))
                for binding, given in zip(BINDINGS, found, strict=True):
                    meant, _ = APART.get((row.name, binding.version)) or row.cell(binding)
                    if meant is None and "failed" in str(given).lower():
                        continue
                    if given != meant:
                        wrong.append(f"{row.name} over {binding.name}: {given} is not {meant}")
    assert wrong == [], "\n".join(wrong)


def test_what_is_apart_has_a_reason_and_a_row() -> None:
    names = {row.name for row in SCENARIOS}
    for (name, _), (_, why) in APART.items():
        assert name in names
        assert why
