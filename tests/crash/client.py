"""A caller that knows the difference between an answer, a refusal and silence."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import Any, NamedTuple

import msgspec

Json = Any

Event = tuple[int, bytes]
UNAVAILABLE = -31503
"""The code of a server whose store does not answer."""
_ACTIONS = {"CancelTask": "cancel", "SubscribeToTask": "subscribe"}
_CODES = {
    "TASK_NOT_FOUND": -32001,
    "TASK_NOT_CANCELABLE": -32002,
    "UNSUPPORTED_OPERATION": -32004,
}


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
    """A2A 1.0 over JSON-RPC, a connection for each request: whatever becomes of it, it is closed.

    Every request has the id 1, so equal events are equal bytes."""

    def __init__(self, url: str) -> None:
        where, _, path = url.removeprefix("http://").partition("/")
        self.host, _, port = where.partition(":")
        self.port, self.path = int(port), f"/{path}"

    def request(self, method: str, params: Json) -> tuple[str, Json]:
        """The path and the body of a request."""
        return self.path, {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}

    def event(self, data: bytes) -> bytes:
        """The data of an event in the form of JSON-RPC."""
        return data

    def result(self, body: bytes) -> Json:
        """The result in an answer. Raises `Refused`."""
        answer = msgspec.json.decode(body)
        if "error" in answer:
            error = answer["error"]
            if isinstance(error, str):  # before the server knows its agents: it waits for its store
                raise Refused(UNAVAILABLE if error == "store_unavailable" else 0, error)
            raise Refused(error["code"], error["message"])
        return answer["result"]

    async def call(self, method: str, params: Json, **headers: str) -> Json:
        """The result."""
        async with self._asked(method, params, headers) as answer:
            return self.result(b"".join([piece async for piece in answer.body()]))

    async def stream(
        self, method: str, params: Json, **headers: str
    ) -> AsyncGenerator[Event, None]:
        """Whole events as they come: place in the log, and the data to the byte."""
        async with self._asked(method, params, headers) as answer:
            if b"text/event-stream" not in answer.head:
                self.result(b"".join([piece async for piece in answer.body()]))
            rest = b""
            async for piece in answer.body():
                *blocks, rest = (rest + piece).split(b"\n\n")
                for block in blocks:
                    yield self._event(block)

    async def listen(self, method: str, params: Json, **headers: str) -> list[Event]:
        """A whole stream."""
        async with aclosing(self.stream(method, params, **headers)) as events:
            return [event async for event in events]

    async def task(self, task_id: str) -> Json:
        """The task as it stands."""
        return await self.call("GetTask", {"id": task_id})

    @asynccontextmanager
    async def _asked(
        self, method: str, params: Json, headers: dict[str, str]
    ) -> AsyncGenerator[Answer, None]:
        path, asked = self.request(method, params)
        body = msgspec.json.encode(asked)
        lines = [f"POST {path} HTTP/1.1", f"Host: {self.host}:{self.port}", "A2A-Version: 1.0"]
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        lines += ["Connection: close", "", ""]
        try:
            reader, writer = await asyncio.open_connection(self.host, self.port)
        except OSError as exc:
            raise Down from exc
        try:
            writer.write("\r\n".join(lines).encode() + body)
            yield Answer((await reader.readuntil(b"\r\n\r\n")).lower(), reader)
        except (OSError, asyncio.IncompleteReadError) as exc:
            raise Lost(repr(exc)) from exc
        finally:
            writer.close()

    def _event(self, block: bytes) -> Event:
        # A keep-alive comment has no blank line of its own: it stands before the event it waited
        # for.
        lines = [line for line in block.split(b"\n") if not line.startswith(b":")]
        fields = dict(line.split(b": ", 1) for line in lines)
        data = fields[b"data"]
        if b"id" not in fields:
            self.result(data)  # an error that ends the stream has no place in the log
            raise AssertionError(f"an event without an id: {block!r}")
        return int(fields[b"id"]), self.event(data)


class Outage:
    """When the store of a server was away. A server may then refuse a request: its caller knows as
    much as if no answer had come, and tries again."""

    def __init__(self) -> None:
        self._end = 0.0
        self._away = 0
        self.refusals = 0
        """How many requests were refused meanwhile."""

    def begin(self) -> None:
        """The store goes away."""
        self._away += 1

    def end(self) -> None:
        """The store is back."""
        self._away -= 1
        self._end = time.monotonic()

    def meets(self, began: float) -> bool:
        """Whether the store was away at some time since then."""
        return self._away > 0 or began < self._end


class OutageClient(Client):
    """A caller of a server whose store goes away. A refusal at any other time stays a refusal."""

    def __init__(self, url: str, outage: Outage) -> None:
        super().__init__(url)
        self._outage = outage

    @asynccontextmanager
    async def _asked(
        self, method: str, params: Json, headers: dict[str, str]
    ) -> AsyncGenerator[Answer, None]:
        began = time.monotonic()
        try:
            async with super()._asked(method, params, headers) as answer:
                yield answer
        except Refused as exc:
            if exc.code == UNAVAILABLE and self._outage.meets(began):
                self._outage.refusals += 1
                raise Lost(str(exc)) from exc
            raise


class RestClient(Client):
    """A2A 1.0 over HTTP+JSON. What it hears it tells in the form of JSON-RPC, so that a reader may
    go on in either dialect."""

    def request(self, method: str, params: Json) -> tuple[str, Json]:
        """The path says the method, and the task."""
        path = self.path.rstrip("/")
        match method:
            case "GetTask":
                return super().request(method, params)  # that would be a GET
            case "SendMessage":
                return f"{path}/message:send", params
            case "SendStreamingMessage":
                return f"{path}/message:stream", params
        return f"{path}/tasks/{params['id']}:{_ACTIONS[method]}", {}

    def event(self, data: bytes) -> bytes:
        """The same bytes as in JSON-RPC."""
        return b'{"jsonrpc":"2.0","id":1,"result":' + data + b"}"

    def result(self, body: bytes) -> Json:
        """The answer itself, unless it is an error."""
        answer = msgspec.json.decode(body)
        if "jsonrpc" in answer:
            return super().result(body)
        if "error" in answer:
            reasons = [each.get("reason", "") for each in answer["error"].get("details", ())]
            code = next((_CODES[each] for each in reasons if each in _CODES), -32603)
            raise Refused(code, answer["error"]["message"])
        return answer


class Answer(NamedTuple):
    """An HTTP answer whose body is still to come."""

    head: bytes
    reader: asyncio.StreamReader

    async def body(self) -> AsyncGenerator[bytes, None]:
        """The body in pieces; an end that was not announced is an error."""
        length = re.search(rb"content-length: (\d+)", self.head)
        if length is not None:
            yield await self.reader.readexactly(int(length[1]))
            return
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            yield (await self.reader.readexactly(size + 2))[:-2]


def message(text: str, message_id: str, skill: str = "", task_id: str = "") -> Json:
    """What a user says."""
    said: Json = {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}]}
    said["metadata"] = {"call": message_id} | ({"skillId": skill} if skill else {})
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
