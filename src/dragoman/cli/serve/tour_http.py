"""A few lines of HTTP for the tour: what any client would send, without a library."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from itertools import count
from typing import Any

from dragoman.core.errors import PeerRefused

_numbers = count(1)


class Talk:
    """Speaks JSON-RPC with a server on this machine."""

    def __init__(self, port: int) -> None:
        self.port = port

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body."""
        response = self._ask("GET", path)
        return response.status, response.read()

    def get_json(self, path: str) -> tuple[int, Any]:
        """Status and value."""
        status, body = self.get(path)
        return status, json.loads(body)

    def rpc(self, method: str, params: dict[str, Any], version: str = "1.0") -> Any:
        """The result of a call."""
        return _result(json.loads(self._post(method, params, version).read()))

    def stream(
        self, method: str, params: dict[str, Any], version: str = "1.0"
    ) -> Iterator[dict[str, Any]]:
        """The results of a streaming call, as they come."""
        response = self._post(method, params, version)
        for line in response:
            if line.startswith(b"data:"):
                yield _result(json.loads(line[5:]))

    def _post(self, method: str, params: dict[str, Any], version: str) -> HTTPResponse:
        request = {"jsonrpc": "2.0", "id": next(_numbers), "method": method, "params": params}
        headers = {"Content-Type": "application/json"}
        if version:
            headers["A2A-Version"] = version
        return self._ask("POST", "/", json.dumps(request).encode(), headers)

    def _ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> HTTPResponse:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(method, path, body, headers or {})
        return connection.getresponse()


def _result(response: dict[str, Any]) -> Any:
    if "error" in response:
        raise PeerRefused(f"The server answered: {response['error']}")
    return response["result"]


def message_1_0(text: str, skill: str = "", task: str = "") -> dict[str, Any]:
    """Parameters of a send in 1.0."""
    message: dict[str, Any] = {
        "messageId": f"demo-{next(_numbers)}",
        "role": "ROLE_USER",
        "parts": [{"text": text}],
    }
    if skill:
        message["metadata"] = {"skillId": skill}
    if task:
        message["taskId"] = task
    return {"message": message}


def message_0_3(text: str) -> dict[str, Any]:
    """Parameters of a send in 0.3."""
    return {
        "message": {
            "kind": "message",
            "messageId": f"demo-{next(_numbers)}",
            "role": "user",
            "parts": [{"kind": "text", "text": text}],
        }
    }


def text_of(task: dict[str, Any]) -> str:
    """All text of a task's artifacts."""
    return "".join(
        part.get("text", "") for artifact in task.get("artifacts", ()) for part in artifact["parts"]
    )
