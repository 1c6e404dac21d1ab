"""What python-a2a's client sees of a running agent: one JSON line per scenario.

Runs in the environment of `python-a2a`, never in ours: `python python_a2a_client.py URL`. The agent
is `tests/interop/agent.py`. The client swallows errors and makes up tasks in their place, so what
is looked at is what only the agent can have said.
"""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from typing import Any
from uuid import uuid4

from python_a2a import A2AClient, Message, MessageRole, Task, TaskState, TextContent


def message(text: str) -> Message:
    return Message(content=TextContent(text=text), role=MessageRole.USER)


def task(skill: str, text: str, **more: Any) -> Task:
    return Task(message=message(text).to_dict(), metadata={"skillId": skill}, **more)


def text_of(done: Task) -> str:
    return "".join(part.get("text", "") for made in done.artifacts for part in made["parts"])


def card(url: str) -> None:
    found = A2AClient(url).get_agent_card()
    assert found.name == "Interop desk", found
    assert "echo" in {skill.id for skill in found.skills}, found
    assert found.capabilities["streaming"] is True, found


def ask(url: str) -> None:
    assert A2AClient(url).ask("hello") == "HELLO"


def ask_in_googles_format(url: str) -> None:
    client = A2AClient(url, google_a2a_compatible=True)
    assert client.send_message(message("hello")).content.text == "HELLO"


def send(url: str) -> None:
    asked = task("echo", "hello")
    done = A2AClient(url)._send_task(asked)
    assert done.id == asked.id, done
    assert done.session_id == asked.session_id, done
    assert done.status.state is TaskState.COMPLETED, done
    assert text_of(done) == "HELLO", done


def send_in_parts(url: str) -> None:
    asked = Task(message=message("parts").to_google_a2a(), metadata={"skillId": "echo"})
    assert text_of(A2AClient(url)._send_task(asked)) == "PARTS"


def get(url: str) -> None:
    client = A2AClient(url)
    asked = task("echo", "again")
    client._send_task(asked)
    found = client.get_task(asked.id)
    assert found.id == asked.id, found
    assert text_of(found) == "AGAIN", found


def cancel(url: str) -> None:
    client = A2AClient(url)
    asked = task("trip", "plan")
    assert client._send_task(asked).status.state is TaskState.INPUT_REQUIRED
    gone = client.cancel_task(asked.id)
    assert gone.status.state is TaskState.CANCELED, gone
    assert "error" not in (gone.status.message or {}), gone
    assert client.get_task(asked.id).status.state is TaskState.CANCELED


def multi_turn(url: str) -> None:
    client = A2AClient(url)
    asked = task("trip", "plan")
    waiting = client._send_task(asked)
    assert waiting.status.state is TaskState.INPUT_REQUIRED, waiting
    again = task("trip", "Rome", id=asked.id, session_id=asked.session_id)
    assert text_of(client._send_task(again)) == "A trip to Rome"


def unknown_task(url: str) -> None:
    found = A2AClient(url).get_task(str(uuid4()))
    assert found.artifacts == [], found


def stream_task(url: str) -> None:
    async def words() -> list[dict[str, Any]]:
        return [step async for step in A2AClient(url).stream_task(task("write", "one two"))]

    steps = [step["result"] for step in asyncio.run(words())]
    made = [step["artifact"] for step in steps if "artifact" in step]
    assert "".join(part["text"] for piece in made for part in piece["parts"]) == "one two ", steps
    assert steps[-1]["final"] is True, steps


def stream_response(url: str) -> None:
    async def chunks() -> list[Any]:
        return [chunk async for chunk in A2AClient(url).stream_response(message("hello"))]

    # Its own way to stream is none of A2A's: it falls back to asking.
    assert asyncio.run(chunks()) == ["HELLO"]


SCENARIOS = [
    card,
    ask,
    ask_in_googles_format,
    send,
    send_in_parts,
    get,
    cancel,
    multi_turn,
    unknown_task,
    stream_task,
    stream_response,
]

for scenario in SCENARIOS:
    try:
        scenario(sys.argv[1])
        line = {"scenario": scenario.__name__, "ok": True, "detail": ""}
    except Exception:  # any failure is a verdict
        line = {"scenario": scenario.__name__, "ok": False, "detail": traceback.format_exc()}
    print(json.dumps(line), flush=True)
