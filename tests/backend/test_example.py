"""The example, served by the command and asked in every binding."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from cli.run import serving
from dragoman.core.errors import NotCancelable, PushUnsupported, TaskNotFound, Unsupported
from dragoman.core.model import Hook, State
from dragoman.core.operations import CancelTask, GetTask, ListTasks, SetHook, Watch
from dragoman.server.agent_loader import load_agent
from semantics.ways import WAYS, Way, said, served

EXAMPLE = Path(__file__).parents[2] / "examples" / "backend.py"


@pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
async def test_every_binding(way: Way) -> None:
    async with served(load_agent(str(EXAMPLE))) as running:
        task = (await way.ask(running, said("green tea", wait=True))).answer
        assert (task.state, task.text) == (State.COMPLETED, "One parcel of green tea")
        got = (await way.ask(running, GetTask(task_id=task.id))).answer
        assert (got.id, got.text) == (task.id, task.text)
        streamed = await way.ask(running, said("black tea"), stream=True)
        assert streamed.error is None
        assert len(streamed.entries) >= 2
        listed = await way.ask(running, ListTasks())
        if not listed.unasked:
            assert len(listed.answer.tasks) == 2
            assert listed.answer.tasks[0].artifacts == ()
        for op, stream, error in (
            (CancelTask(task_id=task.id), False, NotCancelable),
            (CancelTask(task_id="none"), False, TaskNotFound),
            (GetTask(task_id="none"), False, TaskNotFound),
            (Watch(task_id=task.id), True, Unsupported),
            (SetHook(hook=Hook(hook_id="h", task_id=task.id, url="https://x.example")), False,
             PushUnsupported),
        ):  # fmt: skip
            heard = await way.ask(running, op, stream=stream)  # type: ignore[arg-type]
            assert type(heard.error) is error, op


@pytest.mark.slow  # starts a process
def test_the_command_serves_it(tmp_path: Path) -> None:
    (tmp_path / "backend.py").write_text(EXAMPLE.read_text("utf-8"), "utf-8")
    with serving("backend.py", cwd=tmp_path) as server:
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "tea"}]}
        reply = httpx2.post(
            f"{server.url}/message:send",
            json={"message": message},
            headers={"a2a-version": "1.0"},
        )
        assert reply.json()["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        card = httpx2.get(f"{server.url}/.well-known/agent-card.json").json()
        assert card["name"] == "Order desk"
        assert card["capabilities"]["pushNotifications"] is False
    assert not list(tmp_path.glob("*.db")), "a backend needs no store of ours"
