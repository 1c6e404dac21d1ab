"""The probes of the doctor, one for each binding, which send the same raw requests."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import Any, Protocol
from urllib.parse import quote

from msgspec import Struct

from .check import Broken
from .expected_errors import ExpectedRefusal
from .http import HttpAnswer, RawHttp, SseFrame, frames, short, strict_json
from .requests import RPC_METHODS, Args, rest_request, rpc_params
from .shapes import NEW, OLD, OLDEST, PROTO, Form

_ids = count(1)
NO_HEADERS: Mapping[str, str] = {}


class ProbeReply(Struct, frozen=True):
    """An answer, or a refusal."""

    result: Any = None
    refusal: ExpectedRefusal | None = None
    answer: HttpAnswer | None = None
    """The unchanged response, over HTTP."""


class ProbeStream:
    """The events of a stream as they arrive, and their raw form."""

    def __init__(self, refusal: ExpectedRefusal | None = None) -> None:
        self.refusal = refusal
        self.events: Iterator[Any] = iter(())
        """The events. Iterate over the stream instead, which records its end."""
        self.answer: HttpAnswer | None = None
        self.id: Any = None
        self.raw: list[SseFrame] = []
        self.closed = False
        """Whether the agent ended the stream."""

    def __iter__(self) -> Iterator[Any]:
        yield from self.events
        self.closed = True

    def all(self, most: int = 5000) -> list[Any]:
        """Returns every event to the end."""
        got = []
        for event in self:
            got.append(event)
            if len(got) >= most:
                break
        return got


class Probe(Protocol):
    """Sends requests to one interface."""

    binding: str
    version: str
    url: str
    form: Form
    own: dict[str, str]
    """The headers that this agent needs."""
    tenant: str
    """The tenant of the card's interface, which requests of 1.0 name."""

    def ask(self, op: str, args: Args, headers: Mapping[str, str] = NO_HEADERS) -> ProbeReply:
        """Sends one request."""

    def stream(
        self, op: str, args: Args, headers: Mapping[str, str] = NO_HEADERS
    ) -> AbstractContextManager[ProbeStream]:
        """Opens a stream."""

    def close(self) -> None:
        """Closes the connections of the probe."""


class HttpProbe:
    """A probe of a binding over HTTP."""

    binding = ""

    def __init__(self, wire: RawHttp, url: str, version: str, form: Form) -> None:
        self.wire, self.url, self.version, self.form = wire, url, version, form
        self.own: dict[str, str] = {}
        self.tenant = ""

    @property
    def headers(self) -> dict[str, str]:
        """Returns the headers that go with every request of this version."""
        named = {"A2A-Version": "1.0"} if self.version == "1.0" else {}
        return {"content-type": "application/json", **named, **self.own}

    def close(self) -> None:
        """Does nothing: the connections are shared."""

    @contextmanager
    def _opened(
        self, verb: str, url: str, body: bytes, headers: Mapping[str, str]
    ) -> Iterator[ProbeStream]:
        wire = self.wire
        fields = {**self.headers, "accept": "text/event-stream", **headers}
        with wire.open(verb, url, body, fields) as (status, got, pieces):
            answer = HttpAnswer(status, got, b"")
            if answer.type != "text/event-stream" or status != 200:
                answer = HttpAnswer(status, got, b"".join(pieces))
                wire.note(wire.sent, f"{status} {answer.type} {short(str(answer.body[:400]))}")
                refusal = self._refusal(answer) or ExpectedRefusal(
                    status=status, message="no stream"
                )
                stream = ProbeStream(refusal)
            else:
                stream = ProbeStream()
                stream.events = self._events(stream, pieces)
            stream.answer = answer
            yield stream

    def _events(self, stream: ProbeStream, pieces: Iterator[bytes]) -> Iterator[Any]:
        deadline = time.monotonic() + 3 * self.wire.timeout
        for frame in frames(pieces):
            stream.raw.append(frame)
            self.wire.note(self.wire.sent, f"event {len(stream.raw)}: {frame.data[:400]}")
            refusal, event = self._heard(strict_json(frame.data))
            if refusal is not None:
                stream.refusal = refusal
                return
            yield event
            if time.monotonic() > deadline:
                raise Broken(f"the stream is still open after {3 * self.wire.timeout:g} s")

    def _refusal(self, answer: HttpAnswer) -> ExpectedRefusal | None:
        """Returns the refusal in an answer, if it is one."""
        raise NotImplementedError

    def _heard(self, value: Any) -> tuple[ExpectedRefusal | None, Any]:
        """Reads an event of a stream, which may be a refusal."""
        raise NotImplementedError


