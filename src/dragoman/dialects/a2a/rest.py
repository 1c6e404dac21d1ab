"""A2A over HTTP+JSON (REST), in any version, for both sides. An exchange is one request and its
answer.

The path determines the operation and the version (`routes`); the params are in the path, in the
query, in the body, or in several of them. There are no ids: an answer belongs to the request that
it follows. The error object of JSON-RPC is replaced by the status and a body of the version's own
(1.0 §11.6, a2a-wire D5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from urllib.parse import parse_qsl, quote

import msgspec
from msgspec import Raw

from dragoman.core.errors import (
    BadParams,
    ContentTypeUnsupported,
    DragomanError,
    PeerMisbehaved,
    UnknownMethod,
    Unparseable,
    VersionUnsupported,
)
from dragoman.core.events import Stamped
from dragoman.core.model import Json
from dragoman.core.operations import AnyOperation, DeleteHook
from dragoman.core.session import Call, End, Fault, Frame, Result, Session, Signal, Update

from .. import jsonrpc
from . import errors
from .callee import NOTHING, A2ACallee
from .jsonrpc import ACCEPT, JSON_TYPES, SUPPORTED, version_in
from .legacy.agno import AgnoCallee, is_envelope
from .routes import BINDINGS, REST_1_0, Binding, RestRoute, RouteMatch, find_route
from .scalars import Wrong, query_out, seq_in
from .stream_end import Ending
from .version import RpcMethod

A2A_JSON = "application/a2a+json"
EMPTY = b"{}"
_BINDINGS: dict[str, Binding] = {binding.version.name: binding for binding in BINDINGS}
_ERROR_BODIES: dict[str, Callable[..., Json]] = {"1.0": errors.body_1_0, "0.3": errors.body_0_3}
_ANSWERS: dict[bool, Mapping[str, str]] = {
    False: NOTHING,
    True: {"content-type": A2A_JSON},
}


class RestCallee(A2ACallee):
    """The callee's side of one REST exchange."""

    _binding: Binding = REST_1_0
    _version = REST_1_0.version
    _request: tuple[RpcMethod, AnyOperation] | None = None
    _params_to_note: object = None
    _tenant = ""
    _refusal: tuple[DragomanError, int, Mapping[str, str]] | None = None
    """What only HTTP has a status for, that status, and the headers it asks for."""
    _envelope: AgnoCallee | None = None
    """Answers a caller that put a JSON-RPC request into the body."""

    @property
    def tenant(self) -> str:
        """The tenant that the caller named, in the path or elsewhere; only 1.0 has it."""
        return self._tenant

    def receive(self, frame: Frame) -> Iterable[Signal]:
        """Yields one `Call` or one `Fault`."""
        self._headers = frame.headers
        verb, _, target = frame.target.partition(" ")
        path, _, query = target.partition("?")
        try:
            route, found = self._find_route(verb, path)
            method = route.method
            params = self._params(route, found, query, frame.body)
            op = method.op_in(params)
        except DragomanError as error:
            return (Fault(None, error),)
        except (msgspec.ValidationError, Wrong) as exc:
            if is_envelope(path, frame.body):
                self._envelope = AgnoCallee()
                return self._envelope.receive(frame)
            # The message of msgspec adds that null is allowed too, which is true for most optional
            # members but does not help anyone.
            return (Fault(None, BadParams(str(exc).replace(" | null`", "`"))),)
        except (msgspec.DecodeError, RecursionError) as exc:
            return (Fault(None, Unparseable(str(exc))),)
        # Params hold the files of a message once more, in base64: they are kept only to be noted.
        self._request = method, op
        self._params_to_note = params if method.notes is not None else None
        return (Call(None, op, method.stream),)

    def send(self, signal: Signal) -> Iterable[Frame]:
        """Returns one frame, or none for `End`, which is expressed by closing the stream."""
        if self._envelope is not None:
            return self._envelope.send(signal)
        return super().send(signal)

    def _find_route(self, verb: str, path: str) -> tuple[RestRoute, RouteMatch]:
        """Returns the operation of a request, if this caller may request it in this way."""
        self._binding, found = find_route(path)
        self._version = self._binding.version
        header = self._headers.get("a2a-version")
        if header:
            version = version_in(header)
            if version is None or version.name != self._version.name:
                # A caller with an unknown version is answered in 1.0, because only 1.0 has an error
                # for it.
                self._binding = _BINDINGS.get(version.name, REST_1_0) if version else REST_1_0
                self._version = self._binding.version
                what = f"Version {header[:20]!r} does not go with {path[:80]!r} here"
                raise VersionUnsupported(what, supported=SUPPORTED)
        if found is None:
            raise UnknownMethod(f"There is nothing at {path[:80]!r}")
        route = found.verbs.get(verb)
        if route is None:
            allow = ", ".join(found.verbs)
            error = UnknownMethod(f"{verb[:20]} is not for {path[:80]!r}", allow=allow)
            self._refusal = error, 405, {"allow": allow}
            raise error
        return route, found

    def _params(self, route: RestRoute, found: RouteMatch, query: str, body: bytes) -> object:
        """Returns the params from all places: the path takes precedence, then the body."""
        method, ids, given = route.method, route.ids, found.ids
        asked = dict(parse_qsl(query, keep_blank_values=True)) if query else {}
        params: object
        if route.verb != "POST":
            params = msgspec.convert(
                asked | dict(zip(ids, given, strict=True)), method.params, strict=False
            )
        else:
            if body:
                self._check(body)
            if not ids:
                params = method.decode(body or EMPTY)
            else:
                members = msgspec.json.decode(body, type=dict[str, Json]) if body else {}
                params = msgspec.convert(
                    members | dict(zip(ids, given, strict=True)), method.params
                )
        named = {found.tenant, getattr(params, "tenant", None) or "", asked.get("tenant", "")}
        named.discard("")
        if len(named) > 1:
            raise BadParams("The path and the params name two tenants", field="tenant")
        self._tenant = next(iter(named), "") if self._binding is REST_1_0 else ""
        return params

    def _check(self, body: bytes) -> None:
        """Checks that a body is JSON, is declared as JSON, and is not nested too deeply."""
        content_type = self._headers.get("content-type", "")
        if content_type not in JSON_TYPES and jsonrpc.bare_type(content_type) not in JSON_TYPES:
            error = ContentTypeUnsupported("Expected application/json or application/a2a+json")
            self._refusal = error, 415, NOTHING
            raise error
        jsonrpc.check(body)

    def notes(self) -> Iterable[Mapping[str, Json]]:
        """Returns how the last request was interpreted where it was ambiguous."""
        if self._request is None or self._request[0].notes is None:
            return ()
        return self._request[0].notes(self._params_to_note)

    @property
    def _answer_headers(self) -> Mapping[str, str]:
        """Returns the headers of an answer. application/a2a+json is sent only to callers that use
        it, because some accept only plain JSON (D3)."""
        headers = self._headers
        wanted = jsonrpc.bare_type(headers.get("content-type", "")) == A2A_JSON or (
            A2A_JSON in headers.get("accept", "")
        )
        return _ANSWERS[wanted and self._version.name == "1.0"]

    def _update(self, update: Update) -> Frame:
        entry = update.entry
        step = self._version.event_out(entry, self._notes)
        mark = str(entry.seq) if isinstance(entry, Stamped) else ""
        return Frame(jsonrpc.encode(step), "", NOTHING, 200, mark)

    def _answer(self, answer: Result) -> Frame:
        if self._request is None:
            return Frame(EMPTY, "", self._answer_headers, 200)
        method, op = self._request
        result = method.result_out(answer.value, op)
        # google.protobuf.Empty is an object; the result of a method of the agent's own stays
        # unchanged.
        body = EMPTY if isinstance(op, DeleteHook) else jsonrpc.encode(result)
        headers = self._answer_headers
        if method.headers_out is not None:
            headers = {**headers, **method.headers_out(answer.value, op)}
        return Frame(body, "", headers, 200)

    def _failure(self, fault: Fault) -> Frame:
        version, error = self._version, fault.error
        spelling = errors.spelling_of(error, version.spellings)
        status, headers = spelling.http, self._answer_headers
        if self._refusal is not None and self._refusal[0] is error:
            _, status, more = self._refusal
            headers = {**headers, **more}
        body = _ERROR_BODIES[version.name](error, spelling, status)
        return Frame(jsonrpc.encode(body), "", headers, status)


