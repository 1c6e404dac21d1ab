"""An agent of A2A before 0.2, on the standard library alone: `tasks/send` and its siblings, as in
the source text. It speaks A2A 0.1, or with other states and bare events like the community a2a-go.
Nothing of ours is imported here."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
CANCEL_TIMEOUT_SECONDS = 60.0
GO_STATES = {"submitted": "pending", "working": "processing"}
SKILLS = ("echo", "count", "trip", "slow", "data", "file", "fail")
ENDS = ("completed", "failed", "canceled")


class LegacyDesk(ThreadingHTTPServer):
    """A data part says what to do."""

    daemon_threads = True

    def __init__(self, *, go: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), _Endpoint)
        self.go = go
        self.tasks: dict[str, Json] = {}
        self._answers: dict[str, list[str]] = {}
        self._stops: dict[str, threading.Event] = {}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Quiet: callers hang up as they like."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"

    @property
    def card(self) -> Json:
        return {
            "name": "Legacy desk",
            "description": "Does what a data part says.",
            "url": self.url,
            "version": "1.0",
            "capabilities": {"streaming": True, "pushNotifications": False},
            "authentication": {"schemes": []},
            "defaultInputModes": ["text", "data", "file"],
            "defaultOutputModes": ["text", "data", "file"],
            "skills": [{"id": each, "name": each, "tags": []} for each in SKILLS],
        }

    def send(self, params: Json) -> Iterator[Json]:
        """The events of a message. Each is part of its task before it is told."""
        id = params["id"]
        if id not in self.tasks:
            self._stops[id] = threading.Event()
            status = {"state": self._state("submitted")}
            self.tasks[id] = {"id": id, "sessionId": params.get("sessionId", ""), "status": status}
        for event in self._work(id, params["message"]["parts"]):
            yield self._keep(id, event)

    def cancel(self, id: str) -> Json:
        self._stops[id].set()
        self._keep(id, self._status("canceled"))
        return self.tasks[id]

    def _work(self, id: str, parts: list[Json]) -> Iterator[Json]:
        text = "".join(part.get("text", "") for part in parts)
        if id in self._answers:
            yield from self._go_on(self._answers[id], text)
            return
        values = [part["data"] for part in parts if part["type"] == "data"]
        match values[0]["do"]:
            case "count":
                for number in range(int(text)):
                    piece = {"type": "text", "text": f"{number} "}
                    more = {"append": number > 0, "lastChunk": False}
                    yield {"artifact": {"parts": [piece], "index": 0, **more}}
                yield self._status("completed")
            case "trip":
                self._answers[id] = []
                yield self._status("input-required", "Which city?")
            case "slow":
                yield self._status("working", "begun")
                self._stops[id].wait(CANCEL_TIMEOUT_SECONDS)
                yield self._status("canceled")
            case "data":
                yield self._whole({"type": "data", "data": {"got": values[1]}})
                yield self._status("completed")
            case "file":
                (given,) = (part["file"] for part in parts if part["type"] == "file")
                yield self._whole({"type": "file", "file": _turned_round(given)})
                yield self._status("completed")
            case "fail":
                yield self._status("failed", "No paper left", {"reason": "paper"})
            case _:
                yield self._whole({"type": "text", "text": text.upper()})
                yield self._status("completed")

    def _go_on(self, known: list[str], answer: str) -> Iterator[Json]:
        known.append(answer)
        if len(known) == 1:
            yield self._status("input-required", "How many days?")
        else:
            yield self._whole({"type": "text", "text": f"{known[1]} days in {known[0]}"})
            yield self._status("completed")

    def _state(self, state: str) -> str:
        return GO_STATES.get(state, state) if self.go else state

    def _status(self, state: str, text: str = "", metadata: Json | None = None) -> Json:
        status: Json = {"state": self._state(state)}
        if text:
            parts = [{"type": "text", "text": text}]
            status["message"] = {"role": "agent", "parts": parts}
            if metadata is not None:
                status["message"]["metadata"] = metadata
        return {"status": status, "final": state in (*ENDS, "input-required")}

    def _whole(self, part: Json) -> Json:
        return {"artifact": {"parts": [part], "index": 0, "append": False, "lastChunk": True}}

    def _keep(self, id: str, event: Json) -> Json:
        task = self.tasks[id]
        if "status" in event:
            task["status"] = event["status"]
        elif event["artifact"]["append"]:
            task["artifacts"][-1]["parts"] += event["artifact"]["parts"]
        else:
            task["artifacts"] = [{"index": 0, "parts": list(event["artifact"]["parts"])}]
        return {"id": id, **event}


def _turned_round(file: Json) -> Json:
    assert (file["name"], file["mimeType"], file["bytes"]) == (
        "a.bin",
        "application/x-a",
        "AP9hYmM=",
    )
    return {"name": "back.bin", "mimeType": "application/x-back", "bytes": "Y2Jh/wA="}


class _Endpoint(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: LegacyDesk

    def do_GET(self) -> None:
        if self.path == "/.well-known/agent.json":
            self._say(self.server.card)
        else:
            self._say({}, 404)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        desk, params = self.server, asked["params"]
        id = params.get("id")
        match asked["method"]:
            case "tasks/send":
                for _ in desk.send(params):
                    pass
                self._answer(asked, result=desk.tasks[id])
            case "tasks/sendSubscribe":
                self._stream(asked, params)
            case "tasks/get" | "tasks/cancel" if id not in desk.tasks:
                self._answer(asked, error={"code": -32001, "message": "Task not found"})
            case "tasks/get":
                self._answer(asked, result=desk.tasks[id])
            case "tasks/cancel":
                self._answer(asked, result=desk.cancel(id))
            case _:
                self._answer(asked, error={"code": -32601, "message": "Method not found"})

    def _answer(self, asked: Json, **answer: Json) -> None:
        self._say({"jsonrpc": "2.0", "id": asked["id"], **answer})

    def _say(self, said: Json, status: int = 200) -> None:
        body = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, asked: Json, params: Json) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        response = {"jsonrpc": "2.0", "id": asked["id"]}
        with suppress(BrokenPipeError, ConnectionResetError):
            if self.server.go:
                pending = {"id": params["id"], "status": {"state": "pending"}}
                self._tell({**response, "result": pending}, "rpc_result")
            for event in self.server.send(params):
                if not self.server.go:
                    self._tell({**response, "result": event})
                elif "status" in event:
                    self._tell(event, "task_status_update")
                else:
                    self._tell(event, "task_artifact_update")

    def _tell(self, said: Json, name: str = "") -> None:
        head = f"event: {name}\n" if name else ""
        self.wfile.write(f"{head}data: {json.dumps(said)}\n\n".encode())
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""
