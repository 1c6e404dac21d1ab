"""Checks streams: their events, the order and the end."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from typing import Any

from ..check import EVERY, HTTP, RPC, V0_3, V1, Broken, Level, Unknowable, check, given, need
from ..expected_errors import ANY, BAD_PARAMS, NOT_FOUND, UNSUPPORTED
from ..http import strict_json
from ..probes import ProbeStream
from ..subject import NO_TASK, Case
from .tasks import text_of

Event = tuple[str, Any]
SETTLE = 0.5
"""The seconds after which a subscription is assumed to be active."""


def events(it: Case, stream: ProbeStream) -> list[Event]:
    """Returns all events, each with its kind."""
    got = [it.form.unwrap(event) for event in stream.all()]
    if stream.refusal is not None:
        raise Broken(f"refused: {stream.refusal}")
    need(got, "no event came")
    return got


def heard(it: Case) -> tuple[ProbeStream, list[Event]]:
    """Returns an ordinary stream that was read to its end. All checks share it."""
    if it.heard is None:
        with it.stream() as stream:
            it.heard = stream, events(it, stream)
    return it.heard


def refuses(it: Case, opening: AbstractContextManager[ProbeStream], kind: str) -> None:
    """Raises `Broken` unless the stream is refused with this error."""
    with opening as stream:
        stream.all()
        it.refused(stream, kind)


@check("stream.type", "1.0 §9.4.2; 0.3 §3.3", bindings=HTTP)
def content_type(it: Case) -> None:
    """A stream is text/event-stream."""
    with it.stream() as stream:
        answer = stream.answer
        need(answer and answer.type == "text/event-stream", f"it is {answer and answer.type}")


@check("stream.frames", "1.0 §11.7; 0.3 §3.3", bindings=HTTP)
def data_lines(it: Case) -> None:
    """The data of each event is one JSON document."""
    stream, _ = heard(it)
    for frame in stream.raw:
        need(isinstance(strict_json(frame.data), dict), "an event is not an object")


@check("stream.lines", "1.0 §11.7; 0.3 §3.3", Level.SHOULD, bindings=HTTP)
def one_line(it: Case) -> None:
    """Each event has one data line, as simple parsers expect."""
    stream, _ = heard(it)
    most = max(frame.lines for frame in stream.raw)
    need(most == 1, f"an event has {most} data lines")


@check("stream.envelope", "1.0 §9.4.2; 0.3 §3.3.1", bindings=RPC, versions=EVERY)
def envelope(it: Case) -> None:
    """Each event is a JSON-RPC response with the id of the request."""
    stream, _ = heard(it)
    for frame in stream.raw:
        value = strict_json(frame.data)
        need(value.get("jsonrpc") == "2.0", f"jsonrpc is {value.get('jsonrpc')!r}")
        need(value.get("id") == stream.id, f"the id is {value.get('id')!r}, not {stream.id!r}")


@check("stream.shape", "1.0 §4.2; 0.3 §7.2")
def shape(it: Case) -> None:
    """Each event has the structure of its type."""
    _, got = heard(it)
    for kind, value in got:
        need(kind != "nothing", "an event is neither task, message nor update")
        it.shaped(kind, value)


@check("stream.first", "1.0 §3.1.2", versions=V1)
def first(it: Case) -> None:
    """The first event is the task or a message."""
    _, got = heard(it)
    need(got[0][0] in ("Task", "Message"), f"it is a {got[0][0]}")


@check("stream.message", "1.0 §3.1.2; 0.3 §7.2")
def message_alone(it: Case) -> None:
    """Nothing follows a message."""
    _, got = heard(it)
    kinds = [kind for kind, _ in got]
    need("Message" not in kinds or len(kinds) == 1, f"{len(kinds)} events with a message")


@check("stream.ids", "1.0 §4.2; 0.3 §7.2.2")
def ids(it: Case) -> None:
    """All events belong to one task and one context."""
    _, got = heard(it)
    pairs = {
        (value.get("id") if kind == "Task" else value.get("taskId"), value.get("contextId"))
        for kind, value in got
        if kind != "Message" and isinstance(value, dict)
    }
    need(len(pairs) <= 1, f"they name {sorted(map(str, pairs))}")


def states(it: Case, got: list[Event]) -> list[Any]:
    """Returns the state after each event, or None."""
    return [it.state(value) if kind in ("Task", "StatusUpdate") else None for kind, value in got]


@check("stream.end", "1.0 §3.1.2; 0.3 §7.2")
def end(it: Case) -> None:
    """The stream ends with the task, and its last event says so."""
    stream, got = heard(it)
    need(stream.closed, "it stays open")
    if got[0][0] == "Message":
        return
    need(any(it.form.resting(state) for state in states(it, got)), "no last state came")


@check("stream.after-end", "1.0 §3.1.2; 0.3 §7.2")
def after_end(it: Case) -> None:
    """No update follows a final state."""
    _, got = heard(it)
    seen = False
    for (kind, _), state in zip(got, states(it, got), strict=True):
        need(not seen or kind == "Task", f"a {kind} came after the end")
        seen = seen or it.form.final(state)


@check("stream.final", "0.3 §7.2.2", versions=V0_3)
def final(it: Case) -> None:
    """Only the last status update is final."""
    _, got = heard(it)
    flags = [value.get("final", False) for kind, value in got if kind == "StatusUpdate"]
    given(flags, "no status update came")
    need(flags[-1] is True, "the last one is not final")
    need(not any(flags[:-1]), "an earlier one is final")


@check("stream.append", "1.0 §4.2.2; 0.3 §7.2.3")
def append(it: Case) -> None:
    """The first chunk of an artifact does not append."""
    _, got = heard(it)
    seen: set[Any] = set()
    for kind, value in got:
        if kind == "Task":
            seen |= {a.get("artifactId") for a in value.get("artifacts") or ()}
        elif kind == "ArtifactUpdate":
            name = (value.get("artifact") or {}).get("artifactId")
            need(name in seen or value.get("append") is not True, f"{name!r} begins with append")
            seen.add(name)
    given(seen, "no artifact came")


@check("stream.same", "1.0 §3.1.2; 0.3 §7.2")
def same(it: Case) -> None:
    """The streamed artifacts are those of the task."""
    _, got = heard(it)
    texts: dict[Any, str] = {}
    task_id = None
    for kind, value in got:
        if kind == "Task":
            task_id = value.get("id")
            for artifact in value.get("artifacts") or ():
                texts[artifact.get("artifactId")] = text_of({"artifacts": [artifact]})
        elif kind == "ArtifactUpdate":
            task_id = value.get("taskId")
            artifact = value.get("artifact") or {}
            before = texts.get(artifact.get("artifactId"), "") if value.get("append") else ""
            chunk = text_of({"artifacts": [artifact]})
            texts[artifact.get("artifactId")] = before + chunk
    given(task_id and texts, "no artifact was streamed")
    task = it.accepted(it.ask("get", id=task_id))
    need(text_of(task) == "".join(texts.values()), "the artifacts differ")


@check("stream.refused", "1.0 §3.1.2; 0.3 §7.2")
def refused(it: Case) -> None:
    """A bad request for a stream is refused."""
    refuses(it, it.stream(configuration={}), BAD_PARAMS)


@check("stream.undeclared", "1.0 §3.3.4; 0.3 §7.2")
def undeclared(it: Case) -> None:
    """Without the capability, a stream is an unsupported operation."""
    given(not it.agent.can("streaming"), "the card declares streaming")
    refuses(it, it.probe.stream("stream", {"message": it.message()}), UNSUPPORTED)


@check("subscribe.unknown", "1.0 §3.1.6; 0.3 §8.2", versions=EVERY)
def subscribe_unknown(it: Case) -> None:
    """Subscribing to an unknown task is refused."""
    refuses(it, it.stream("subscribe", id=NO_TASK), NOT_FOUND)


@check("subscribe.finished", "1.0 §3.1.6", versions=V1)
def subscribe_finished(it: Case) -> None:
    """Subscribing to a finished task is an unsupported operation."""
    refuses(it, it.stream("subscribe", id=it.done["id"]), UNSUPPORTED)


@check("subscribe.finished-ends", "0.3 §7.9", Level.SHOULD, versions=V0_3)
def subscribe_finished_old(it: Case) -> None:
    """0.3: resubscribing to a finished task is refused or ends at once."""
    done = it.done
    with it.stream("subscribe", id=done["id"]) as stream:
        stream.all()
        if stream.refusal is not None:
            it.refused(stream, ANY)
        else:
            need(stream.closed, "it stays open")


@check("subscribe.first", "1.0 §3.1.6", versions=V1)
def subscribe_first(it: Case) -> None:
    """A subscriber first gets the present task."""
    task = it.running()
    with it.stream("subscribe", id=task["id"]) as stream:
        event = next(iter(stream), None)
        need(stream.refusal is None, f"refused: {stream.refusal}")
        kind, value = it.form.unwrap(event)
        need(kind == "Task", f"it got a {kind}")
        need(value.get("id") == task["id"], "it is another task")
    it.ask("cancel", id=task["id"])


@check("subscribe.running", "1.0 §3.1.6; 0.3 §7.9")
def subscribe_running(it: Case) -> None:
    """A caller can subscribe to a running task, and sees its end."""
    task = it.running()
    with it.stream("subscribe", id=task["id"]) as stream:
        events = iter(stream)
        if it.version == "1.0":
            need(next(events, None), f"nothing came: {stream.refusal or 'closed'}")
        else:
            time.sleep(SETTLE)  # 0.3 promises nothing before the next change
        it.ask("cancel", id=task["id"])
        seen = [it.form.unwrap(event) for event in events]
        need(stream.refusal is None, f"refused: {stream.refusal}")
    need(any(it.form.final(state) for state in states(it, seen)), "no final state came")


@check("subscribe.two", "1.0 §3.5.3", versions=V1)
def subscribe_two(it: Case) -> None:
    """Two subscribers receive the same events."""
    task = it.running()
    with (
        it.stream("subscribe", id=task["id"]) as one,
        it.stream("subscribe", id=task["id"]) as two,
    ):
        left, right = iter(one), iter(two)
        need(next(left, None) and next(right, None), "a subscriber got nothing")
        it.ask("cancel", id=task["id"])
        ends = [[it.form.unwrap(event) for event in side] for side in (left, right)]
    last = [[state for state in states(it, side) if state][-1:] for side in ends]
    need(last[0] and last[0] == last[1], f"they end with {last[0]} and {last[1]}")


@check("stream.leaving", "1.0 §3.5.3; 0.3 §7.9")
def leaving(it: Case) -> None:
    """A caller that leaves a stream does not stop the task."""
    with it.stream(message=it.message(it.slow)) as stream:
        event = next(iter(stream), None)
        need(event, f"no event came: {stream.refusal or 'closed'}")
        kind, value = it.form.unwrap(event)
    task_id = value.get("id") if kind == "Task" else value.get("taskId")
    task = it.accepted(it.ask("get", id=task_id))
    if it.form.final(it.state(task)):
        need("cancel" not in str(it.state(task)).lower(), "it was cancelled")
        raise Unknowable("the slow text is answered at once")
    it.ask("cancel", id=task_id)
