"""A graph whose model calls a remote agent, of any dialect, as a tool."""

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from dragoman import connect
from dragoman.adapters.langgraph import as_tool


async def plan(url: str, model: BaseChatModel) -> str:
    async with connect(url) as desk:
        tools = [as_tool(desk)]
        bound = model.bind_tools(tools)

        async def think(state: MessagesState) -> dict[str, object]:
            return {"messages": [await bound.ainvoke(state["messages"])]}

        steps = StateGraph(MessagesState).add_node("think", think)
        steps = steps.add_node("tools", ToolNode(tools)).add_edge(START, "think")
        graph = steps.add_conditional_edges("think", tools_condition).add_edge("tools", "think")
        said = MessagesState(messages=[HumanMessage("Plan a trip to Kyoto")])
        return str((await graph.compile().ainvoke(said))["messages"][-1].text)
