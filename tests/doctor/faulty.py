"""Every fault that the doctor must see. The name says what the agent does wrong."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

from doctor.proxy import Asked, Fault, Told

Card = dict[str, Any]
JSON = {"content-type": "application/json"}
Events = Iterator[dict[str, Any]]


# Ways to be wrong


def card(turn: str, spoil: Callable[[Card], Any], *more: str) -> Fault:
    """A card with something wrong in it."""

    def tell(asked: Asked, told: Told) -> None:
        if asked.op == "card" and told.status == 200:
            value = told.json
            spoil(value)
            told.put(value)

    return Fault((turn, *more), tell=tell)


def card_answer(turn: str, spoil: Callable[[Asked, Told], Any]) -> Fault:
    """A card that comes in the wrong way."""

    def tell(asked: Asked, told: Told) -> None:
        if asked.op == "card":
            spoil(asked, told)

    return Fault((turn,), tell=tell)


def task(**members: Any) -> dict[str, Any]:
    """A task out of nowhere."""
    made = {"id": str(uuid4()), "contextId": str(uuid4())}
    return {**made, "status": {"state": "TASK_STATE_COMPLETED"}, **members}


def yes(op: str) -> Any:
    """What an agent would say that knows no no."""
    if op in ("send", "stream", "subscribe", ""):
        return {"task": task()}
    if op == "list":
        return {"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}
    return task(url="https://example.com/doctor", name="A card")


def accepts(*turns: str, on: str = "jsonrpc-1.0") -> Fault:
    """Never says no."""

    def tell(asked: Asked, told: Told) -> None:
        if asked.op == "card" or told.events is not None:
            return
        if asked.rpc:
            # A batch or no request at all is answered too, as if it were one.
            value = told.json if told.body else {"error": 1}
            if "error" not in value:
                return
            asked_for = asked.json
            id = asked_for.get("id") if isinstance(asked_for, dict) else None
            answer = {"jsonrpc": "2.0", "id": id, "result": yes(asked.op)}
        elif told.status < 400:
            return
        else:
            answer = yes(asked.op)
        told.status = 200
        if asked.op in ("stream", "subscribe"):
            told.headers, told.events = {"content-type": "text/event-stream"}, iter([answer])
        else:
            told.headers, told.body = dict(JSON), json.dumps(answer).encode()

    def events(asked: Asked, coming: Events) -> Iterator[Any]:
        for event in coming:  # a stream may be refused in its first event
            if "error" in event:
                event = {"jsonrpc": "2.0", "id": event.get("id"), "result": yes(asked.op)}
            yield event

    return Fault(turns, tell=tell, events=events, on=on)


def refuses(*turns: str, when: Callable[[Asked], Any], on: str = "jsonrpc-1.0") -> Fault:
    """Says no to something that is right."""

    def ask(asked: Asked) -> Told | None:
        return no(asked) if asked.op != "card" and when(asked) else None

    return Fault(turns, ask=ask, on=on)


def no(asked: Asked, code: int = -32603, status: int = 500) -> Told:
    """A refusal without a good reason."""
    if not asked.rpc:
        return Told(status, dict(JSON), b'{"error": {"message": "no"}}')
    value = asked.json
    id = value.get("id") if isinstance(value, dict) else None
    error = {"code": code, "message": "no"}
    return Told(200, dict(JSON), json.dumps({"jsonrpc": "2.0", "id": id, "error": error}).encode())


def result(
    *turns: str,
    op: str,
    spoil: Callable[[Any], Any],
    when: Callable[[Asked], Any] = lambda asked: True,
    on: str = "jsonrpc-1.0",
) -> Fault:
    """An answer with something wrong in it; what `spoil` returns, if anything, replaces it."""

    def tell(asked: Asked, told: Told) -> None:
        if asked.op == op and told.events is None and told.status < 300 and when(asked):
            value = told.json
            if "result" in value:
                changed = spoil(value["result"])
                value["result"] = value["result"] if changed is None else changed
            elif "error" not in value:
                changed = spoil(value)
                value = value if changed is None else changed
            told.put(value)

    return Fault(turns, tell=tell, on=on)


def sent(*turns: str, spoil: Callable[[Any], Any], when: Any = lambda asked: True) -> Fault:
    """A send whose task is wrong."""
    return result(*turns, op="send", spoil=lambda value: spoil(value["task"]), when=when)


def raw(*turns: str, spoil: Callable[[Asked, Told], Any], on: str = "jsonrpc-1.0") -> Fault:
    """Any answer but the card, spoiled."""

    def tell(asked: Asked, told: Told) -> None:
        if asked.op != "card" and told.events is None:
            spoil(asked, told)

    return Fault(turns, tell=tell, on=on)


def envelope(*turns: str, spoil: Callable[[dict[str, Any]], Any]) -> Fault:
    """A JSON-RPC envelope with something wrong."""

    def change(asked: Asked, told: Told) -> None:
        if told.body:
            value = told.json
            spoil(value)
            told.put(value)

    return raw(*turns, spoil=change)


def streamed(
    *turns: str,
    change: Callable[[Events], Iterator[Any]],
    op: str = "stream",
    on: str = "jsonrpc-1.0",
) -> Fault:
    """A stream with something wrong."""

    def events(asked: Asked, coming: Events) -> Iterator[Any]:
        return change(coming) if asked.op == op else coming

    return Fault(turns, events=events, on=on)


def asked_otherwise(*turns: str, change: Callable[[Asked], Any], on: str = "jsonrpc-1.0") -> Fault:
    """Does something else than it was asked for."""

    def ask(asked: Asked) -> None:
        if asked.op != "card":
            change(asked)

    return Fault(turns, ask=ask, on=on)


def without(*members: str) -> Callable[[Asked], None]:
    """Overlooks parameters."""

    def change(asked: Asked) -> None:
        value = asked.json
        if isinstance(value, dict) and isinstance(value.get("params"), dict):
            params = value["params"]
            for holder in (params, params.get("configuration") or {}, params.get("message") or {}):
                for member in members:
                    holder.pop(member, None)
            asked.body = json.dumps(value).encode()

    return change


def each(spoil: Callable[[dict[str, Any]], Any]) -> Callable[[Events], Iterator[Any]]:
    """Every event of a stream, spoiled."""

    def change(coming: Events) -> Iterator[Any]:
        for event in coming:
            spoil(event)
            yield event

    return change


def error_data(value: dict[str, Any]) -> None:
    if "error" in value:
        value["error"].pop("data", None)


def rest_error(spoil: Callable[[dict[str, Any]], Any]) -> Callable[[Asked, Told], None]:
    """An error over REST, spoiled."""

    def change(asked: Asked, told: Told) -> None:
        if told.status >= 400:
            value = told.json
            spoil(value)
            told.put(value)

    return change


def dies(*needles: bytes) -> Callable[[Asked], bool]:
    """Whether the request holds what the agent cannot bear."""
    return lambda asked: any(needle in asked.body for needle in needles)


def _late_end(coming: Events) -> Iterator[Any]:
    last: dict[str, Any] = {}
    for last in coming:
        yield last
    yield last


def _append(event: dict[str, Any]) -> None:
    if "artifactUpdate" in event["result"]:
        event["result"]["artifactUpdate"]["append"] = True


def _other_task(coming: Events) -> Iterator[Any]:
    for number, event in enumerate(coming):
        if "statusUpdate" in event["result"]:
            event["result"]["statusUpdate"]["taskId"] = f"t-{number}"
        yield event


def _two_messages(coming: Events) -> Iterator[Any]:
    for event in coming:
        message = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "hi"}]}
        yield {**event, "result": {"message": message}}


def _in_pieces(coming: Events) -> Iterator[Any]:
    for event in coming:
        lines = json.dumps(event, indent=1).splitlines()
        yield "".join(f"data: {line}\n" for line in lines) + "\n"


def _without_end(coming: Events) -> Iterator[Any]:
    for event in coming:
        if "COMPLETED" not in json.dumps(event):
            yield event


def _never_final(event: dict[str, Any]) -> None:
    if "final" in event["result"]:
        event["result"]["final"] = False


_counter = itertools.count()


def _first(value: Any, member: str, to: Any) -> None:
    value["supportedInterfaces"][0][member] = to


def _old(value: Any, member: str, to: Any) -> None:
    value[member] = to


def _signed(value: Card) -> None:
    value["signatures"] = [{"protected": "e30", "signature": "AAAA"}]  # {}: neither alg nor kid


def _scheme(value: Card) -> None:
    value["securitySchemes"] = {"key": {"apiKeySecurityScheme": {"name": "X-Key"}}}


def _requirement(value: Card) -> None:
    value["securityRequirements"] = [{"schemes": {"key": {"list": []}}}]


def _locked(value: Card) -> None:
    scheme = {"apiKeySecurityScheme": {"name": "X-Key", "location": "header"}}
    value["securitySchemes"] = {"key": scheme}
    _requirement(value)


SLOW = (b'"slow go"', b"slow")


def slow(asked: Asked) -> bool:
    return dies(*SLOW)(asked)


FAULTS: dict[str, Fault] = {
    # The card
    "no card": card_answer("card.found", lambda a, t: setattr(t, "status", 404)),
    "a list as card": card_answer("card.json", lambda a, t: t.put([])),
    "card as text": card_answer(
        "card.type", lambda a, t: t.headers.update({"content-type": "text/html"})
    ),
    "card for ever": card_answer("card.cache", lambda a, t: t.headers.pop("cache-control")),
    "card without tag": card_answer("card.etag", lambda a, t: t.headers.pop("etag", None)),
    "card always anew": Fault(
        ("card.not-modified",),
        ask=lambda asked: asked.headers.pop("if-none-match", None) and None,
    ),
    "card without vary": card_answer("card.vary", lambda a, t: t.headers.pop("vary")),
    "card that changes": card("card.stable", lambda c: _old(c, "n", next(_counter))),
    "nameless": card("card.name", lambda c: c.pop("name")),
    "undescribed": card("card.description", lambda c: _old(c, "description", "")),
    "no version": card("card.version", lambda c: c.pop("version")),
    "interface without binding": card(
        "card.interfaces", lambda c: _first(c, "protocolBinding", "")
    ),
    "relative address": card("card.addresses", lambda c: _first(c, "url", "/a2a")),
    "odd binding": card("card.bindings", lambda c: _first(c, "protocolBinding", "SOAP")),
    "no protocol version": card(
        "card.protocol-version", lambda c: _first(c, "protocolVersion", "new")
    ),
    "interface twice": card(
        "card.twice", lambda c: c["supportedInterfaces"].append(c["supportedInterfaces"][0])
    ),
    "no preferred transport": card("card.preferred", lambda c: c.pop("preferredTransport")),
    "main url not listed": card("card.main-listed", lambda c: c["additionalInterfaces"].pop(0)),
    "one url for all": card(
        "card.conflict",
        lambda c: [one.update(url=c["url"]) for one in c["additionalInterfaces"]],
    ),
    "capabilities in words": card(
        "card.capabilities", lambda c: c["capabilities"].update(streaming="yes")
    ),
    "extension without uri": card(
        "card.extensions", lambda c: c["capabilities"]["extensions"][0].pop("uri")
    ),
    "no modes": card("card.modes", lambda c: c.pop("defaultInputModes")),
    "modes in words": card(
        "card.media-types", lambda c: _old(c, "defaultInputModes", ["spoken word"])
    ),
    "skill without tags": card("card.skills", lambda c: c["skills"][0].pop("tags")),
    "skill twice": card("card.skill-ids", lambda c: c["skills"].append(c["skills"][0])),
    "no examples": card(
        "card.examples", lambda c: [skill.pop("examples", 0) for skill in c["skills"]]
    ),
    "half a scheme": card("card.schemes", _scheme),
    "unknown scheme wanted": card("card.security", _requirement),
    "empty signature": card("card.signatures", _signed),
    "no tls": card("card.https", lambda c: _first(c, "url", "http://agent.example.com/")),
    "nameless provider": card(
        "card.provider", lambda c: _old(c, "provider", {"url": "https://x.example"})
    ),
    "relative links": card("card.links", lambda c: _old(c, "iconUrl", "/icon.png")),
    "password on the card": card(
        "card.secrets", lambda c: _old(c, "documentationUrl", "https://me:secret@example.com/")
    ),
    "no old path": Fault(
        ("card.old-path",),
        ask=lambda asked: Told(404, {}) if asked.path.endswith("/agent.json") else None,
    ),
    # JSON-RPC
    "ids are strings": envelope(
        "rpc.id-number", "rpc.id-large", spoil=lambda v: v.update(id=str(v["id"]))
    ),
    "ids are ascii": envelope(
        "rpc.id-string", spoil=lambda v: v.update(id=str(v["id"]).replace("é", "?"))
    ),
    "result and error": envelope(
        "rpc.envelope", spoil=lambda v: v.update(result=None, error={"code": 1, "message": ""})
    ),
    "json as text": raw(
        "rpc.type", spoil=lambda a, t: t.headers.update({"content-type": "text/plain"})
    ),
    "errors by status": raw("rpc.status", spoil=lambda a, t: setattr(t, "status", 400)),
    "error is a word": envelope("rpc.error", spoil=lambda v: v.update(error="no")),
    "errors without info": envelope("rpc.error-info", spoil=error_data),
    "never says no": accepts(
        *("rpc.no-method", "rpc.parse-error", "rpc.without-method", "rpc.wrong-version"),
        *("rpc.not-a-request", "rpc.odd-id", "rpc.params", "rpc.params-array", "rpc.batch"),
        *("rpc.notification", "rpc.media-type", "send.history-negative", "send.no-message"),
        *("send.no-parts", "send.no-id", "send.role", "send.part-type", "send.part-oneof"),
        *("send.unknown-task", "send.finished-task", "send.other-context", "get.unknown"),
        *("get.no-id", "get.history-negative", "cancel.unknown", "cancel.finished"),
        *("cancel.no-id", "cancel.immutable", "list.size-zero", "list.size-large", "list.token"),
        *("list.bad-status", "stream.refused", "subscribe.unknown", "subscribe.finished"),
        *("push.unknown-task", "push.unknown-config", "push.url", "push.private"),
        *("version.unknown", "version.next", "version.patch", "extended.undeclared"),
        *("input.nan", "input.utf8", "input.empty", "input.id", "input.long-id"),
    ),
    "never says no, over rest": accepts(
        *("rest.route", "rest.verb", "rest.parse-error", "rest.media-type", "rest.empty-body"),
        on="rest-1.0",
    ),
    "invents an id": envelope("rpc.null-id", spoil=lambda v: v.update(id=7)),
    # REST and gRPC
    "rest as text": raw(
        "rest.type",
        "rest.error-json",
        spoil=lambda a, t: t.headers.update({"content-type": "text/plain"}),
        on="rest-1.0",
    ),
    "bare errors over rest": raw(
        "rest.error-body", spoil=rest_error(lambda v: v.pop("error")), on="rest-1.0"
    ),
    "rest errors without info": raw(
        "rest.error-info", spoil=rest_error(lambda v: v["error"].pop("details")), on="rest-1.0"
    ),
    "only application/json": refuses(
        "rest.a2a-json",
        when=lambda a: "a2a+json" in a.headers.get("content-type", ""),
        on="rest-1.0",
    ),
    "odd queries refused": refuses(
        "rest.query", when=lambda a: "doctorAsks" in a.path, on="rest-1.0"
    ),
    "grpc says yes": Fault(
        ("grpc.no-method", "grpc.bad-bytes", "send.answer", "get.unknown", "send.no-message"),
        on="grpc-1.0",
    ),
    "old grpc says yes": Fault(("extended.undeclared",), on="grpc-0.3"),
    "grpc without details": Fault(("grpc.error-info",), on="grpc-1.0"),
    "open though locked": card("auth.refused", _locked),
    # Sending
    "no answer to a send": result("send.answer", op="send", spoil=lambda v: {}),
    "one interface is dumb": result("across.methods", op="send", spoil=lambda v: {}, on=""),
    "task without id": sent("send.shape", spoil=lambda t: t.pop("id")),
    "things without kind": result(
        "send.answer", op="send", spoil=lambda v: v.pop("kind"), on="jsonrpc-0.3"
    ),
    "roles of 1.0 in 0.3": result(
        "send.shape",
        op="send",
        spoil=lambda v: v["history"][0].update(role="ROLE_USER"),
        on="jsonrpc-0.3",
    ),
    "parts of 0.3 in 1.0": result(
        "send.shape",
        op="send",
        spoil=lambda v: v["task"]["history"][0].update(parts=[{"kind": "text", "content": "x"}]),
        on="rest-1.0",
    ),
    "states of 1.0 in 0.3": result(
        "send.state",
        "send.shape",
        op="send",
        spoil=lambda v: v["task"]["status"].update(state="completed"),
        on="rest-0.3",
    ),
    "bare tasks over rest": result(
        "send.answer", op="send", spoil=lambda v: v["task"], on="rest-1.0"
    ),
    "yes over old rest": accepts(
        "send.unknown-task", "get.unknown", "cancel.finished", on="rest-0.3"
    ),
    "time with an offset": sent(
        "send.timestamp",
        spoil=lambda t: t["status"].update(timestamp="2026-01-01T00:00:00+00:00"),
    ),
    "other codes": refuses(
        "get.unknown", "cancel.unknown", when=lambda a: a.op in ("get", "cancel")
    ),
    "state of its own": sent("send.state", spoil=lambda t: t["status"].update(state="DONE")),
    "no time": sent("send.timestamp", spoil=lambda t: t["status"].pop("timestamp")),
    "no context": sent("send.context", spoil=lambda t: t.pop("contextId")),
    "always the same task": sent("send.task-ids", spoil=lambda t: t.update(id="t-1")),
    "contexts replaced": sent(
        "send.keeps-context", "send.same-context", spoil=lambda t: t.update(contextId=str(uuid4()))
    ),
    "does not wait": sent(
        "send.waits", spoil=lambda t: t["status"].update(state="TASK_STATE_WORKING")
    ),
    "always waits": sent(
        "send.at-once", spoil=lambda t: t["status"].update(state="TASK_STATE_COMPLETED"), when=slow
    ),
    "history whatever is asked": asked_otherwise(
        *("send.history-none", "get.history-none", "list.history"),
        change=without("historyLength"),
    ),
    "long histories": Fault(
        ("send.history-some", "get.history-some"),
        tell=lambda asked, told: _lengthen(asked, told),
    ),
    "no data parts": refuses("send.data", when=lambda a: b'"data"' in a.body),
    "no foreign letters": refuses("send.unicode", when=lambda a: "你" in a.text),
    "no metadata": refuses("send.metadata", when=lambda a: b"example.com/doctor" in a.body),
    "strict about members": refuses("send.unknown-members", when=lambda a: b"doctorAsks" in a.body),
    "artifacts twice": sent(
        "send.artifacts", spoil=lambda t: t["artifacts"].append(t["artifacts"][0])
    ),
    "history of another task": sent(
        "send.history", spoil=lambda t: t["history"][0].update(taskId="x")
    ),
    # Questions
    "asks without words": result(
        "ask.message", op="send", spoil=lambda v: v["task"]["status"].pop("message", None)
    ),
    "a new context for every answer": result(
        *("ask.answer", "ask.task-only"),
        op="send",
        when=lambda asked: b"taskId" in asked.body,
        spoil=lambda v: v["task"].update(contextId=str(uuid4())),
    ),
    "any context will do": Fault(("ask.other-context",), ask=lambda asked: _right_context(asked)),
    "remembers messages": Fault(("send.same-message",), ask=lambda asked: _seen_before(asked)),
    # Tasks
    "reads half a task": result("get.shape", op="get", spoil=lambda t: t.pop("status")),
    "reads another context": result("get.same", op="get", spoil=lambda t: t.update(contextId="c")),
    "reads no artifacts": result(
        "get.artifacts", "stream.same", op="get", spoil=lambda t: t.pop("artifacts")
    ),
    "cancels nothing": result(
        "cancel.running", op="cancel", spoil=lambda t: t["status"].update(state="TASK_STATE_FAILED")
    ),
    "another task over rest": Fault(
        ("across.task",),
        tell=lambda asked, told: (
            told.put({**told.json, "contextId": "c"})
            if asked.op == "get" and not asked.rpc
            else None
        ),
        on="",
    ),
    # Lists
    "list without total": result("list.members", op="list", spoil=lambda v: v.pop("totalSize")),
    "lists half tasks": result(
        "list.shape", op="list", spoil=lambda v: [t.pop("status") for t in v["tasks"]] and None
    ),
    "lists nothing": result(
        "list.finds", "list.artifacts", op="list", spoil=lambda v: v.update(tasks=[], totalSize=0)
    ),
    "lists every context": asked_otherwise("list.context", change=without("contextId")),
    "lists every state": asked_otherwise("list.status", change=without("status")),
    "pages without end": asked_otherwise("list.page-size", change=without("pageSize")),
    "the first page again": asked_otherwise("list.pages", change=without("pageToken")),
    "counts the page": result(
        "list.total", op="list", spoil=lambda v: v.update(totalSize=len(v["tasks"]))
    ),
    "oldest first": result("list.order", op="list", spoil=lambda v: v["tasks"].reverse()),
    "artifacts unasked": result(
        "list.no-artifacts",
        op="list",
        spoil=lambda v: (
            [t.update(artifacts=[{"artifactId": "a", "parts": []}]) for t in v["tasks"]] and None
        ),
    ),
    "time does not matter": asked_otherwise("list.since", change=without("statusTimestampAfter")),
    # Streams
    "stream as json": Fault(
        ("stream.type",),
        tell=lambda asked, told: (
            told.headers.update({"content-type": "application/x-ndjson"}) if told.events else None
        ),
    ),
    "events are no json": streamed(
        "stream.frames", change=lambda coming: ("data: hello\n\n" for _ in coming)
    ),
    "events in pieces": streamed("stream.lines", change=_in_pieces),
    "events of another call": streamed("stream.envelope", change=each(lambda e: e.update(id="x"))),
    "events of no kind": streamed("stream.shape", change=each(lambda e: e.update(result={"x": 1}))),
    "no task first": streamed(
        "stream.first", change=lambda coming: itertools.islice(coming, 1, None)
    ),
    "several messages": streamed("stream.message", change=_two_messages),
    "events of several tasks": streamed("stream.ids", change=_other_task),
    "ends without an end": streamed("stream.end", change=_without_end),
    "ends twice": streamed("stream.after-end", change=_late_end),
    "never final": streamed("stream.final", change=each(_never_final), on="jsonrpc-0.3"),
    "appends to nothing": streamed("stream.append", change=each(_append)),
    "streams though it cannot": card(
        "stream.undeclared", lambda c: c["capabilities"].update(streaming=False)
    ),
    "stops when left": refuses("stream.leaving", when=lambda a: a.op == "get"),
    "old streams stay open": Fault(
        ("subscribe.finished-ends",),
        ask=lambda asked: _hanging() if asked.op == "subscribe" else None,
        on="jsonrpc-0.3",
    ),
    "subscribers begin late": streamed(
        "subscribe.first", change=lambda coming: itertools.islice(coming, 1, None), op="subscribe"
    ),
    "subscribers hear one thing": streamed(
        *("subscribe.running", "subscribe.two"),
        change=lambda coming: itertools.islice(coming, 1),
        op="subscribe",
    ),
    # Webhooks
    "webhooks though it cannot": card(
        "push.undeclared", lambda c: c["capabilities"].update(pushNotifications=False)
    ),
    "webhook without url": result("push.set", op="push.set", spoil=lambda v: v.pop("url")),
    "another webhook": result("push.get", op="push.get", spoil=lambda v: v.update(id="x")),
    "no webhooks listed": result(
        "push.list", "push.several", op="push.list", spoil=lambda v: v.update(configs=[])
    ),
    "webhooks stay": Fault(
        ("push.delete",), ask=lambda asked: _nothing(asked) if asked.op == "push.delete" else None
    ),
    "deletes once": Fault(("push.delete-twice",), ask=lambda asked: _once(asked)),
    # Versions, extensions, the extended card
    "only callers without a header": refuses(
        "version.header-0.3", when=lambda a: a.headers.get("a2a-version") == "0.3", on="jsonrpc-0.3"
    ),
    "unknown extensions refused": refuses(
        "extensions.unknown", when=lambda a: "example.com" in a.headers.get("a2a-extensions", "")
    ),
    "extensions in silence": raw(
        "extensions.echo", spoil=lambda a, t: t.headers.pop("a2a-extensions", None)
    ),
    "every extension is fine": raw(
        "extensions.not-echoed",
        spoil=lambda a, t: t.headers.update(
            {"a2a-extensions": a.headers.get("a2a-extensions", "")}
        ),
    ),
    "required only on paper": card(
        "extensions.required",
        lambda c: c["capabilities"]["extensions"][0].update(required=True),
    ),
    "no extended card after all": card(
        "extended.declared", lambda c: c["capabilities"].update(extendedAgentCard=True)
    ),
    # Bad input
    "dies of bad input": Fault(
        ("input.deep", "input.huge", "input.surrogate", "input.number", "input.text"),
        ask=lambda asked: (
            Told(500, {}, b"dead") if len(asked.body) > 4000 or b"ud800" in asked.body else None
        ),
    ),
}
"""By name. A test shows each, and that no check is without one."""


def _lengthen(asked: Asked, told: Told) -> None:
    if asked.op in ("send", "get") and b"historyLength" in asked.body and told.events is None:
        value = told.json
        if "result" in value:
            made = value["result"].get("task", value["result"])
            made["history"] = [
                {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}
            ] * 2
            told.put(value)


def _right_context(asked: Asked) -> None:
    """Overlooks that the context is another one."""
    if asked.op == "send":
        value = asked.json
        if value["params"]["message"].get("taskId"):
            value["params"]["message"].pop("contextId", None)
            asked.body = json.dumps(value).encode()


_known: set[str] = set()


def _seen_before(asked: Asked) -> Told | None:
    if asked.op != "send":
        return None
    name = asked.json["params"]["message"].get("messageId", "")
    if name in _known:
        return no(asked)
    _known.add(name)
    return None


def _nothing(asked: Asked) -> Told:
    answer = {"jsonrpc": "2.0", "id": asked.json["id"], "result": None}
    return Told(200, dict(JSON), json.dumps(answer).encode())


def _once(asked: Asked) -> Told | None:
    if asked.op != "push.delete":
        return None
    name = asked.json["params"]["id"]
    if name in _known:
        return no(asked, -32001)
    _known.add(name)
    return None


def _hanging() -> Told:
    def never() -> Iterator[Any]:
        time.sleep(15)  # the fault: it hangs
        yield {}

    return Told(200, {"content-type": "text/event-stream"}, events=never())
