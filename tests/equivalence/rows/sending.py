"""Sends, tasks, contexts, histories and lists."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from dragoman.core.errors import TaskNotFound
from dragoman.core.events import Stamped, StateChanged
from dragoman.core.model import State, Task
from dragoman.core.operations import ListTasks, SendMessage
from equivalence.callers import BINDINGS, Caller, said
from equivalence.table import Point, scenario

T, C = Point.TRANSPORT, Point.CONSISTENCY
NO_LIST = ("refused: unsupported", "0.1 has no list of tasks: -32004")


async def begun(c: Caller, op: SendMessage) -> tuple[str, asyncio.Future[Any]]:
    """A task that exists, and its send, which may still be waiting."""
    asking = asyncio.ensure_future(c.call(op))
    while True:
        await asyncio.wait([asking], timeout=0.05)
        if asking.done():
            return asking.result().id, asking
        with suppress(TaskNotFound):  # where callers name their tasks, it has this name
            return (await c.get(op.message.message_id)).id, asking


def brief(task: Task) -> tuple[str, str]:
    return str(task.state), task.text


@scenario(T, ("completed", "HI", "alike"))
async def send_and_wait(c: Caller) -> Any:
    task = await c.send("hi", history=99)
    return *brief(task), await c.as_told(task)


@scenario(
    T,
    ("working", "canceled"),
    v0_1=(("slept", "canceled"), "0.1 always waits: the answer comes when the task is canceled"),
)
async def send_without_waiting(c: Caller) -> Any:
    task_id, asking = await begun(c, said("go", skill="slow", wait=False))
    early = asking.done()
    ended = await c.cancel(task_id)
    task = await asking
    first = "working" if task.state in (State.SUBMITTED, State.WORKING) else "slept"
    assert early == (first == "working"), task
    return first, str(ended.state)


@scenario(T, ("completed", "HI", "alike"))
async def get_a_task(c: Caller) -> Any:
    task = await c.send("hi")
    found = await c.get(task.id, 99)
    return *brief(found), await c.as_told(found)


@scenario(
    T,
    (5, [3, 2, 1, 0]),
    v0_1=((0, [3, 2, 1, 0]), "0.1 tells no history unless asked for"),
    grpc_0_3=((5, [3, 2, 1, 5]), "a number that is 0 was not given there"),
)
async def history_lengths(c: Caller) -> Any:
    task = await c.send("", skill="trip")
    for answer in ("Rome", "2"):
        task = await c.send(answer, task=task.id)
    lengths = [len((await c.get(task.id, length)).history) for length in (3, 2, 1, 0)]
    return len((await c.get(task.id)).history), lengths


@scenario(T, ["Rome", "How many days?", "3"])
async def the_newest_of_the_history_with_a_send(c: Caller) -> Any:
    task = await c.send("", skill="trip")
    await c.send("Rome", task=task.id)
    task = await c.send("3", task=task.id, history=3)
    return [message.text for message in task.history]


@scenario(T, ("input-required", "Which city?", "How many days?", "completed", "3 days in Rome"))
async def a_question_and_its_answer(c: Caller) -> Any:
    first = await c.send("", skill="trip")
    second = await c.send("Rome", task=first.id)
    third = await c.send("3", task=first.id)
    asked = [task.status.message.text for task in (first, second) if task.status.message]
    assert first.id == second.id == third.id
    return str(first.state), *asked, *brief(third)


@scenario(
    T,
    ("input-required", {"price": 12}, "approval", "completed", "rejected"),
    v0_1=(
        ("input-required", {"price": 12}, "approval", "completed", "failed"),
        "0.1 has no word for rejected: failed",
    ),
)
async def an_approval(c: Caller) -> Any:
    asked, other = await c.send("", skill="order"), await c.send("", skill="order")
    question = asked.status.message
    assert question is not None
    (about,) = [part.value for part in question.parts if hasattr(part, "value")]
    yes = await c.send({"approved": True}, task=asked.id)
    no = await c.send("no", task=other.id)
    return str(asked.state), about["details"], about["kind"], str(yes.state), str(no.state)


@scenario(
    T,
    ("auth-required", "bearer", "completed", "10 letters", False),
    v0_1=(
        ("input-required", "bearer", "completed", "10 letters", False),
        "0.1 has no word for auth-required: input-required",
    ),
)
async def credentials_asked_for_within_a_task(c: Caller) -> Any:
    asked = await c.send("", skill="secret")
    question = asked.status.message
    assert question is not None
    (about,) = [part.value for part in question.parts if hasattr(part, "value")]
    done = await c.send("abcdefghij", task=asked.id)
    kept = "abcdefghij" in str(await c.get(asked.id, 99))
    scheme = about["details"]["schemes"]["shop"]["scheme"]
    return str(asked.state), scheme, *brief(done), kept


@scenario(T, ("canceled", "canceled"))
async def cancel_a_running_task(c: Caller) -> Any:
    task_id, asking = await begun(c, said("go", skill="slow", wait=False))
    ended = await c.cancel(task_id)
    await asking
    return str(ended.state), str((await c.get(task_id)).state)


@scenario(T, ("canceled",))
async def cancel_a_waiting_task(c: Caller) -> Any:
    task = await c.send("", skill="trip")
    return (str((await c.cancel(task.id)).state),)


@scenario(C, (True, True, True))
async def one_context_for_several_tasks(c: Caller) -> Any:
    first = await c.send("a")
    second = await c.send("b", context=first.context_id)
    third = await c.send("c")
    return (
        first.context_id == second.context_id,
        first.id != second.id,
        third.context_id not in ("", first.context_id),
    )


@scenario(C, "a context of my own")
async def a_context_the_caller_names(c: Caller) -> Any:
    return (await c.send("a", context="a context of my own")).context_id


@scenario(C, True)
async def the_context_is_that_of_the_task(c: Caller) -> Any:
    first = await c.send("", skill="trip")
    return (await c.send("Rome", task=first.id)).context_id == first.context_id


@scenario(
    T,
    ([2, 1], 3, "alike", 3),
    v0_1=NO_LIST,
    rest_0_3=(([2], 2, "alike", 2), "the text of 0.3 has a bare array: no token, no total"),
)
async def a_list_in_pages(c: Caller) -> Any:
    context = (await c.send("1")).context_id
    made = [await c.send(text, context=context) for text in ("2", "3")]
    sizes, found, token = [], [], ""
    while True:
        page = await c.list(context_id=context, page_size=2, page_token=token, history_length=99)
        sizes.append(len(page.tasks))
        found += page.tasks
        token = page.next_token
        if not token:
            break
    assert {task.id for task in made} <= {task.id for task in found}
    whole = await c.get(found[0].id, 99)
    alike = "alike" if found[0].id == whole.id and not found[0].artifacts else str(found[0])
    return sizes, page.total, alike, len({task.id for task in found})


@scenario(T, (["completed"], ["input-required"], 0, 1, True), v0_1=NO_LIST)
async def a_list_with_filters(c: Caller) -> Any:
    done = await c.send("1")
    context = done.context_id
    waiting = await c.send("", skill="trip", context=context)
    by_state = [
        [str(task.state) for task in (await c.list(context_id=context, state=state)).tasks]
        for state in (State.COMPLETED, State.INPUT_REQUIRED)
    ]
    later = await c.list(context_id=context, since=waiting.status.at + 60_000)
    exact = await c.list(context_id=context, since=waiting.status.at)
    with_made = await c.list(context_id=context, state=State.COMPLETED, with_artifacts=True)
    return *by_state, len(later.tasks), min(len(exact.tasks), 1), bool(with_made.tasks[0].artifacts)


@scenario(C, ["1.0", "0.3"])
async def a_task_of_this_binding_is_read_in_all_others(c: Caller) -> Any:
    task = await c.send("hi")
    seen: dict[str, Task] = {}
    for other in BINDINGS:
        if other.version != "0.1":
            seen[other.name] = await c.over(other).get(task.id)
    one, *rest = seen.values()
    assert all(each == one for each in rest), seen
    assert one.text == "HI"
    return sorted({name.split()[-1] for name in seen}, reverse=True)


@scenario(C, "3 days in Rome")
async def a_conversation_goes_on_in_other_bindings(c: Caller) -> Any:
    first = await c.send("", skill="trip")
    after = BINDINGS[(BINDINGS.index(c.binding) + 1) % len(BINDINGS)]
    last = BINDINGS[(BINDINGS.index(c.binding) + 3) % len(BINDINGS)]
    await c.over(after).send("Rome", task=first.id)
    return (await c.over(last).send("3", task=first.id)).text


@scenario(C, "How many days?")
async def an_answer_over_another_binding_is_streamed(c: Caller) -> Any:
    first = await c.send("", skill="trip")
    other = BINDINGS[(BINDINGS.index(c.binding) + 1) % len(BINDINGS)]
    *_, last = await c.over(other).steps("Rome", task=first.id)
    assert isinstance(last, Stamped)
    assert isinstance(last.event, StateChanged)
    return last.event.message.text if last.event.message else last


@scenario(C, (True, "conflict"))
async def a_send_repeated_under_its_key(c: Caller) -> Any:
    op, key = said("hi"), f"key {c.binding.name}"
    first = await c.call(op, idempotency_key=key)
    again = await c.call(op, idempotency_key=key)
    other = c.call(said("else"), idempotency_key=key)
    return first.id == again.id, await c.error(other)


@scenario(T, "refused: bad_params", v0_1=NO_LIST)
async def a_page_token_that_is_nobodys(c: Caller) -> Any:
    return (await c.call(ListTasks(page_token="nonsense"))).tasks
