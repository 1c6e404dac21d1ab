"""A REST agent of 0.3, written from the text of the specification with nothing but the standard
library: `rest_0_3.py PORT`.

It takes webhooks as the `.proto` has them (`body: "config"`): the config alone, and nothing else. A
subscription to a task that it does not know ends the connection without an answer.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

PORT = int(sys.argv[1])
CARD = {
    "protocolVersion": "0.3.0",
    "name": "From the text",
    "description": "Repeats.",
    "version": "1",
    "url": f"http://127.0.0.1:{PORT}",
    "preferredTransport": "HTTP+JSON",
    "capabilities": {"streaming": True, "pushNotifications": True},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "a", "name": "a", "description": "a", "tags": []}],
}
NUMBERS = count(1)
TASKS, CONFIGS = {}, {}


class Agent(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response_only(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        path = self.path.partition("?")[0]
        if path == "/.well-known/agent-card.json":
            return self.answer(200, CARD)
        parts = path.removeprefix("/v1/tasks/").split("/")
        if parts[0].endswith(":subscribe"):
            self.close_connection = True
            return None
        if parts[0] not in TASKS:
            return self.answer(404, {"error": "unknown"})
        if len(parts) == 1:
            return self.answer(200, TASKS[parts[0]])
        held = CONFIGS.get(parts[0], {})
        if len(parts) == 2:
            return self.answer(200, {"configs": list(held.values())})
        return self.answer(200, held[parts[2]]) if parts[2] in held else self.answer(404, {})

    def do_DELETE(self):
        task, _, config = self.path.removeprefix("/v1/tasks/").split("/")
        CONFIGS.get(task, {}).pop(config, None)
        self.answer(200, {})

    def do_POST(self):
        value = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/v1/message:send":
            task = f"task-{next(NUMBERS)}"
            TASKS[task] = {
                "id": task,
                "contextId": value["message"].get("contextId") or f"context-{task}",
                "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "2026-01-01T00:00:00Z"},
            }
            return self.answer(200, {"task": TASKS[task]})
        task = self.path.removeprefix("/v1/tasks/").split("/")[0]
        if task not in TASKS:
            return self.answer(404, {"error": "unknown"})
        if not set(value) <= {"name", "pushNotificationConfig"}:
            return self.answer(400, {"error": "name and pushNotificationConfig, nothing else"})
        config = value["pushNotificationConfig"]
        if not config["url"].startswith("https://"):
            return self.answer(400, {"error": "https"})
        CONFIGS.setdefault(task, {})[config["id"]] = value
        return self.answer(200, value)

    def log_message(self, *args):
        pass


ThreadingHTTPServer(("127.0.0.1", PORT), Agent).serve_forever()
