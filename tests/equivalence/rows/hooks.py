"""Webhooks: set, got, listed, deleted, set with a send, and called."""

from __future__ import annotations

from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from dragoman.core.events import Snapshot, Stamped, StateChanged
from dragoman.core.model import Hook, Task
from dragoman.core.operations import DeleteHook, GetHook, ListHooks, SetHook
from dragoman.dialects.a2a import V0_1, V0_3, V1_0
from equivalence.callers import Caller
from equivalence.table import Point, scenario
from webhooks.receiver import Receiver

M, T = Point.MAPPING, Point.TRANSPORT
URL = "https://hooks.example/x?y=1"
ONE = "0.1 has one webhook for a task, without an id, and no list and no delete"


def hook(task: Task, hook_id: str = "mine", url: str = URL) -> Hook:
    return Hook(hook_id=hook_id, task_id=task.id, url=url, token="t0ken")


@scenario(M, ("mine", URL, "****", True), v0_1=(("TASK", URL, "****", True), ONE))
async def a_webhook_is_set_and_got(c: Caller) -> Any:
    task = await c.send("", skill="trip")
    made = await c.call(SetHook(hook=hook(task)))
    found = await c.call(GetHook(task_id=task.id, hook_id="mine"))
    named = "TASK" if found.hook_id == task.id else found.hook_id
    same = replace(made, token=found.token) == found and found.task_id == task.id
    return named, found.url, found.token, same  # who set it knows the token; it is told to nobody


@scenario(
    M,
    (["a", "b"], ["b"], "task_not_found"),
    v0_1=("refused: unsupported", ONE),
)
async def webhooks_are_listed_and_deleted(c: Caller) -> Any:
    task = await c.send("", skill="trip")
    for name in ("a", "b"):
        await c.call(SetHook(hook=hook(task, name)))
    both = await c.call(ListHooks(task_id=task.id))
    await c.call(DeleteHook(task_id=task.id, hook_id="a"))
    left = await c.call(ListHooks(task_id=task.id))
    gone = await c.error(c.call(GetHook(task_id=task.id, hook_id="a")))
    ids = [sorted(each.hook_id for each in page.hooks) for page in (both, left)]
    return *ids, gone


@scenario(M, (True, URL))
async def a_webhook_without_a_name_is_given_one(c: Caller) -> Any:
    task = await c.send("", skill="trip")
    made = await c.call(SetHook(hook=hook(task, "")))
    return bool(made.hook_id), made.url


@scenario(Point.ERRORS, ("task_not_found", "bad_params"))
async def a_webhook_that_cannot_be(c: Caller) -> Any:
    task = await c.send("", skill="trip")
    nobody = Hook(hook_id="h", task_id="01a1e163-75f6-7000-86e0-000000000000", url=URL)
    local = hook(task, url="ftp://hooks.example/x")
    return await c.error(c.call(SetHook(hook=nobody))), await c.error(c.call(SetHook(hook=local)))


LONG = 10.0
"""Seconds; it comes much sooner."""
READERS = {"1.0": V1_0, "0.3": V0_3, "0.1": V0_1}


@scenario(T, ("completed", "HI", "t0ken", "completed"))
async def a_webhook_set_with_a_send_is_called(c: Caller) -> Any:
    async with Receiver() as receiver:
        inline = Hook(hook_id="mine", task_id="", url=receiver.url, token="t0ken")
        task = await c.send("hi", hook=inline)
        heard: list[Any] = []
        while _state(c, heard) != "completed":
            await receiver.until(len(heard) + 1, LONG)
            heard = list(receiver.heard)
        token = heard[-1].headers["x-a2a-notification-token"]
        return str(task.state), task.text, token, _state(c, heard)


def _state(c: Caller, heard: list[Any]) -> str:
    """The state of which the last call tells, in the version of the binding."""
    if not heard:
        return ""
    version = READERS[c.binding.version]
    if c.binding.version == "0.1":
        told: Any = version.methods["tasks/get"].result_in(Raw(heard[-1].body))
        return str(told.state)
    entry, _ = version.event_in(Raw(heard[-1].body), 0)
    assert isinstance(entry, Stamped)
    match entry.event:
        case Snapshot(task=task):
            return str(task.state)
        case StateChanged(state=state):
            return str(state)
    return ""
