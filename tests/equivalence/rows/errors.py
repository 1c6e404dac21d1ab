"""What goes wrong: each error is heard as the same one, whatever carried it."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from msgspec.structs import replace

from dragoman.core.model import Hook
from dragoman.core.operations import (
    CancelTask,
    GetExtendedCard,
    GetTask,
    Invoke,
    ListTasks,
    SetHook,
)
from dragoman.core.session import Frame
from equivalence.callers import Caller, said
from equivalence.server import BODY, token
from equivalence.table import Point, scenario

E, M = Point.ERRORS, Point.MAPPING
MISSING = "01a1e163-75f6-7000-86e0-000000000000"
FINISHED = "what a finished task answers to a message has a code of its own in 0.1"


@scenario(E, "task_not_found")
async def get_an_unknown_task(c: Caller) -> Any:
    return await c.error(c.get(MISSING))


@scenario(E, "task_not_found")
async def cancel_an_unknown_task(c: Caller) -> Any:
    return await c.error(c.cancel(MISSING))


@scenario(E, "task_not_found")
async def follow_an_unknown_task(c: Caller) -> Any:
    return await c.error(c.watch(MISSING))


@scenario(
    E,
    "task_not_found",
    v0_1=("no error", "in 0.1 callers name their tasks: a new name is a new task"),
)
async def a_message_to_an_unknown_task(c: Caller) -> Any:
    return (await c.error(c.send("hi", task=f"no task of {c.binding.name}"))).partition(":")[0]


@scenario(E, "not_cancelable")
async def cancel_a_finished_task(c: Caller) -> Any:
    task = await c.send("hi")
    return await c.error(c.cancel(task.id))


@scenario(E, "unsupported", v0_1=("task_finished", FINISHED))
async def a_message_to_a_finished_task(c: Caller) -> Any:
    task = await c.send("hi")
    return await c.error(c.send("more", task=task.id))


@scenario(E, "unsupported", v0_1=("task_finished", FINISHED))
async def follow_a_finished_task(c: Caller) -> Any:
    task = await c.send("hi")
    return await c.error(c.watch(task.id))


@scenario(
    E,
    ("rejected", "Not for me"),
    v0_1=(("failed", "Not for me"), "0.1 has no word for rejected: failed"),
)
async def a_task_the_agent_rejects(c: Caller) -> Any:
    task = await c.send("", skill="refuse")
    return str(task.state), task.status.message.text if task.status.message else ""


@scenario(E, ("failed", "No paper left", "paper"))
async def a_task_that_fails_with_a_reason(c: Caller) -> Any:
    task = await c.send("", skill="fail")
    said = task.status.message
    assert said is not None
    return str(task.state), said.text, (said.metadata or {}).get("reason")


@scenario(E, ("failed", False))
async def a_task_that_crashes_tells_no_secrets(c: Caller) -> Any:
    task = await c.send("", skill="crash")
    return str(task.state), "secret words" in str(await c.get(task.id, 99))


@scenario(E, "bad_params")
async def a_skill_that_is_not_there(c: Caller) -> Any:
    return await c.error(c.send("hi", skill="nonsense"))


@scenario(E, "bad_params")
async def typed_parameters_that_are_wrong(c: Caller) -> Any:
    return await c.error(c.send({"city": "Rome", "days": "four"}, skill="typed"))


@scenario(E, ("bad_params", "bad_params"))
async def a_message_without_parts_or_role(c: Caller) -> Any:
    empty = said("hi")
    empty = replace(empty, message=replace(empty.message, parts=()))
    other = said("hi")
    wrong = (b'"ROLE_USER"', b'"ROLE_NOBODY"'), (b'"user"', b'"nobody"'), (b"\x20\x01", b"\x20\x07")

    def misspelt(frame: Frame) -> Frame:
        body = frame.body
        for before, after in wrong:
            body = body.replace(before, after)
        assert body != frame.body
        return replace(frame, body=body)

    return await c.error(c.call(empty)), await c.error(c.call(other, change=misspelt))


@scenario(
    E,
    "unparseable",
    grpc_1_0=("bad_params", "bytes that are no message are wrong params: there is no JSON"),
    grpc_0_3=("bad_params", "bytes that are no message are wrong params: there is no JSON"),
)
async def bytes_that_make_no_sense(c: Caller) -> Any:
    def garbled(frame: Frame) -> Frame:
        return replace(frame, body=b"\xff\x00{nonsense")

    answer = await c.error(c.call(said("hi"), change=garbled))
    assert (await c.send("still there")).text == "STILL THERE"
    return answer


@scenario(
    E,
    "content_type_unsupported",
    grpc_1_0=("no error", "gRPC has one content type, and checks it itself"),
    grpc_0_3=("no error", "gRPC has one content type, and checks it itself"),
)
async def a_wrong_content_type(c: Caller) -> Any:
    def as_text(frame: Frame) -> Frame:
        if "content-type" not in frame.headers:
            return frame
        return replace(frame, headers={**frame.headers, "content-type": "text/plain"})

    return (await c.error(c.call(said("hi"), change=as_text))).partition(":")[0]


@scenario(E, "too_large")
async def a_request_that_is_too_large(c: Caller) -> Any:
    return await c.error(c.send("x" * (BODY + 1)))


@scenario(
    E,
    "version_unsupported",
    v0_1=(
        "task_finished",
        "told with 1.0's -32009, since the version is not known, and that was another in 0.1",
    ),
)
async def a_version_that_nobody_speaks(c: Caller) -> Any:
    return await c.error(c.call(GetTask(task_id=MISSING), a2a_version="7.4"))


@scenario(E, ("unauthenticated", "unauthenticated"))
async def no_credentials_or_wrong_ones(c: Caller) -> Any:
    return await c.as_("").error(c.as_("").send("hi")), await c.as_("mallory").error(
        c.as_("mallory").send("hi")
    )


@scenario(Point.TRANSPORT, ["HI", "HI", "HI", "unauthenticated"])
async def every_way_in_that_the_card_declares(c: Caller) -> Any:
    """§3.4.1: the same authentication, whatever carries it."""
    basic = b64encode(f"alice:{token('alice')}".encode()).decode()
    nobody = c.as_("")
    tasks = (
        await nobody.call(said("hi"), authorization=f"Bearer {token('alice')}"),
        await nobody.call(said("hi"), authorization=f"Basic {basic}"),
        await nobody.call(said("hi"), x_api_key=token("alice")),
    )
    refused = await c.error(nobody.call(said("hi"), x_api_key="something else entirely"))
    return [*(task.text for task in tasks), refused]


@scenario(E, ("bad_params", "bad_params", "unauthenticated"))
async def a_stream_that_is_refused(c: Caller) -> Any:
    wrong = await c.error(c.steps("hi", skill="nonsense"))
    typed = await c.error(c.steps({"city": 3}, skill="typed"))
    return wrong, typed, await c.error(c.as_("").steps("hi"))


@scenario(E, ["task_not_found"] * 4)
async def a_task_of_somebody_else_is_not_there(c: Caller) -> Any:
    task, bob = await c.send("", skill="trip"), c.as_("bob")
    hook = Hook(hook_id="h", task_id=task.id, url="https://hooks.example/x")
    asked = (
        bob.call(GetTask(task_id=task.id)),
        bob.call(CancelTask(task_id=task.id)),
        bob.watch(task.id),
        bob.call(SetHook(hook=hook)),
    )
    return [await bob.error(each) for each in asked]


@scenario(E, (True, 0), v0_1=("refused: unsupported", "0.1 has no list of tasks"))
async def a_list_shows_only_the_callers_own(c: Caller) -> Any:
    task = await c.send("hi")
    mine = await c.call(ListTasks(context_id=task.context_id))
    theirs = await c.as_("bob").call(ListTasks(context_id=task.context_id))
    return [each.id for each in mine.tasks] == [task.id], len(theirs.tasks)


NO_TENANTS = "only 1.0 has tenants: what is named is not heard"


@scenario(
    E,
    ("HI", "task_not_found", "forbidden"),
    v0_3=(("HI", "no error", "no error"), NO_TENANTS),
    v0_1=(("HI", "no error", "no error"), NO_TENANTS),
)
async def tenants_are_apart(c: Caller) -> Any:
    other = c.with_(tenant="globex")
    task = await other.send("hi")
    crossed = await c.error(c.get(task.id))
    foreign = Caller(c.server, c.binding, "bob", tenant="globex")
    refused = await c.error(foreign.send("hi"))
    return task.text, *(each.partition(":")[0] for each in (crossed, refused))


@scenario(M, 5)
async def a_method_of_the_agents_own(c: Caller) -> Any:
    return await c.call(Invoke(method="example.sums/add", params={"first": 2, "second": 3}))


@scenario(M, ("bad_params", "unknown_method"))
async def a_method_called_wrongly(c: Caller) -> Any:
    wrong = Invoke(method="example.sums/add", params={"first": "two"})
    none = Invoke(method="example.sums/none", params={})
    return await c.error(c.call(wrong)), await c.error(c.call(none))


@scenario(
    M,
    (True, True, False),
    v0_1=("refused: unsupported", "0.1 has no extended card"),
)
async def the_extended_card(c: Caller) -> Any:
    card = await c.call(GetExtendedCard())
    other = await c.as_("bob").call(GetExtendedCard())
    ids = [skill.id for skill in card.skills]
    return card.name == "Everything", "hidden" in ids, "hidden" in [s.id for s in other.skills]


@scenario(
    M,
    ("urn:dragoman:cursor:1", ""),
)
async def active_extensions_are_echoed(c: Caller) -> Any:
    name = c.binding.extensions_header
    asking = c.with_("urn:dragoman:cursor:1", "urn:example:unknown")
    await asking.send("hi")
    active = asking.heard.get(name, "")
    await c.send("hi")
    return active, c.heard.get(name, "")


@scenario(E, "task_not_found")
async def an_id_that_could_be_a_path(c: Caller) -> Any:
    return await c.error(c.get("a%2Fb:cancel?x=1#y ü"))
