"""Pydantic models, dataclasses, TypedDicts and attrs classes as parameters and results."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, TypedDict

import attrs
import pytest
from pydantic import BaseModel, ConfigDict, Field

from dragoman import Agent, Data, State, Turn
from dragoman.core.errors import BadParams
from dragoman.core.json_schema import wrong
from dragoman.testing import Client


class Guest(BaseModel):
    name: str
    age: Annotated[int, Field(ge=0)] = 30


class PydanticTrip(BaseModel):
    model_config = ConfigDict(strict=True)
    city: str
    start: date = Field(alias="startDate")
    guests: list[Guest] = []


@dataclass
class DataclassTrip:
    city: str
    startDate: date  # noqa: N815  as all of them
    guests: list[dict[str, Any]]


@attrs.define
class AttrsTrip:
    city: str
    startDate: date  # noqa: N815
    guests: list[dict[str, Any]]


class TypedDictTrip(TypedDict):
    city: str
    startDate: date
    guests: list[dict[str, Any]]


KINDS = [PydanticTrip, DataclassTrip, AttrsTrip, TypedDictTrip]
KYOTO = {"city": "Kyoto", "startDate": "2026-11-17", "guests": [{"name": "Ada", "age": 36}]}


def agent_for(kind: Any) -> Agent:
    agent = Agent("Trips")
    made: list[object] = []

    async def make(trip: Any) -> Any:
        made.append(trip)
        return trip

    make.__annotations__ = {"trip": kind, "return": kind}

    @agent.skill("one", default=True)
    async def one(turn: Turn, trip: Any) -> Any:
        again = await turn.step("copied", make, trip)
        assert type(again) is type(trip)
        assert isinstance(trip, dict if kind is TypedDictTrip else kind)
        return again

    @agent.skill("several")
    async def several(turn: Turn, trips: Any) -> Any:
        return trips[0]

    for skill, given in ((one, {"trip": kind}), (several, {"trips": list[kind]})):
        skill.__annotations__ = {"turn": Turn, **given, "return": kind}
    return _rebuilt(agent, one, several)


def _rebuilt(agent: Agent, *functions: Any) -> Agent:
    """The same skills, with the annotations that were set after the decorators had read them."""
    found = Agent(agent.name)
    for function in functions:
        found.skill(function.__name__)(function)
    return found


@pytest.mark.parametrize("kind", KINDS)
async def test_they_arrive_as_themselves_and_leave_as_data(kind: Any) -> None:
    async with Client(agent_for(kind)) as client:
        for skill, given in (("one", {"trip": KYOTO}), ("several", {"trips": [KYOTO]})):
            task = await client.send(given, skill=skill)
            assert task.state is State.COMPLETED, task.status.message
            (part,) = task.artifacts[0].parts
            assert isinstance(part, Data)
            assert part.value == KYOTO


@pytest.mark.parametrize("kind", KINDS)
async def test_wrong_ones_are_refused_with_their_place(kind: Any) -> None:
    async with Client(agent_for(kind)) as client:
        with pytest.raises(BadParams) as refused:
            await client.send({"trip": {"city": 3, "startDate": "2026-11-17", "guests": []}})
        assert "$.trip" in refused.value.message
        assert "city" in refused.value.message
        assert len(refused.value.message) < 200
        assert "pydantic.dev" not in refused.value.message


@pytest.mark.parametrize("kind", KINDS)
def test_their_schemas_are_published_and_true(kind: Any) -> None:
    agent = agent_for(kind)
    for skill, given in (("one", {"trip": KYOTO}), ("several", {"trips": [KYOTO]})):
        params = agent.skills[skill].params
        assert wrong(params.input_schema, given) == ""
        assert wrong(params.output_schema, KYOTO) == ""
        assert wrong(params.output_schema, {"city": 3})
        assert wrong(params.input_schema, {"trip": {}, "trips": [{}]})
    deep = {"trip": KYOTO | {"guests": [{"name": 3}]}}
    assert bool(wrong(agent.skills["one"].params.input_schema, deep)) is (kind is PydanticTrip)


async def test_a_result_that_breaks_its_model_fails_the_task() -> None:
    agent = Agent("Trips")

    @agent.skill("plan")
    async def plan(turn: Turn) -> PydanticTrip:
        return {"city": 3}  # type: ignore[return-value]  # what the test is about

    async with Client(agent) as client:
        task = await client.send("x")
        assert task.state is State.FAILED


async def test_models_may_be_said_and_sent() -> None:
    agent = Agent("Trips")

    @agent.skill("plan")
    async def plan(turn: Turn, guest: Guest) -> dict[str, Any]:
        await turn.artifact(guest, AttrsTrip("Oslo", date(2026, 1, 1), []), name="both")
        return {"guests": [guest]}

    async with Client(agent) as client:
        task = await client.send({"guest": Guest(name="Ada")})
        assert task.state is State.COMPLETED, task.status.message
        both, result = task.artifacts
        assert [part.value for part in both.parts if isinstance(part, Data)] == [
            {"name": "Ada", "age": 30},
            {"city": "Oslo", "startDate": "2026-01-01", "guests": []},
        ]
        assert result.parts == (Data({"guests": [{"name": "Ada", "age": 30}]}),)


@pytest.mark.slow  # starts processes
def test_pydantic_is_not_imported_for_agents_without_models() -> None:
    code = (
        "import sys\nfrom dataclasses import dataclass\nfrom dragoman import Agent, Turn\n"
        "@dataclass\nclass Trip:\n    city: str\n"
        "agent = Agent('x')\n"
        "@agent.skill('plan')\n"
        "async def plan(turn: Turn, trip: Trip) -> Trip: return trip\n"
        "agent.card()\nimport dragoman.client, dragoman.server.serve\n"
        "assert 'pydantic' not in sys.modules and 'attrs' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
