"""What Strands' A2AAgent does with a served agent: `strands_client.py FOLDER URL`."""

from __future__ import annotations

import asyncio
import inspect
import sys

from a2a.types import TaskArtifactUpdateEvent
from strands.agent.a2a_agent import A2AAgent
from strands.multiagent.a2a._converters import convert_input_to_message

folder, url = sys.argv[1:]
sys.path.insert(0, folder)
from verdicts import Cannot, Partly, judge  # noqa: E402


def text_of(result: object) -> str:
    return "".join(block["text"] for block in result.message["content"])  # type: ignore[attr-defined]


async def send(_: None) -> None:
    done = await A2AAgent(url).invoke_async("hello")
    assert (done.stop_reason, text_of(done)) == ("end_turn", "HELLO"), done
    raise Partly("it always asks for a stream")


async def stream(_: None) -> None:
    pieces, result = [], None
    async for event in A2AAgent(url).stream_async("write one two"):
        if "result" in event:
            result = event["result"]
        elif isinstance(event["event"][1], TaskArtifactUpdateEvent):
            pieces.append(event["event"][1].artifact.parts[0].root.text)
    assert pieces == ["one ", "two "], pieces
    assert text_of(result) == "one two ", result


async def asked() -> Cannot:
    """The question is told; an answer would be a task of its own."""
    question = await A2AAgent(url).invoke_async("trip")
    assert (question.stop_reason, text_of(question)) == ("interrupt", "Which city?"), question
    assert convert_input_to_message("Kyoto").task_id is None, "it can"
    assert list(inspect.signature(A2AAgent.invoke_async).parameters)[1:] == ["prompt", "kwargs"]
    return Cannot("it tells the question, but none of its messages names the task that it answers")


async def answer(_: None) -> None:
    raise await asked()


async def answer_streamed(_: None) -> None:
    raise await asked()


async def nothing() -> None:
    """Every question connects by itself."""


asyncio.run(judge([send, stream, answer, answer_streamed], nothing))
