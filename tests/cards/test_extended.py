"""The extended card: made as the public one is, with what a known caller may see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cards.served import CARD, app_for, ask, desk
from cards.test_served import key_file
from dragoman import Agent
from dragoman.core.auth_schemes import Known, Secret, Tokens
from dragoman.core.card import Card
from dragoman.core.errors import NoExtendedCard
from dragoman.core.operations import GetExtendedCard
from dragoman.dialects.a2a.cards import documents
from dragoman.settings import Signing
from semantics.ways import WAYS, Way, served

TOKEN = "a-token-of-the-boss-1"
KNOWN = {"authorization": f"Bearer {TOKEN}"}
WITH_CARD = [way for way in WAYS.values() if way.name != "JSON-RPC 0.1"]


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Agent:
    monkeypatch.setenv("BOSS", TOKEN)
    return desk(auth={"robots": Tokens(callers={"boss": Known(secret=Secret(env="BOSS"))})})


def hide_one(agent: Agent) -> None:
    @agent.skill("audit", extended=True)
    async def audit(turn: Any) -> str:
        return "well"


@pytest.mark.parametrize(("path", "version"), [("/extendedAgentCard", "1.0"), ("/v1/card", "0.3")])
async def test_it_says_all_that_the_public_card_says(
    agent: Agent, tmp_path: Path, path: str, version: str
) -> None:
    hide_one(agent)
    app = app_for(agent, signing=Signing(keys=(key_file(tmp_path, "k"),)))
    public = await ask(app, CARD, a2a_version=version)
    got = await ask(app, path, a2a_version=version, **KNOWN)
    ours, theirs = documents.card_in(public.body), documents.card_in(got.body)
    assert theirs.push
    assert any(each.uri == "urn:dragoman:dialects:1" for each in theirs.extensions)
    assert [skill.id for skill in theirs.skills] == ["look", "audit"]
    assert len(theirs.signatures) == len(ours.signatures) > 0
    assert [each.uri for each in theirs.extensions] == [each.uri for each in ours.extensions]
    # The schemas of skills stand among the extensions.
    bare = {"skills": (), "signatures": (), "extensions": ()}
    assert replace(theirs, **bare) == replace(ours, **bare)


@pytest.mark.parametrize("from_scratch", [True, False])
async def test_one_that_the_author_writes_keeps_what_is_in_force(
    agent: Agent, *, from_scratch: bool
) -> None:
    @agent.extended_card
    def written(caller: Any) -> Card:
        begun = Card(name="Desk", description="", version="1") if from_scratch else agent.card()
        return replace(begun, description="Yours")

    app = app_for(agent)
    public = (await ask(app, a2a_version="1.0")).json
    got = (await ask(app, "/extendedAgentCard", a2a_version="1.0", **KNOWN)).json
    assert got["description"] == "Yours"
    assert got["capabilities"] == public["capabilities"]
    for name in ("supportedInterfaces", "securitySchemes", "securityRequirements"):
        assert got[name] == public[name]


@pytest.mark.parametrize("way", WITH_CARD, ids=lambda way: way.name)
async def test_an_author_may_have_none_for_a_caller(agent: Agent, way: Way) -> None:
    """The card promises one, so this is A2A's own error for it."""

    @agent.extended_card
    async def written(caller: Any) -> None:
        return None

    async with served(agent) as running:
        heard = await way.ask(running, GetExtendedCard(), headers=KNOWN)
        assert type(heard.error) is NoExtendedCard
        if way.name.startswith("JSON-RPC"):
            assert heard.code == -32007


async def test_without_a_public_url_it_has_the_address_that_was_typed(agent: Agent) -> None:
    hide_one(agent)
    app = app_for(agent, base="", server={"host": "0.0.0.0", "hosts": ("desk.example",)})
    for path in ("/extendedAgentCard", "/v1/card"):
        got = await ask(app, path, host="desk.example:81", **KNOWN)
        listed = documents.card_in(got.body).interfaces
        assert listed
        assert all(each.url.startswith("http://desk.example:81") for each in listed)