class RpcProbe(HttpProbe):
    """A probe of JSON-RPC."""

    binding = "jsonrpc"

    def body(self, op: str, args: Args, id: Any = None) -> bytes:
        """Encodes a request."""
        method = RPC_METHODS[self.version][op]
        params = rpc_params(self.version, op, args)
        if self.tenant:
            params = {**params, "tenant": self.tenant}
        request = {"jsonrpc": "2.0", "id": id or f"d-{next(_ids)}", "method": method}
        return json.dumps({**request, "params": params}, ensure_ascii=False).encode()

    def post(self, body: bytes, headers: Mapping[str, str] = NO_HEADERS) -> HttpAnswer:
        """Sends any bytes to the endpoint."""
        return self.wire.ask("POST", self.url, body, {**self.headers, **headers})

    def ask(self, op: str, args: Args, headers: Mapping[str, str] = NO_HEADERS) -> ProbeReply:
        return self.read(self.post(self.body(op, args), headers))

    def read(self, answer: HttpAnswer) -> ProbeReply:
        """Returns the content of the envelope. Other checks examine the envelope itself."""
        refusal = self._refusal(answer)
        if refusal is not None:
            return ProbeReply(None, refusal, answer)
        value = answer.json()
        if not isinstance(value, dict):
            raise Broken("the answer is not an object")
        return ProbeReply(value.get("result"), None, answer)

    @contextmanager
    def stream(
        self, op: str, args: Args, headers: Mapping[str, str] = NO_HEADERS
    ) -> Iterator[ProbeStream]:
        name = f"s-{next(_ids)}"
        with self._opened("POST", self.url, self.body(op, args, name), headers) as stream:
            stream.id = name
            yield stream

    def _refusal(self, answer: HttpAnswer) -> ExpectedRefusal | None:
        if answer.status == 200 or answer.body:
            try:
                value = answer.json()
            except Broken:
                if answer.status == 200:
                    raise
                return ExpectedRefusal(status=answer.status, message=short(str(answer.body[:100])))
            if isinstance(value, dict) and "error" in value:
                return _rpc_error(value["error"], answer.status)
        return ExpectedRefusal(status=answer.status) if answer.status >= 300 else None

    def _heard(self, value: Any) -> tuple[ExpectedRefusal | None, Any]:
        if isinstance(value, dict) and "error" in value:
            return _rpc_error(value["error"], 200), None
        return None, value.get("result") if isinstance(value, dict) else None


def _rpc_error(error: Any, status: int) -> ExpectedRefusal:
    if not isinstance(error, dict):
        return ExpectedRefusal(status=status, message=f"error is {short(str(error))}")
    info = error_info(error.get("data"))
    code = error.get("code")
    return ExpectedRefusal(
        code=code if isinstance(code, int) else None,
        status=status if status >= 300 else 0,
        message=str(error.get("message", "")),
        reason=info.get("reason", ""),
        domain=info.get("domain", ""),
    )


def error_info(details: Any) -> dict[str, str]:
    """Returns the ErrorInfo among details, if there is one."""
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and str(detail.get("@type", "")).endswith(".ErrorInfo"):
            return {key: str(value) for key, value in detail.items()}
    return {}


