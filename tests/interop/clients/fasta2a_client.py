"""What fasta2a's client sees of a running agent: one JSON line per scenario.

Runs in the environment of `fasta2a`, never in ours: `python fasta2a_client.py URL`. The agent is
`tests/interop/agent.py`.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import traceback
from typing import Any
from uuid import uuid4

from fasta2a.client import A2AClient

SKILLS = {"echo", "write", "trip", "slow", "silent", "files"}


def said(skill: str, *parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "role": "user",
        "parts": list(parts),
        "message_id": str(uuid4()),
        "metadata": {"skillId": skill},
        **more,
    }


def text_of(made: list[dict[str, Any]]) -> str:
    return "".join(part.get("text", "") for artifact in made for part in artifact["parts"])


async def card(url: str) -> None:
    client = A2AClient(url, fetch_card=True)
    assert client.agent_card["name"] == "Interop desk"
    assert {skill["id"] for skill in client.agent_card["skills"]} >= SKILLS
    answer = await client.send_message(said("echo", {"text": "hi"}))
    assert answer["result"]["task"]["status"]["state"] == "completed"


async def send(url: str) -> None:
    answer = await A2AClient(url).send_message(said("echo", {"text": "hello"}))
    task = answer["result"]["task"]
    assert task["status"]["state"] == "completed", task
    assert text_of(task["artifacts"]) == "HELLO", task
    assert task["history"][0]["role"] == "user", task


async def send_without_waiting(url: str) -> None:
    client = A2AClient(url)
    answer = await client.send_message(
        said("slow", {"text": "3"}),
        configuration={"accepted_output_modes": ["text/plain"], "blocking": False},
    )
    task = answer["result"]["task"]
    assert task["status"]["state"] in ("submitted", "working"), task
    for _ in range(50):
        task = (await client.get_task(task["id"]))["result"]
        if task["status"]["state"] == "completed":
            return
        await asyncio.sleep(0.1)  # and looks again
    raise AssertionError(task)


async def stream(url: str) -> None:
    kinds: list[str] = []
    words = ""
    async for answer in A2AClient(url).stream_message(said("write", {"text": "one two three"})):
        ((kind, step),) = answer["result"].items()
        kinds.append(kind)
        if kind == "artifact_update":
            words += text_of([step["artifact"]])
        if kind == "status_update":
            state = step["status"]["state"]
    assert kinds[0] == "task", kinds
    assert words == "one two three ", words
    assert state == "completed", state


async def get(url: str) -> None:
    client = A2AClient(url)
    sent = (await client.send_message(said("echo", {"text": "again"})))["result"]["task"]
    task = (await client.get_task(sent["id"]))["result"]
    assert task == sent, (task, sent)


async def multi_turn(url: str) -> None:
    client = A2AClient(url)
    asked = (await client.send_message(said("trip", {"text": "plan"})))["result"]["task"]
    assert asked["status"]["state"] == "input-required", asked
    assert asked["status"]["message"]["parts"] == [{"text": "Which city?"}], asked
    again = said("trip", {"text": "Rome"}, task_id=asked["id"], context_id=asked["context_id"])
    done = (await client.send_message(again))["result"]["task"]
    assert text_of(done["artifacts"]) == "A trip to Rome", done


async def files(url: str) -> None:
    content = base64.b64encode(b"abc").decode()
    parts = (
        {"raw": content, "filename": "a.bin", "media_type": "application/octet-stream"},
        {"data": {"n": 1}},
    )
    client = A2AClient(url)
    task = (await client.send_message(said("files", *parts)))["result"]["task"]
    made = task["artifacts"][0]["parts"]
    assert made[0]["data"]["bytes"] == 3, made
    assert base64.b64decode(made[1]["raw"]) == b"cba", made
    assert made[2]["filename"] == "a.bin", made
    assert (await client.get_task(task["id"]))["result"]["artifacts"] == task["artifacts"]


async def unknown_task(url: str) -> None:
    answer = await A2AClient(url).get_task("nope")
    assert answer["error"]["code"] == -32001, answer


async def bad_params(url: str) -> None:
    answer = await A2AClient(url).send_message(said("echo"))
    assert answer["error"]["code"] == -32602, answer


SCENARIOS = [
    card,
    send,
    send_without_waiting,
    stream,
    get,
    multi_turn,
    files,
    unknown_task,
    bad_params,
]


async def main(url: str) -> None:
    for scenario in SCENARIOS:
        try:
            async with asyncio.timeout(20):
                await scenario(url)
            line = {"scenario": scenario.__name__, "ok": True, "detail": ""}
        except Exception:  # any failure is a verdict
            line = {"scenario": scenario.__name__, "ok": False, "detail": traceback.format_exc()}
        print(json.dumps(line), flush=True)


asyncio.run(main(sys.argv[1]))
