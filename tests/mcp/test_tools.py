"""Skills as tools without any I/O: names, schemas, messages and progress."""

from __future__ import annotations

import pytest

from dragoman import Agent, ArtifactChunk, Stamped, State, StateChanged, Turn
from dragoman.core.card import Card, CardSkill, Extension
from dragoman.core.errors import BadParams
from dragoman.core.extensions import PROGRESS, SKILLS
from dragoman.core.model import Artifact, Data, Message, Role, Text
from dragoman.mcp.progress import ProgressCount, ProgressStep
from dragoman.mcp.tools import MESSAGE, MOST_CHARS, prefix_of, tools_of


def card(*skills: str, **schemas: object) -> Card:
    listed = tuple(CardSkill(id=each, name=each, description=each) for each in skills)
    about = Extension(uri=SKILLS, params={"schemas": schemas})
    return Card(name="Desk!", description="x", version="1", skills=listed, extensions=(about,))


def test_names_are_what_mcp_and_models_accept_and_unique() -> None:
    long = "x" * 100
    names = list(tools_of("", card("plan", "plan a trip", "plan/a/trip", "旅行", "酒店", long)))
    assert names[:3] == ["plan", "plan_a_trip", f"plan_a_trip_{names[2][-8:]}"]
    assert names[3] == "skill"
    assert names[4].startswith("skill_")
    assert len(names[5]) == MOST_CHARS
    assert len(set(names)) == 6
    assert list(tools_of("", card("answer_task"))) != ["answer_task"]


def test_the_tools_of_several_agents_begin_with_the_name_of_their_agent() -> None:
    names = ("alpha", "a" * 63, "a" * 62 + "b")
    assert len({prefix_of(name) for name in names}) == 3
    for name in names:
        for tool in tools_of(name, card("plan", "旅行", "酒店", "x" * 100)):
            assert tool.partition("__")[0] == prefix_of(name)
            assert len(tool) <= MOST_CHARS


def test_an_agent_that_lists_no_skills_is_one_tool() -> None:
    assert list(tools_of("", card())) == ["Desk"]
    ((name, tool),) = tools_of("alpha", card()).items()
    assert name == "alpha"
    assert tool.message({"message": "hi"}).metadata is None


@pytest.mark.parametrize("schema", [None, 7, [], {"type": "array"}, {}, {"type": "object"}])
def test_a_schema_that_is_no_object_is_not_offered(schema: object) -> None:
    (tool,) = tools_of("", card("plan", plan={"input": schema})).values()
    assert tool.schema == MESSAGE


def test_arguments_become_a_message_for_the_skill() -> None:
    agent = Agent("Desk")

    @agent.skill("greet")
    async def greet(turn: Turn, name: str, times: int = 1) -> str:
        return name * times

    @agent.skill("say")
    async def say(turn: Turn) -> str:
        return turn.text

    tools = tools_of("", agent.card())
    message = tools["greet"].message({"name": "Ada"})
    assert message.parts == (Data({"name": "Ada"}),)
    assert message.metadata == {"skillId": "greet"}
    assert tools["say"].message({"message": "hi"}).parts == (Text("hi"),)
    with pytest.raises(BadParams, match='"name" is a required property'):
        tools["greet"].message({})


def test_progress_only_grows_with_and_without_fractions() -> None:
    count = ProgressCount()

    def said(text: str) -> StateChanged:
        message = Message(message_id="m", role=Role.AGENT, parts=(Text(text),))
        return StateChanged(state=State.WORKING, message=message)

    def at(fraction: float) -> StateChanged:
        return StateChanged(state=State.WORKING, metadata={PROGRESS: {"fraction": fraction}})

    piece = ArtifactChunk(artifact=Artifact(artifact_id="a", parts=(Text("piece"),)))
    events = [said("one"), piece, at(0.5), said("two"), at(0.25), at(1.0)]
    events.insert(2, StateChanged(state=State.WORKING))
    steps = [count.step(Stamped("t", "c", n, 0, event)) for n, event in enumerate(events)]
    told = [each for each in steps if each is not None]
    assert len(told) == 6
    assert told[:3] == [
        ProgressStep(1, None, "one"),
        ProgressStep(2, None, "piece"),
        ProgressStep(2.5, 3, None),
    ]
    assert [each.progress for each in told] == sorted({each.progress for each in told})
    assert all(each.total == 3 for each in told[2:])
