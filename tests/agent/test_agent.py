"""Defining an agent: skills, which one is chosen, mistakes found before anything starts."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman import Agent, Provider, SyncTurn, Turn
from dragoman.agent import Shape
from dragoman.core.errors import BadParams, ConfigError
from dragoman.testing import Client


def three() -> Agent:
    agent = Agent("Three")
    for name in ("one", "two", "three"):

        async def skill(turn: Turn) -> str:
            return turn.skill

        agent.skill(name)(skill)
    return agent


async def test_the_first_skill_is_chosen_when_none_is_named() -> None:
    async with Client(three()) as client:
        assert (await client.send("hi")).text == "one"


async def test_the_default_skill_is_chosen_when_none_is_named() -> None:
    agent = three()

    @agent.skill("four", default=True)
    async def four(turn: Turn) -> str:
        return "four"

    async with Client(agent) as client:
        assert (await client.send("hi")).text == "four"
        assert (await client.send("hi", skill="two")).text == "two"


async def test_the_message_names_the_skill_before_the_request() -> None:
    async with Client(three()) as client:
        op, ctx = client._message(("hi",), {})
        by_request = replace(op, metadata={"skillId": "two"})
        task = await client.engine.call(by_request, ctx)
        assert task.text == "two"  # type: ignore[union-attr]
        both = replace(by_request, message=replace(op.message, metadata={"skillId": "three"}))
        assert (await client.engine.call(both, ctx)).text == "three"  # type: ignore[union-attr]


async def test_an_unknown_skill_is_refused_with_the_list() -> None:
    async with Client(three()) as client:
        with pytest.raises(BadParams, match=r"`five`.*one, two, three"):
            await client.send("hi", skill="five")
        with pytest.raises(BadParams, match="skillId"):
            await client.send("hi", metadata={"skillId": 5})
        assert (await client.list()).total == 0


async def test_a_task_keeps_its_skill() -> None:
    agent = Agent("Keeper")

    @agent.skill("one")
    async def one(turn: Turn) -> str:
        return f"{turn.skill} {await turn.ask('Well?')}"

    @agent.skill("two")
    async def two(turn: Turn) -> str:
        return "two"

    async with Client(agent) as client:
        task = await client.send("hi")
        assert (await client.send("yes", task=task, skill="two")).text == "one yes"


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        ("async def f(turn): ...", Shape.COROUTINE),
        ("async def f(turn): yield 1", Shape.GENERATOR),
        ("def f(turn): ...", Shape.PLAIN),
        ("def f(turn): yield 1", Shape.PLAIN_GENERATOR),
        ("f = lambda turn: 1", Shape.PLAIN),
    ],
)
def test_shapes_are_seen(function: str, shape: Shape) -> None:
    space: dict[str, Any] = {}
    exec(function, space)
    agent = Agent("Shapes")
    assert agent.skill("f")(space["f"]) is space["f"]
    assert agent.skills["f"].shape is shape


def test_methods_are_skills_too() -> None:
    class Desk:
        async def plan(self, turn: Turn, city: str) -> str:
            return city

    agent = Agent("Desk")
    agent.skill("plan")(Desk().plan)
    assert agent.skills["plan"].params.names == ("city",)
    assert agent.skills["plan"].shape is Shape.COROUTINE


def test_a_skill_describes_itself() -> None:
    agent = Agent("Desk")

    @agent.skill("plan", tags=["travel"], examples=["Kyoto"], name="Plan a trip")
    async def plan(turn: Turn) -> str:
        """Plans a trip.

        In great detail.
        """
        return ""

    @agent.skill("bare")
    async def bare(turn: Turn) -> str:
        return ""

    plan_card, bare_card = agent.card().skills
    assert (plan_card.id, plan_card.name, plan_card.description) == (
        "plan",
        "Plan a trip",
        "Plans a trip.",
    )
    assert (plan_card.tags, plan_card.examples) == (("travel",), ("Kyoto",))
    assert (bare_card.name, bare_card.description, bare_card.tags) == ("bare", "bare", ("bare",))


def test_the_card_says_what_the_author_said() -> None:
    agent = Agent(
        "Desk",
        description="Plans trips",
        version="2.1.0",
        provider=Provider(organization="Acme", url="https://acme.example"),
        documentation_url="https://acme.example/docs",
        icon_url="https://acme.example/icon.png",
        input_modes=["text/plain"],
        output_modes=["text/markdown"],
    )
    card = agent.card()
    assert (card.name, card.description, card.version) == ("Desk", "Plans trips", "2.1.0")
    assert card.provider is not None
    assert card.provider.organization == "Acme"
    assert card.input_modes == ("text/plain",)
    assert card.output_modes == ("text/markdown",)
    assert [e.uri for e in card.extensions] == [
        "urn:dragoman:cursor:1",
        "urn:dragoman:idempotency:1",
        "urn:dragoman:work:1",
        "urn:dragoman:transitions:1",
    ]


def test_schemas_are_published() -> None:
    agent = Agent("Desk")

    @agent.skill("plan")
    async def plan(turn: Turn, city: str, days: int = 3) -> dict[str, int]:
        return {}

    @agent.skill("plain")
    async def plain(turn: Turn) -> AsyncGenerator[str, None]:
        yield ""

    (skills,) = [e for e in agent.card().extensions if e.uri == "urn:dragoman:skills:1"]
    assert skills.params == {
        "schemas": {
            "plan": {
                "input": {
                    "title": "plan-arguments",
                    "type": "object",
                    "properties": {
                        "city": {"type": "string"},
                        "days": {"type": "integer", "default": 3},
                    },
                    "required": ["city"],
                    "additionalProperties": False,
                },
                "output": {"type": "object", "additionalProperties": {"type": "integer"}},
            }
        }
    }


# Mistakes.


async def good(turn: Turn) -> str:
    return ""


async def no_turn() -> str:
    return ""


async def open_ended(turn: Turn, **options: str) -> str:
    return ""


async def odd(turn: Turn, thing: object, other: Callable[[], None]) -> str:
    return ""


async def unknown(turn: Turn, thing: NoSuchType) -> str:  # type: ignore[name-defined]  # noqa: F821
    return ""


MISTAKES = [
    pytest.param(lambda: Agent("  "), "needs a name", id="no name"),
    pytest.param(lambda: Agent("A").skill(good), "@agent.skill", id="no id"),  # type: ignore[arg-type]
    pytest.param(lambda: Agent("A").skill("x")(3), "must be a function", id="no function"),  # type: ignore[type-var]
    pytest.param(lambda: Agent("A").skill("x")(no_turn), "first one is the turn", id="no turn"),
    pytest.param(lambda: Agent("A").skill("x")(open_ended), r"\*\*kwargs", id="kwargs"),
    pytest.param(lambda: Agent("A").skill("x")(odd), "no JSON Schema", id="no schema"),
    pytest.param(lambda: Agent("A").skill("x")(unknown), "NoSuchType", id="unknown type"),
    pytest.param(lambda: Agent("A").skill("x", on_crash="retry"), "on_crash", id="on_crash"),  # type: ignore[arg-type]
    pytest.param(lambda: Agent("A").skill("x", max_attempts=0), "max_attempts", id="attempts"),
    pytest.param(lambda: Agent("A").skill("x", timeout=0), "timeout", id="timeout"),
    pytest.param(lambda: Agent("A").skill("x", cancel_grace=-1), "cancel_grace", id="grace"),
    pytest.param(lambda: Agent("A").skill("x", join=-1), "join", id="join"),
]


@pytest.mark.parametrize(("mistake", "words"), MISTAKES)
def test_mistakes_are_explained(mistake: Callable[[], object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        mistake()


def test_ids_are_unique_and_one_is_default() -> None:
    agent = Agent("A")
    agent.skill("x", default=True)(good)
    with pytest.raises(ConfigError, match="two skills `x`"):
        agent.skill("x")(good)
    with pytest.raises(ConfigError, match="both default"):
        agent.skill("y", default=True)(good)
    assert list(agent.skills) == ["x"]


def test_a_decorator_used_twice_is_noticed() -> None:
    agent = Agent("A")
    decorate = agent.skill("x")
    decorate(good)
    with pytest.raises(ConfigError, match="two skills `x`"):
        decorate(good)


def test_plain_turns_have_the_same_name_in_hints() -> None:
    def look_up(turn: SyncTurn, word: str) -> str:
        return word

    agent = Agent("A")
    agent.skill("x")(look_up)
    assert agent.skills["x"].params.names == ("word",)
