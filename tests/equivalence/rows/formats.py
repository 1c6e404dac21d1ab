"""What goes in and comes out: parts, metadata, artifacts, numbers, texts, times."""

from __future__ import annotations

import time
from typing import Any

from dragoman.core.model import Blob, Data, Link, Message, Text
from equivalence.callers import Caller, said
from equivalence.server import UNICODE
from equivalence.table import Point, scenario

F, C = Point.FORMATS, Point.CONSISTENCY


async def back(c: Caller, *parts: Any) -> Any:
    """What comes back of these parts, and whether the whole task is told alike."""
    task = await c.send(*parts, skill="same", history=99)
    (made,) = task.artifacts
    return list(made.parts), await c.as_told(task)


TEXT = Text("hi", metadata={"lang": "en"})


@scenario(F, ([TEXT], "alike"))
async def a_text_with_metadata(c: Caller) -> Any:
    return await back(c, TEXT)


DATA = Data({"a": [1, {"b": None}], "c": True, "d": "x"})


@scenario(F, ([DATA], "alike"))
async def an_object_as_data(c: Caller) -> Any:
    return await back(c, DATA)


ODD = (Data([1, "two"]), Data("text"), Data(None), Data(0.5))


@scenario(F, ([*ODD], "alike"))
async def data_that_is_no_object(c: Caller) -> Any:
    return await back(c, *ODD)


BYTES = Blob(bytes(range(256)), filename="a b.bin", media_type="application/octet-stream")


@scenario(F, ([BYTES], "alike"))
async def a_file_carried_along(c: Caller) -> Any:
    return await back(c, BYTES)


LINK = Link("https://files.example/a?b=c#d", filename="a", media_type="text/csv")


@scenario(F, ([LINK], "alike"))
async def a_file_that_lies_elsewhere(c: Caller) -> Any:
    return await back(c, LINK)


@scenario(F, ([TEXT, DATA, BYTES, LINK], "alike"))
async def several_parts_in_their_order(c: Caller) -> Any:
    return await back(c, TEXT, DATA, BYTES, LINK)


NAMED = Text("# hi", filename="a.md", media_type="text/markdown")


@scenario(F, ([NAMED], "alike"))
async def the_type_and_name_of_a_text(c: Caller) -> Any:
    return await back(c, NAMED)


@scenario(F, ("completed", True))
async def texts_of_every_kind(c: Caller) -> Any:
    task = await c.send(UNICODE, skill="unicode")
    return str(task.state), task.text == UNICODE


NUMBERS = {"whole": 7, "half": 0.5, "edge": 2**53, "big": 2**60, "tiny": 1e-300}


@scenario(
    F,
    (NUMBERS, ["int", "int", "float", "float", "int"]),
    **{
        name: (
            (NUMBERS, ["float", "int", "float", "float", "int"]),
            "numbers are doubles in protobuf: beyond 2^53 they come as such",
        )
        for name in ("grpc_1_0", "grpc_0_3")
    },
)
async def numbers_large_and_small(c: Caller) -> Any:
    (made,) = (await c.send("", skill="numbers")).artifacts
    (part,) = made.parts
    assert isinstance(part, Data)
    return part.value, [type(value).__name__ for _, value in sorted(part.value.items())]


ABOUT = {"a": {"b": [1, 2.5, None, "ü"]}, "urn:example:x": True}


@scenario(F, ({**ABOUT, "more": 1}, ABOUT))
async def metadata_of_message_and_request(c: Caller) -> Any:
    task = await c.send("x", skill="about", metadata=ABOUT, about={"more": 1}, history=99)
    (made,) = task.artifacts
    (part,) = made.parts
    assert isinstance(part, Data)
    whole = await c.get(task.id, 99)
    kept = next(message.metadata or {} for message in whole.history if message.text == "x")
    return part.value["metadata"], {k: v for k, v in kept.items() if k != "skillId"}


@scenario(
    F,
    ["task-1", "task-2"],
    v0_1=([], "0.1 has no references"),
    rest_0_3=([], "the .proto of 0.3 has no references"),
)
async def references_to_other_tasks(c: Caller) -> Any:
    task = await c.send("x", skill="about", references=("task-1", "task-2"))
    (part,) = task.artifacts[0].parts
    assert isinstance(part, Data)
    return part.value["references"]


@scenario(F, ["text/plain", "image/png"])
async def output_modes_the_caller_takes(c: Caller) -> Any:
    task = await c.send("x", skill="about", accepts=("text/plain", "image/png"))
    (part,) = task.artifacts[0].parts
    assert isinstance(part, Data)
    return part.value["accepts"]


MADE = [
    ("story", "In two pieces", [Text("one two")], None),
    ("facts", "", [Data({"n": 1})], {"source": "us"}),
    ("", "", [Blob(b"\x00\xff", filename="a.bin", media_type="application/x-a")], None),
    ("link", "", [Link("https://files.example/x", media_type="text/csv")], None),
]


@scenario(F, (MADE, "alike"))
async def several_artifacts_one_in_pieces(c: Caller) -> Any:
    task = await c.send("", skill="several", history=99)
    made = [(a.name, a.description, list(a.parts), a.metadata) for a in task.artifacts]
    return made, await c.as_told(task)


@scenario(
    F,
    ["story", "facts", "result", "link"],
    v0_1=([f"artifact-{n}" for n in range(4)], "0.1 numbers artifacts"),
)
async def names_of_artifacts(c: Caller) -> Any:
    return [made.artifact_id for made in (await c.send("", skill="several")).artifacts]


@scenario(F, (True, True))
async def times_to_the_millisecond(c: Caller) -> Any:
    before = int(time.time() * 1000) - 1
    task = await c.send("hi")
    after = int(time.time() * 1000) + 1
    other = await c.get(task.id)
    return before <= task.status.at <= after, other.status.at == task.status.at


@scenario(
    F, ("hello yourself", True), v0_1=(("hello yourself", False), "0.1 knows no direct reply")
)
async def a_direct_reply(c: Caller) -> Any:
    told = await c.ask("hi", skill="greet")
    if isinstance(told, Message):
        return told.text, True
    assert told.status.message is not None
    return told.status.message.text, False


@scenario(F, {"city": "Rome", "days": 4})
async def typed_parameters(c: Caller) -> Any:
    (part,) = (await c.send({"city": "Rome", "days": 4}, skill="typed")).artifacts[0].parts
    assert isinstance(part, Data)
    return part.value


@scenario(C, ("x" * 9000, 9000))
async def a_long_text(c: Caller) -> Any:
    task = await c.call(said("X" * 9000, skill="same"))
    return task.text.lower(), len(task.text)
