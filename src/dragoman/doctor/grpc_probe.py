"""The probe of gRPC: it sends raw messages and reads answers field by field into their JSON."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc

from dragoman.core.errors import BadParams
from dragoman.dialects.a2a.proto import object_in, reader, value_in, writer
from dragoman.security.outbound.address_scopes import Unreachable

from .expected_errors import ExpectedRefusal
from .http import LARGEST, NoAnswer, RawHttp, short
from .probes import NO_HEADERS, ProbeReply, ProbeStream
from .requests import Args, grpc_request
from .shapes import Form

ANSWERS = {
    "1.0": {
        **{"send": "SendMessageResponse", "stream": "StreamResponse", "get": "Task"},
        **{"list": "ListTasksResponse", "cancel": "Task", "subscribe": "StreamResponse"},
        **dict.fromkeys(("push.set", "push.get"), "TaskPushNotificationConfig"),
        **{"push.list": "ListTaskPushNotificationConfigsResponse", "extended": "AgentCard"},
    },
    "0.3": {
        **{"send": "SendMessageResponse", "stream": "StreamResponse", "get": "Task"},
        **{"cancel": "Task", "subscribe": "StreamResponse", "extended": "AgentCard"},
        **dict.fromkeys(("push.set", "push.get"), "TaskPushNotificationConfig"),
        **{"push.list": "ListTaskPushNotificationConfigResponse"},
    },
}
OPTIONS: list[tuple[str, int | str]] = [
    ("grpc.max_receive_message_length", LARGEST),
    ("grpc.enable_http_proxy", 0),  # a proxy would resolve the name itself
]
PACKAGES = {"1.0": "lf.a2a.v1", "0.3": "a2a.v1"}
ALWAYS = {"tasks": [], "nextPageToken": "", "pageSize": 0, "totalSize": 0}
"""The members that a list of tasks always has, which protobuf leaves out if they are empty."""


class GrpcProbe:
    """Calls one of the two services."""

    binding = "grpc"

    def __init__(self, wire: RawHttp, url: str, version: str, form: Form) -> None:
        self.wire, self.url, self.version, self.form = wire, url, version, form
        self.own: dict[str, str] = {}
        self.tenant = ""
        parts = urlsplit(url if "://" in url else f"//{url}")
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        try:
            # gRPC is given the checked address, since it would resolve a name again.
            target = wire.guard.one(host, port)
        except (Unreachable, BadParams) as exc:
            raise ValueError(str(exc)) from exc
        options = [*OPTIONS]
        if target != host:
            options.append(("grpc.default_authority", parts.netloc))
            options.append(("grpc.ssl_target_name_override", host))
        target = f"[{target}]:{port}" if ":" in target else f"{target}:{port}"
        if parts.scheme == "https":
            roots = Path(wire.ca).read_bytes() if wire.ca else None
            credentials = grpc.ssl_channel_credentials(roots)
            self._channel = grpc.secure_channel(target, credentials, options)
        else:
            self._channel = grpc.insecure_channel(target, options)

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    def metadata(self, headers: Mapping[str, str]) -> list[tuple[str, str]]:
        """Returns the metadata that goes with a call."""
        own = {"a2a-version": "1.0"} if self.version == "1.0" else {}
        given = {
            key.lower(): value
            for key, value in {**self.wire.credentials, **self.own, **headers}.items()
        }
        return list({**own, **given}.items())

    def ask(self, op: str, args: Args, headers: Mapping[str, str] = NO_HEADERS) -> ProbeReply:
        path, name, fields = self._request(op, args)
        body = writer(name)(_snake(fields))
        raw, refusal = self.call(path, body, headers, short(str(fields)))
        if refusal is not None:
            return ProbeReply(None, refusal)
        return ProbeReply(self._read(op, raw))

    def _request(self, op: str, args: Args) -> tuple[str, str, Args]:
        path, name, fields = grpc_request(self.version, op, args)
        return path, name, {**fields, "tenant": self.tenant} if self.tenant else fields

    def call(
        self, path: str, body: bytes, headers: Mapping[str, str] = NO_HEADERS, shown: str = ""
    ) -> tuple[bytes, ExpectedRefusal | None]:
        """Sends any bytes to any method."""
        self.wire.count()
        self.wire.note(f"gRPC {path} {shown}", "no answer")
        try:
            method = self._channel.unary_unary(path)
            raw = method(body, timeout=self.wire.timeout, metadata=self.metadata(headers))
        except grpc.RpcError as exc:
            return b"", self._refused(exc)
        self.wire.note(f"gRPC {path} {shown}", f"OK, {len(raw)} bytes")
        return raw, None

    @contextmanager
    def stream(
        self, op: str, args: Args, headers: Mapping[str, str] = NO_HEADERS
    ) -> Iterator[ProbeStream]:
        path, name, fields = self._request(op, args)
        self.wire.count()
        self.wire.note(f"gRPC {path} {short(str(fields))}", "no answer")
        method = self._channel.unary_stream(path)
        body = writer(name)(_snake(fields))
        call = method(body, timeout=3 * self.wire.timeout, metadata=self.metadata(headers))
        stream = ProbeStream()
        stream.events = self._events(op, stream, call)
        try:
            yield stream
        finally:
            call.cancel()

    def _events(self, op: str, stream: ProbeStream, call: Any) -> Iterator[Any]:
        try:
            for raw in call:
                yield self._read(op, raw)
        except grpc.RpcError as exc:
            stream.refusal = self._refused(exc)

    def _read(self, op: str, raw: bytes) -> Any:
        name = ANSWERS[self.version].get(op)
        if name is None:
            return None
        value = plain(reader(f"{PACKAGES[self.version]}.{name}")(raw))
        self.wire.note(self.wire.sent, f"OK {value}")
        return {**ALWAYS, **value} if op == "list" else value

    def _refused(self, exc: Any) -> ExpectedRefusal:
        code, text = exc.code().name, exc.details() or ""
        if code in ("DEADLINE_EXCEEDED", "UNAVAILABLE") and not _answered(exc):
            raise NoAnswer(f"{code}: {short(text)}")
        info: dict[str, str] = {}
        for key, value in exc.trailing_metadata() or ():
            if key == "grpc-status-details-bin":
                info = _details(value)
        self.wire.note(self.wire.sent, f"{code} {text} {info or ''}")
        return ExpectedRefusal(
            grpc=code, message=text, reason=info.get("reason", ""), domain=info.get("domain", "")
        )


def _answered(exc: Any) -> bool:
    return bool(exc.trailing_metadata())


def _details(raw: bytes) -> dict[str, str]:
    for detail in reader("google.rpc.Status")(raw).details:
        if detail.type_url.endswith("google.rpc.ErrorInfo"):
            info = reader("google.rpc.ErrorInfo")(detail.value)
            return {"reason": info.reason, "domain": info.domain}
    return {}


def _snake(value: Any) -> Any:
    """Returns fields under protobuf's own names. The members of a Struct keep their names."""
    if isinstance(value, list):
        return [_snake(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        re.sub(r"[A-Z]", lambda found: "_" + found[0].lower(), key): item
        if key in ("metadata", "data")
        else _snake(item)
        for key, item in value.items()
    }


def plain(message: Any) -> Any:
    """Returns a message in the form of ProtoJSON. It does not use the library's converter, so a
    field that is not set stays absent."""
    special = _SPECIAL.get(message.DESCRIPTOR.full_name)
    if special is not None:
        return special(message)
    out: dict[str, Any] = {}
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            out[field.json_name] = {
                key: plain(item) if hasattr(item, "DESCRIPTOR") else item
                for key, item in value.items()
            }
        elif hasattr(value, "append") and not hasattr(value, "DESCRIPTOR"):
            out[field.json_name] = [_scalar(field, item) for item in value]
        else:
            out[field.json_name] = _scalar(field, value)
    return out


def _scalar(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return plain(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else value
    return b64encode(value).decode() if isinstance(value, bytes) else value


def _moment(stamp: Any) -> str:
    at = datetime.fromtimestamp(stamp.seconds, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{stamp.nanos // 1_000_000:03d}Z"


_SPECIAL = {
    "google.protobuf.Struct": object_in,
    "google.protobuf.Value": value_in,
    "google.protobuf.Timestamp": _moment,
}
