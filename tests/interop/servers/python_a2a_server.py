"""A small agent on python-a2a 0.5.10: `python_a2a_server.py RPC_PORT`.

Its server keeps a task when the agent has done it; to be canceled before, the agent keeps it.
"""

import base64
import logging
import sys
import time
from typing import Any

from python_a2a import A2AServer, AgentCard, AgentSkill, TaskState, TaskStatus
from python_a2a.models.task import Task
from python_a2a.server.http import create_flask_app

PORT = int(sys.argv[1])


def text_of(message: dict[str, Any]) -> str:
    """It reads messages of 0.1 into a form of its own in one place and leaves them in another."""
    if "content" in message:
        return str(message["content"].get("text", ""))
    return "".join(part.get("text", "") for part in message.get("parts", ()))


class Desk(A2AServer):
    """Echoes in capitals; `count N`, `ask`, `parts` and `slow` do something else."""

    def handle_task(self, task: Task) -> Task:
        before = self.tasks.get(task.id)
        message = task.message or {}
        text = text_of(message)
        command, _, rest = text.partition(" ")
        made: list[dict[str, Any]] = [{"type": "text", "text": text.upper()}]
        self.tasks[task.id] = task
        if before is not None:
            made = [{"type": "text", "text": f"A trip to {text}"}]
        elif command == "ask":
            said = {"role": "agent", "parts": [{"type": "text", "text": "Which city?"}]}
            task.status = TaskStatus(state=TaskState.INPUT_REQUIRED, message=said)
            return task
        elif command == "slow":
            for _ in range(600):
                time.sleep(0.1)  # until it is canceled
                if task.status.state is TaskState.CANCELED:
                    return task
        elif command == "count":
            made = [{"type": "text", "text": "".join(f"{n} " for n in range(int(rest)))}]
            time.sleep(0.2)  # its work
        elif command == "parts":
            made = [each for part in message.get("parts", ()) if (each := turned(part))]
        task.artifacts = [{"parts": made}]
        task.status = TaskStatus(state=TaskState.COMPLETED)
        return task


def turned(part: dict[str, Any]) -> dict[str, Any] | None:
    if part.get("type") == "file":
        back = base64.b64encode(base64.b64decode(part["file"]["bytes"])[::-1]).decode()
        return {"type": "file", "file": {"name": "back.bin", "bytes": back}}
    return {"type": "data", "data": {"got": part["data"]}} if part.get("type") == "data" else None


def main() -> None:
    card = AgentCard(
        name="Desk on python-a2a 0.5.10",
        description="Echoes, and a little more.",
        url=f"http://127.0.0.1:{PORT}",
        skills=[AgentSkill(name="desk", description="Echoes.")],
    )
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    create_flask_app(Desk(agent_card=card)).run(host="127.0.0.1", port=PORT, threaded=True)


if __name__ == "__main__":
    main()