class RestCaller(Session):
    """The caller's side of one exchange, in one version."""

    def __init__(
        self, binding: Binding = REST_1_0, extensions: Iterable[str] = (), tenant: str = ""
    ) -> None:
        self._binding = binding
        # 0.3 has no tenants, and its prefix identifies it as 0.3.
        self._prefix = binding.prefix or (f"/{quote(tenant, safe='')}" if tenant else "")
        self._open: tuple[Call, RpcMethod] | None = None
        self._ending = Ending()
        self._headers = {"a2a-version": binding.version.name}
        if uris := ", ".join(extensions):
            self._headers[binding.version.extensions_header] = uris

    def send(self, signal: Signal) -> Iterable[Frame]:
        """Returns the request for a `Call`, or no frame if this version has no path for it."""
        if not isinstance(signal, Call):
            return ()
        route = self._binding.find_route(signal.op, stream=signal.stream)
        if route is None:
            return ()
        params: object = route.method.op_out(signal.op)
        members: dict[str, Json] = (
            msgspec.to_builtins(params) if route.ids or _uses_query(route) else {}
        )
        ids = [members.pop(name, "") for name in route.ids]
        if not all(ids):
            return ()
        if not signal.silent:  # REST has no notifications: the answer is ignored
            self._open = signal, route.method
            self._ending = Ending()
        target = f"{route.verb} {self._prefix}{_fill_path(route.path, ids)}"
        headers = {**self._headers, "accept": ACCEPT[signal.stream]}
        if _uses_query(route):
            query = query_out(members)
            return (Frame(b"", f"{target}?{query}" if query else target, headers),)
        body = jsonrpc.encode(members if route.ids else params)
        return (Frame(body, target, headers | {"content-type": "application/json"}),)

    def receive(self, frame: Frame) -> Iterable[Signal]:
        """Returns the signals of a whole response, or of one event of a stream."""
        if self._open is None:
            return ()
        call, method = self._open
        status = frame.status or 200
        if not frame.body and status < 300 and call.stream:
            return ()
        try:
            if status >= 400:
                raise errors.body_in(frame.body, status) or errors.error_for(status)
            if not frame.body and method.null:
                return self._done(Result(call.id, None))
            body = _checked_body(frame.body)
            if call.stream:
                entry, last = self._binding.version.event_in(body, seq_in(frame.mark))
                if not self._ending.is_last(entry, last):
                    return (Update(call.id, entry),)
                self._open = None
                return (Update(call.id, entry), End(call.id))
            value = method.result_in(body)
            if method.headers_in is not None:
                value = method.headers_in(value, frame.headers)
            return self._done(Result(call.id, value))
        except DragomanError as error:
            return self._done(Fault(call.id, errors.refine(error, call.op)))
        except (msgspec.DecodeError, Wrong, RecursionError) as exc:
            # A stream that has begun has no other way to report a failure.
            failure = errors.body_in(frame.body, 200) if call.stream else None
            return self._done(Fault(call.id, failure or PeerMisbehaved(str(exc))))

    def _done(self, signal: Signal) -> Iterable[Signal]:
        self._open = None
        return (signal,)


def _checked_body(body: bytes) -> Raw:
    try:
        jsonrpc.check_answer(body)
    except Unparseable as exc:
        raise PeerMisbehaved(exc.message) from None
    return Raw(body)


def _uses_query(route: RestRoute) -> bool:
    return route.verb != "POST"


def _fill_path(path: str, ids: list[str]) -> str:
    """Returns the path with its variables replaced, in order."""
    for id in ids:
        head, _, rest = path.partition("{")
        path = head + quote(id, safe="") + rest.partition("}")[2]
    return path
