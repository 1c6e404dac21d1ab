"""What CrewAI's delegation to an A2A agent does with a served one: `crewai_client.py FOLDER URL`.

Called as its agents do it once their model has decided to ask the other agent; no model is needed
for that.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from typing import Any

os.environ |= {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "OTEL_SDK_DISABLED": "true",
    "CREWAI_STORAGE_DIR": tempfile.mkdtemp(),
}
folder, url = sys.argv[1:]
out, sys.stdout = sys.stdout, sys.stderr  # it draws its progress, from threads
sys.path.insert(0, folder)
from crewai.a2a.updates import PollingConfig, StreamingConfig  # noqa: E402
from crewai.a2a.utils.delegation import aexecute_a2a_delegation  # noqa: E402
from verdicts import Partly, judge  # noqa: E402


async def delegated(text: str, updates: Any, before: Any = None) -> Any:
    """How CrewAI sees the end of one turn; `before` is the turn that it goes on from."""
    about = {}
    if before is not None:
        said = before["history"][-1]
        about = {"task_id": said.task_id, "context_id": said.context_id}
    return await aexecute_a2a_delegation(
        endpoint=f"{url}/.well-known/agent-card.json",
        auth=None,
        timeout=60,
        task_description=text,
        conversation_history=before["history"] if before is not None else None,
        updates=updates,
        **about,
    )


async def answered(updates: Any) -> str:
    """The result of a task that asks back once."""
    question = await delegated("trip", updates)
    assert question["status"].value == "input-required", question
    assert question["error"] == "Which city?", question
    done = await delegated("Kyoto", updates, question)
    assert done["status"].value == "completed", done
    return str(done["result"])


async def send(_: None) -> None:
    done = await delegated("hello", PollingConfig(interval=0.2))
    assert (done["status"].value, done["result"]) == ("completed", "HELLO"), done


async def stream(_: None) -> None:
    done = await delegated("write one two", StreamingConfig())
    assert (done["status"].value, done["result"].split()) == ("completed", ["one", "two"]), done


async def answer(_: None) -> None:
    result = await answered(PollingConfig(interval=0.2))
    if result == "Which city? A trip to Kyoto":
        raise Partly("its result begins with the last message of the history, the question")
    assert result == "A trip to Kyoto", result


async def answer_streamed(_: None) -> None:
    result = await answered(StreamingConfig())
    assert result == "A trip to Kyoto", result


async def nothing() -> None:
    """Every question connects by itself."""


asyncio.run(judge([send, stream, answer, answer_streamed], nothing, out))
