"""Streams: what they tell, how they end, and how they go on."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

from dragoman.core.events import ArtifactChunk, Noted, Snapshot, Stamped, StateChanged
from dragoman.core.lifecycle import Fold
from dragoman.core.model import Message
from dragoman.core.operations import Watch
from equivalence.callers import Caller, said
from equivalence.table import Point, scenario

T, F = Point.TRANSPORT, Point.FORMATS
CURSOR, WORK = "urn:dragoman:cursor:1", "urn:dragoman:work:1"
NO_TASK = "0.1 has no task in a stream: its state has to do"


def kinds(steps: list[Stamped | Message]) -> list[str]:
    """What happened, step by step."""
    return [_kind(step) for step in steps]


def _kind(step: Stamped | Message) -> str:
    if isinstance(step, Message):
        return "message"
    match step.event:
        case Snapshot(task=task):
            return f"task {task.state}"
        case StateChanged(state=state, message=message):
            return f"{state}: {message.text}" if message else str(state)
        case ArtifactChunk(artifact=artifact, append=append, last=last):
            return f"{'+' if append else '='}{artifact.text}{'.' * last}"
        case event:
            return type(event).__name__


COUNT = ["working", "=0 ", "+1 ", "+2 .", "completed"]


@scenario(
    T,
    ["task submitted", *COUNT],
    v0_1=(["submitted", *COUNT], NO_TASK),
)
async def a_stream_tells_every_step(c: Caller) -> Any:
    return kinds(await c.steps("3", skill="count"))


@scenario(T, ("alike", "0 1 2 "))
async def the_steps_add_up_to_the_task(c: Caller) -> Any:
    steps = await c.steps("3", skill="count")
    first = steps[0]
    assert isinstance(first, Stamped)
    fold = Fold(first.task_id, first.context_id)
    for step in steps:
        assert isinstance(step, Stamped)
        fold.add(step)
    found = await c.get(first.task_id, 99)
    told = fold.task()
    same = (told.state, told.artifacts, told.status.at) == (
        found.state,
        found.artifacts,
        found.status.at,
    )
    return "alike" if same else f"{told} is not {found}", told.text


@scenario(
    T,
    ["task submitted", "working", "input-required: Which city?"],
    v0_1=(["submitted", "working", "input-required: Which city?"], NO_TASK),
)
async def a_stream_ends_with_a_question(c: Caller) -> Any:
    return kinds(await c.steps("", skill="trip"))


@scenario(
    T,
    ["task working", "input-required: How many days?"],
    v0_1=(["working", "input-required: How many days?"], NO_TASK),
)
async def an_answer_is_streamed_too(c: Caller) -> Any:
    task = await c.send("", skill="trip")
    return kinds(await c.steps("Rome", task=task.id))


@scenario(
    T,
    ["message"],
    v0_1=(
        ["submitted", "working", "completed: hello yourself"],
        "0.1 knows no direct reply: the task is completed with it",
    ),
)
async def a_direct_reply_is_the_whole_stream(c: Caller) -> Any:
    return kinds(await c.steps("hi", skill="greet"))


@scenario(
    T,
    (["task working", "canceled"], "canceled"),
    v0_1=((["working: begun", "canceled"], "canceled"), NO_TASK),
)
async def a_task_is_followed_again(c: Caller) -> Any:
    seen: list[Stamped | Message] = []
    async with aclosing(c.stream(said("go", skill="slow"))) as steps:
        async for step in steps:
            seen.append(step)
            if len(seen) == 3:  # opened, working, what it says
                break
    first = seen[0]
    assert isinstance(first, Stamped)
    again: list[Stamped | Message] = []
    async with aclosing(c.stream(Watch(task_id=first.task_id))) as steps:
        async for step in steps:
            again.append(step)
            if len(again) == 1:
                ended = await c.cancel(first.task_id)
    return kinds(again), str(ended.state)


@scenario(T, ([1, 2, 3], [4, 5, 6], ["+1 ", "+2 .", "completed"]))
async def a_stream_goes_on_behind_a_cursor(c: Caller) -> Any:
    c = c.with_(CURSOR)
    steps = await c.steps("3", skill="count")
    first = steps[0]
    assert isinstance(first, Stamped)
    rest = await c.watch(first.task_id, last_event_id="3")
    places = [[step.seq for step in part if isinstance(step, Stamped)] for part in (steps, rest)]
    return places[0][:3], places[1], kinds(rest)


@scenario(T, "refused: bad_params")
async def a_cursor_that_is_no_place(c: Caller) -> Any:
    task = await c.send("hi")
    return await c.watch(task.id, last_event_id="999")


@scenario(
    F,
    ([{"fraction": 0.5, "eta": 2}], ["looking"]),
)
async def progress_and_words_on_the_way(c: Caller) -> Any:
    steps = await c.steps("", skill="work")
    changes = [s.event for s in steps if isinstance(s, Stamped)]
    told = [e for e in changes if isinstance(e, StateChanged)]
    progress = [e.metadata[f"{WORK}/progress"] for e in told if e.metadata]
    return progress, [e.message.text for e in told if e.message]


@scenario(
    F,
    ([], [{"text": "hm"}]),
    v0_1=(([], []), "0.1 has no extensions: thoughts are told to nobody"),
)
async def thoughts_only_for_those_who_want_them(c: Caller) -> Any:
    plain = await c.steps("", skill="work")
    wanted = await c.with_(WORK).steps("", skill="work")
    return _thoughts(plain), _thoughts(wanted)


def _thoughts(steps: list[Stamped | Message]) -> list[Any]:
    return [s.event.body for s in steps if isinstance(s, Stamped) and isinstance(s.event, Noted)]
