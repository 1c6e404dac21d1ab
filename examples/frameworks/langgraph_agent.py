"""A LangGraph graph as an agent: its interrupts ask the caller, its model writes token by token."""

from collections.abc import AsyncIterator

from langchain_core.language_models import FakeListChatModel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

from dragoman import Agent, Turn
from dragoman.adapters.langgraph import run_graph

model = FakeListChatModel(responses=["Three quiet days."])  # yours: init_chat_model(...)


class Trip(MessagesState):
    city: str


async def ask(state: Trip) -> dict[str, object]:
    return {"city": interrupt("Which city?")}


async def write(state: Trip) -> dict[str, object]:
    return {"messages": [await model.ainvoke(f"Plan a trip to {state['city']}")]}


steps = StateGraph(Trip).add_node("ask", ask).add_node("write", write)
steps = steps.add_edge(START, "ask").add_edge("ask", "write").add_edge("write", END)
graph = steps.compile(checkpointer=InMemorySaver())

agent = Agent("Travel desk", description="Plans trips")


@agent.skill("plan", description="Plans a trip")
async def plan(turn: Turn) -> AsyncIterator[object]:
    async for piece in run_graph(turn, graph):
        yield piece
