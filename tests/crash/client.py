"""A caller that knows the difference between an answer, a refusal and silence."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import httpx2
import msgspec

Json = Any

HEADERS = {"A2A-Version": "1.0", "Content-Type": "application/json"}


class Lost(Exception):
    """No whole answer came: what was asked may have happened or not."""


class Down(Lost):
    """Nobody is there: nothing was asked."""


class Refused(Exception):
    """The server said no."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Client:
    """A2A 1.0 over JSON-RPC. Every request has the id 1, so equal events are equal bytes."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._http = httpx2.AsyncClient(timeout=httpx2.Timeout(30.0, read=60.0), trust_env=False)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def call(self, method: str, params: Json, **headers: str) -> Json:
        """The result."""
        try:
            answer = await self._http.post(
                self.url, content=_request(method, params), headers=HEADERS | _spelled(headers)
            )
        except httpx2.TransportError as exc:
            raise _lost(exc) from exc
        return _result(answer.content)

    async def stream(
        self, method: str, params: Json, **headers: str
    ) -> AsyncGenerator[Event, None]:
        """Whole events as they come: place in the log, and the data to the byte."""
        try:
            async with self._http.stream(
                "POST",
                self.url,
                content=_request(method, params),
                headers=HEADERS | _spelled(headers),
            ) as answer:
                if not answer.headers["content-type"].startswith("text/event-stream"):
                    _result(await answer.aread())
                rest = b""
                async for piece in answer.aiter_bytes():
                    *blocks, rest = (rest + piece).split(b"\n\n")
                    for block in blocks:
                        if not block.startswith(b":"):
                            yield _event(block)
        except httpx2.TransportError as exc:
            raise _lost(exc) from exc

    async def listen(self, method: str, params: Json, **headers: str) -> list[Event]:
        """A whole stream."""
        async with aclosing(self.stream(method, params, **headers)) as events:
            return [event async for event in events]

    async def task(self, task_id: str) -> Json:
        """The task as it stands."""
        return await self.call("GetTask", {"id": task_id})


Event = tuple[int, bytes]


def _lost(exc: httpx2.TransportError) -> Lost:
    return Down() if isinstance(exc, httpx2.ConnectError) else Lost(repr(exc))


def _event(block: bytes) -> Event:
    fields = dict(line.split(b": ", 1) for line in block.split(b"\n"))
    data = fields[b"data"]
    if b"id" not in fields:
        _result(data)  # an error that ends the stream has no place in the log
        raise AssertionError(f"an event without an id: {block!r}")
    return int(fields[b"id"]), data


def _request(method: str, params: Json) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})


def _result(body: bytes) -> Json:
    answer = msgspec.json.decode(body)
    if "error" in answer:
        raise Refused(answer["error"]["code"], answer["error"]["message"])
    return answer["result"]


def _spelled(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def message(text: str, message_id: str, skill: str = "", task_id: str = "") -> Json:
    """What a user says."""
    said: Json = {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}]}
    if skill:
        said["metadata"] = {"skillId": skill}
    if task_id:
        said["taskId"] = task_id
    return said


def sending(said: Json, *, wait: bool = True) -> Json:
    """Parameters of a send."""
    return {"message": said, "configuration": {"returnImmediately": not wait}}


def state_in(data: bytes) -> str:
    """The state an event tells, empty if it tells none."""
    step = msgspec.json.decode(data)["result"]
    told = step.get("statusUpdate") or step.get("task") or {"status": {"state": ""}}
    return str(told["status"]["state"])