class RestProbe(HttpProbe):
    """A probe of HTTP+JSON."""

    binding = "rest"

    def __init__(self, wire: RawHttp, url: str, version: str, form: Form) -> None:
        super().__init__(wire, url, version, form)
        self._config_alone: bool | None = None if version == "0.3" else False
        """Which of the two bodies of 0.3 sets a webhook here, once one has."""

    def ask(self, op: str, args: Args, headers: Mapping[str, str] = NO_HEADERS) -> ProbeReply:
        if op != "push.set" or self._config_alone is not None:
            return self.read(self.call(*self._spelled(op, args), headers))
        # An agent may take either body. What refuses both has refused the webhook itself.
        replies = []
        for config_alone in (False, True):
            body = self._spelled(op, args, config_alone=config_alone)
            replies.append(self.read(self.call(*body, headers)))
            if replies[-1].refusal is None:
                self._config_alone = config_alone
                return replies[-1]
        return replies[0]

    def call(
        self, verb: str, path: str, body: bytes = b"", headers: Mapping[str, str] = NO_HEADERS
    ) -> HttpAnswer:
        """Sends any request below the interface's address."""
        return self.wire.ask(verb, self.at(path), body, {**self.headers, **headers})

    def at(self, path: str) -> str:
        """Returns the address of a path."""
        base = self.url.rstrip("/")
        if self.tenant:
            path = f"/{quote(self.tenant, safe='')}{path}"
        doubled = self.version != "1.0" and base.endswith("/v1")
        return (base.removesuffix("/v1") if doubled else base) + path

    def read(self, answer: HttpAnswer) -> ProbeReply:
        """Returns the value, or the refusal."""
        refusal = self._refusal(answer)
        if refusal is not None:
            return ProbeReply(None, refusal, answer)
        return ProbeReply(answer.json() if answer.body else None, None, answer)

    def stream(
        self, op: str, args: Args, headers: Mapping[str, str] = NO_HEADERS
    ) -> AbstractContextManager[ProbeStream]:
        verb, path, raw = self._spelled(op, args)
        return self._opened(verb, self.at(path), raw, headers)

    def _spelled(
        self, op: str, args: Args, *, config_alone: bool | None = None
    ) -> tuple[str, str, bytes]:
        alone = bool(self._config_alone if config_alone is None else config_alone)
        verb, path, body = rest_request(self.version, op, args, config_alone=alone)
        return verb, path, b"" if body is None else json.dumps(body, ensure_ascii=False).encode()

    def _refusal(self, answer: HttpAnswer) -> ExpectedRefusal | None:
        if answer.status < 300:
            return None
        try:
            value = answer.json()
        except Broken:
            value = {}
        return _rest_error(value, answer.status)

    def _heard(self, value: Any) -> tuple[ExpectedRefusal | None, Any]:
        if isinstance(value, dict) and isinstance(value.get("error"), dict):
            return _rest_error(value, 400), None
        return None, value


def _rest_error(value: Any, status: int) -> ExpectedRefusal:
    error = value.get("error", value) if isinstance(value, dict) else {}
    error = error if isinstance(error, dict) else {}
    info = error_info(error.get("details"))
    return ExpectedRefusal(
        status=status,
        message=str(error.get("message", "")),
        reason=info.get("reason", ""),
        domain=info.get("domain", ""),
    )


FORMS: dict[tuple[str, str], Form] = {
    ("jsonrpc", "1.0"): NEW,
    ("jsonrpc", "0.3"): OLD,
    ("jsonrpc", "0.1"): OLDEST,
    ("rest", "1.0"): NEW,
    ("rest", "0.3"): PROTO,
    ("grpc", "1.0"): NEW,
    ("grpc", "0.3"): PROTO,
}


def probe_for(wire: RawHttp, binding: str, version: str, url: str) -> Probe:
    """Returns the probe of an interface."""
    form = FORMS[binding, version]
    if binding == "jsonrpc":
        return RpcProbe(wire, url, version, form)
    if binding == "rest":
        return RestProbe(wire, url, version, form)
    from .grpc_probe import GrpcProbe  # gRPC is an extra

    return GrpcProbe(wire, url, version, form)
