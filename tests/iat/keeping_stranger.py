"""A stranger that keeps its tasks: it knows `watch`, `task_status` and `terminate`, numbers its
events, and recognises a message that is sent again, as docs/dialects/iat.md and docs/extensions
have it. Tasks and idempotency keys belong to the name in `from`. It imports nothing of ours."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from uuid import uuid4

from iat.stranger import Asked, Json, Reply, Stranger, envelope, one, stream

KEEPS = ["urn:dragoman:cursor:1", "urn:dragoman:idempotency:1"]
PATIENCE = 120.0


class KeptTask:
    """One task: its events so far."""

    def __init__(self, owner: str, query: str) -> None:
        self.id, self.owner, self.query = str(uuid4()), owner, query
        self.events: list[tuple[str, Json]] = []
        """The kind and the payload of each."""
        self.over = False
        self.terminated = threading.Event()


class KeepingStranger(Stranger):
    """Runs `job` in a thread for each task; `job` says chunks and may look at `terminated`."""

    def __init__(self, job: Callable[[KeptTask, Callable[[str], None]], None]) -> None:
        super().__init__(lambda stranger, asked: self.execute(asked), "*")
        self.job = job
        self.tasks: dict[str, KeptTask] = {}
        self.keys: dict[tuple[str, str], KeptTask] = {}
        self.names: set[str] = set()
        """Whoever has introduced itself."""
        self.before_answer: Callable[[KeptTask], None] = lambda task: None
        """Called in the moment in which an `execute` is about to be acknowledged."""

    def reply(self, asked: Asked) -> Reply:
        match asked.action:
            case "HELO":
                sender = asked.said["header"]["from"]
                self.names.add(sender)
                about = {"agent_id": "keeper", "tools": [], "extensions": KEEPS}
                about |= {"session_token": f"session-of-{sender}"}
                return one(envelope("response", {"action": "HELO", **about}, asked.id))
            case "watch" | "task_status" | "terminate":
                return self.known(asked)
            case "pulse":
                return one(envelope("response", {"action": "pulse", "ok": True}, asked.id))
        return super().reply(asked)

    def known(self, asked: Asked) -> Reply:
        """What is asked about a task. Nobody learns of the tasks of others."""
        task = self.tasks.get(asked.payload["task_id"])
        if task is None or task.owner != asked.said["header"]["from"]:
            error = {"code": "task_not_found", "message": "There is no such task"}
            return one(envelope("response", {"action": "error", "error": error}, asked.id))
        if asked.action == "watch":
            return stream(self.told(task, asked, int(asked.headers.get("last-event-id", 0))))
        if asked.action == "terminate":
            task.terminated.set()
            with self.changed:
                assert self.changed.wait_for(lambda: task.over, PATIENCE)
        status = task.events[-1][1]["status"] if task.over else "working"
        about = {"action": "task_status", "task_id": task.id, "status": status}
        return one(envelope("response", about, asked.id))

    def execute(self, asked: Asked) -> Reply:
        sender = asked.said["header"]["from"]
        key = asked.headers.get("idempotency-key", "")
        with self.changed:
            task = self.keys.get((sender, key)) if key else None
            if task is None:
                task = KeptTask(sender, str(asked.payload["query"]))
                self.tasks[task.id] = self.keys[sender, key or task.id] = task
                threading.Thread(target=self.run, args=(task,), daemon=True).start()
        self.before_answer(task)
        return stream(self.told(task, asked, 0))

    def run(self, task: KeptTask) -> None:
        said: list[str] = []

        def say(text: str) -> None:
            said.append(text)
            about = {"artifact_id": "a", "append": len(said) > 1}
            self.add(task, "chunk", {"text": text, **about})

        self.job(task, say)
        status = "canceled" if task.terminated.is_set() else "completed"
        end = {"action": "done", "status": status, "usage_stats": {}}
        self.add(task, "response", end | {"result_summary": "".join(said)})

    def add(self, task: KeptTask, kind: str, payload: Json) -> None:
        with self.changed:
            about = {"task_id": task.id, "seq": len(task.events) + 1}
            task.events.append((kind, payload | about))
            task.over = kind == "response"
            self.changed.notify_all()

    def told(self, task: KeptTask, asked: Asked, after: int) -> Iterator[Json]:
        """The events of a task behind a cursor, as they come."""
        while True:
            with self.changed:
                assert self.changed.wait_for(
                    lambda after=after: len(task.events) > after or task.over, PATIENCE
                )
                more, over = task.events[after:], task.over
            for kind, payload in more:
                yield envelope(kind, payload, asked.id, sender="keeper")
            after += len(more)
            if over:
                return
