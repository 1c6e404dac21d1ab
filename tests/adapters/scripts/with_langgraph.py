"""LangGraph with a fake model."""

from __future__ import annotations

from typing import Any

from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt
from remote_desk import desk, desk_url, example, remote_desk, told
from typing_extensions import TypedDict

from dragoman import Agent, State, Turn
from dragoman.adapters.langgraph import as_tool, run_graph
from dragoman.testing import Client


def agent_of(graph: Any, **options: Any) -> Agent:
    agent = Agent("Graph")

    @agent.skill("run")
    async def run(turn: Turn):  # type: ignore[no-untyped-def]
        async for piece in run_graph(turn, graph, **options):
            yield piece

    return agent


async def test_the_example_asks_and_then_writes() -> None:
    async with Client(example("langgraph_agent").agent) as client:
        task = await client.send("a trip")
        assert task.state is State.INPUT_REQUIRED, task
        assert task.status.message is not None
        assert task.status.message.text == "Which city?"
        task = await client.send("Kyoto", task=task.id)
        assert (task.state, task.text) == (State.COMPLETED, "Three quiet days."), task


def chat(*answers: AIMessage | str, saver: Any = None) -> Any:
    model = GenericFakeChatModel(messages=iter(answers))

    async def answer(state: MessagesState) -> dict[str, object]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    steps = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer")
    return steps.compile(checkpointer=saver)


async def test_tokens_are_streamed_one_by_one() -> None:
    chunks, _, task = await told(agent_of(chat("one two three")), "count")
    assert [chunk for chunk in chunks if chunk.strip()] == ["one", "two", "three"]
    assert task.text == "one two three"


async def test_the_usage_of_the_model_is_reported() -> None:
    used = UsageMetadata(input_tokens=11, output_tokens=7, total_tokens=18)
    graph = chat()

    async def answer(state: MessagesState) -> dict[str, object]:
        return {"messages": [AIMessage("hello", usage_metadata=used)]}

    steps = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer")
    graph = steps.compile()
    chunks, usage, _ = await told(agent_of(graph), "hi")
    assert chunks[0] == "hello"
    assert usage == {
        "input_tokens": 11,
        "output_tokens": 7,
        "total_tokens": 18,
        "requests": 1,
    }


async def test_a_conversation_is_a_thread() -> None:
    graph = chat("first", "second", saver=InMemorySaver())
    async with Client(agent_of(graph)) as client:
        first = await client.send("one")
        await client.send("two", context_id=first.context_id)
    state = await graph.aget_state({"configurable": {"thread_id": first.context_id}})
    assert [m.text for m in state.values["messages"]] == ["one", "first", "two", "second"]


class Form(TypedDict, total=False):
    name: str
    drink: Any
    told: list[str]


async def test_several_interrupts_with_data_and_a_state_without_messages() -> None:
    def ask(state: Form) -> Form:
        drink = interrupt({"question": "What will you drink?", "choices": ["tea", "coffee"]})
        again = interrupt("Sure?")
        return {"drink": drink, "told": [again]}

    graph = StateGraph(Form).add_node("ask", ask).add_edge(START, "ask")
    agent = agent_of(graph.compile(checkpointer=InMemorySaver()), input={"name": "Ann"})
    async with Client(agent) as client:
        task = await client.send("order")
        assert task.status.message is not None
        assert task.status.message.text.startswith("What will you drink?")
        task = await client.send({"choice": "tea"}, task=task.id)
        task = await client.send("yes", task=task.id)
        assert task.state is State.COMPLETED, task
        (part,) = task.artifacts[0].parts
        assert part.value == {"name": "Ann", "drink": {"choice": "tea"}, "told": ["yes"]}


async def test_a_task_that_starts_again_finds_the_thread_as_it_was() -> None:
    saver = InMemorySaver()
    graph = chat("hello", saver=saver)
    seen: list[list[str]] = []

    def look(state: MessagesState) -> dict[str, object]:
        seen.append([str(message.text) for message in state["messages"]])
        return {"messages": [AIMessage(f"thanks, {interrupt('Name?')}")]}

    steps = StateGraph(MessagesState).add_node("look", look).add_edge(START, "look")
    asking = steps.compile(checkpointer=saver)
    store = "sqlite:///again.db"
    async with Client(agent_of(graph), store=store) as client:
        first = await client.send("one")
    async with Client(agent_of(asking), store=store) as client:
        task = await client.send("two", context_id=first.context_id)
        assert task.state is State.INPUT_REQUIRED
    async with Client(agent_of(asking), store=store) as client:  # another process has the thread
        task = await client.send("Ann", task=task.id)
        assert task.text == "thanks, Ann", task
    assert {tuple(each) for each in seen} == {("one", "hello", "two")}


async def test_a_remote_agent_is_a_tool() -> None:
    async with remote_desk() as remote:
        tool = as_tool(remote)
        assert tool.name == "travel_desk"
        assert "Plans a trip" in tool.description
        assert await tool.ainvoke({"message": "Kyoto"}) == "A trip to Kyoto"
        asked = await tool.ainvoke({"message": "trip"})
        assert "Which city?" in asked
        task = asked.rpartition('task="')[2].partition('"')[0]
        assert await tool.ainvoke({"message": "Rome", "task": task}) == "A trip to Rome"
        assert "under water" in await tool.ainvoke({"message": "Atlantis"})
        assert "did not take this" in await tool.ainvoke({"message": "x", "task": "nowhere"})


class Planner(GenericFakeChatModel):
    """Calls the tool, and then repeats what it said."""

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        assert [tool.name for tool in tools] == ["travel_desk"]
        return self

    def _generate(self, messages: Any, *_: Any, **__: Any) -> Any:
        call = {"name": "travel_desk", "args": {"message": "Kyoto"}, "id": "1"}
        if messages[-1].type == "tool":
            said = AIMessage(messages[-1].content)
        else:
            said = AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=said)])


async def test_the_example_calls_the_tool() -> None:
    async with desk_url() as url:
        model = Planner(messages=iter(()))
        assert await example("langgraph_tool").plan(url, model) == "A trip to Kyoto"


async def test_a_skill_gives_its_own_client_to_a_tool() -> None:
    from dragoman.testing import served

    agent = Agent("Boss")

    @agent.skill("ask")
    async def ask(turn: Turn) -> str:
        tool = as_tool(turn.agent(url), name="desk", description="Plans trips")
        return str(await tool.ainvoke({"message": turn.text}))

    async with served(desk) as url, Client(agent) as client:
        assert (await client.send("Rome")).text == "A trip to Rome"
