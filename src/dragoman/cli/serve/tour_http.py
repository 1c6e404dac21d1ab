"""JSON-RPC for the tour, as any client would write it: nothing of Dragoman's own client is used.

Requests go through the doctor's raw HTTP client, which shows what comes back untouched.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from dragoman.core.errors import PeerRefused
from dragoman.doctor.guard import Guard
from dragoman.doctor.http import RawHttp, frames

_numbers = count(1)


class JsonRpcClient:
    """Speaks JSON-RPC with a server on this machine."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._http = RawHttp(Guard(url, allow_private=False), timeout=30)

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body; `NoAnswer` if nobody is there."""
        answer = self._http.ask("GET", f"{self.url}{path}")
        return answer.status, answer.body

    def get_json(self, path: str) -> tuple[int, Any]:
        """Status and value."""
        status, body = self.get(path)
        return status, json.loads(body)

    def call(self, method: str, params: dict[str, Any], version: str = "1.0") -> Any:
        """The result of a call."""
        request = _request(method, params)
        answer = self._http.ask("POST", f"{self.url}/", request, _headers(version))
        return _result(json.loads(answer.body))

    def stream(
        self, method: str, params: dict[str, Any], version: str = "1.0"
    ) -> Iterator[dict[str, Any]]:
        """The results of a streaming call, as they come."""
        opening = self._http.open(
            "POST", f"{self.url}/", _request(method, params), _headers(version)
        )
        with opening as (_, _, pieces):
            for frame in frames(pieces):
                yield _result(json.loads(frame.data))

    def close(self) -> None:
        """Ends the connections."""
        self._http.close()


def _request(method: str, params: dict[str, Any]) -> bytes:
    request = {"jsonrpc": "2.0", "id": next(_numbers), "method": method, "params": params}
    return json.dumps(request).encode()


def _headers(version: str) -> Mapping[str, str]:
    return {"content-type": "application/json", **({"a2a-version": version} if version else {})}


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
