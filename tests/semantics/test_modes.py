"""Media types: what the author names is held to, in every binding; without names all is welcome."""

from __future__ import annotations

import pytest

from dragoman import Agent, Turn
from dragoman.core.errors import ContentTypeUnsupported
from dragoman.core.model import AnyPart, Blob, Data, Link, Task, Text
from dragoman.core.operations import SendMessage
from dragoman.security.card_enforcement import Modes, _meet, fits, held, type_of
from semantics.ways import WAYS, Way, said, served

ways = pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
PNG = Blob(b"x", media_type="image/png")


def desk() -> Agent:
    agent = Agent("Desk", input_modes=["text/plain"], output_modes=["text/plain"])

    @agent.skill("echo", default=True)
    async def echo(turn: Turn) -> str:
        return turn.text or "nothing"

    @agent.skill("look", input_modes=["image/*"], output_modes=["image/png", "text/plain"])
    async def look(turn: Turn) -> str:
        return str(len(turn.files))

    @agent.skill("compare", input_modes=["image/*"])
    async def compare(turn: Turn) -> str:
        answer = await turn.ask("With what?")
        return str(len(answer.message.parts))

    @agent.skill("paint", output_modes=["image/png"])
    async def paint(turn: Turn) -> str:
        return await turn.ask("Which colour?")

    return agent


def to(skill: str, *parts: AnyPart | str, **about: object) -> SendMessage:
    return said(*parts, noted={"skillId": skill}, **about)


@ways
@pytest.mark.parametrize("stream", [False, True])
async def test_what_the_agent_does_not_take_is_refused(way: Way, stream: bool) -> None:
    async with served(desk()) as server:
        for op in (
            said("see", PNG),
            said(Data({"a": 1})),
            said(Link("https://example.org/a.pdf", filename="a.pdf")),
            to("look", "words"),
            to("paint", PNG),
        ):
            heard = await way.ask(server, op, stream=stream)
            assert type(heard.error) is ContentTypeUnsupported
            if way.name.startswith("JSON-RPC"):
                assert heard.code == -32005
        for op in (said("words"), to("look", PNG)):
            heard = await way.ask(server, op, stream=stream)
            assert heard.error is None


@ways
async def test_an_answer_is_checked_by_the_skill_of_its_task(way: Way) -> None:
    async with served(desk()) as server:
        task = (await way.ask(server, to("compare", PNG))).answer
        assert isinstance(task, Task)
        for _ in range(2):
            refused = await way.ask(server, said("words", task=task.id))
            assert type(refused.error) is ContentTypeUnsupported
        heard = await way.ask(server, said(PNG, PNG, task=task.id))
        assert heard.error is None
        assert heard.answer.text == "2"


@ways
async def test_a_question_may_be_answered_with_data(way: Way) -> None:
    agent = Agent("Desk", input_modes=["text/plain"])

    @agent.skill("book")
    async def book(turn: Turn) -> str:
        return "booked" if await turn.approve("Book it?") else "left alone"

    async with served(agent) as server:
        task = (await way.ask(server, said("go", wait=True))).answer
        assert type((await way.ask(server, said(Data({"x": 1})))).error) is ContentTypeUnsupported
        heard = await way.ask(server, said(Data({"approved": True}), task=task.id, wait=True))
        assert heard.answer.text == "booked"


@ways
async def test_a_caller_that_can_read_nothing_of_it_is_told_before_the_work(way: Way) -> None:
    async with served(desk()) as server:
        for accepted in (("text/html",), ("image/gif", "audio/*")):
            heard = await way.ask(server, to("paint", "a house", accepts=accepted))
            assert type(heard.error) is ContentTypeUnsupported
        for accepted in ((), ("text/html", "image/png"), ("image/*",), ("*/*",)):
            assert (await way.ask(server, to("paint", "a house", accepts=accepted))).error is None


@ways
async def test_an_agent_that_names_none_takes_all(way: Way) -> None:
    agent = Agent("Desk")

    @agent.skill("count")
    async def count(turn: Turn) -> str:
        return str(len(turn.parts))

    async with served(agent) as server:
        op = said("a", PNG, Data({"a": 1}), accepts=("audio/ogg",), wait=True)
        heard = await way.ask(server, op)
        assert heard.error is None


def test_terms_cost_nothing_where_there_are_none() -> None:
    agent = Agent("Desk")
    peer = object()
    assert held(agent, peer) is peer  # type: ignore[arg-type, comparison-overlap]
    assert held(desk(), peer) is not peer  # type: ignore[arg-type, comparison-overlap]


@pytest.mark.parametrize(
    ("part", "media_type"),
    [
        (Text("x"), "text/plain"),
        (Text("x", media_type="Text/Markdown; charset=utf-8"), "text/markdown"),
        (Data(None), "application/json"),
        (Data(1, media_type="application/geo+json"), "application/geo+json"),
        (Blob(b""), "application/octet-stream"),
        (Blob(b"", filename="a.png"), "image/png"),
        (Blob(b"", filename="a.png", media_type="image/webp"), "image/webp"),
        (Link("https://example.org/x", filename="x.nobody-knows"), "application/octet-stream"),
    ],
)
def test_the_type_of_a_part(part: AnyPart, media_type: str) -> None:
    assert type_of(part) == media_type


@pytest.mark.parametrize(
    ("media_type", "modes", "fit"),
    [
        ("text/plain", ("text/plain",), True),
        ("text/plain", ("TEXT/Plain; charset=utf-8",), True),
        ("text/plain", ("text/*",), True),
        ("text/plain", ("*/*",), True),
        ("text/plain", ("text",), True),  # as 0.1 and 0.2 said it
        ("image/png", ("text", "data"), False),
        ("application/json", ("data",), True),
        ("image/png", ("file",), True),
        ("image/png", ("text/*", "application/json"), False),
        ("textual/plain", ("text/*",), False),
        ("text/plain", (), False),
    ],
)
def test_what_fits(media_type: str, modes: tuple[str, ...], fit: bool) -> None:
    assert fits(media_type, modes) is fit


def test_lists_that_meet() -> None:
    assert _meet(("image/*",), ("image/png",))
    assert _meet(("image/png",), ("image/*",))
    assert _meet(("image/png",), ("text/plain", "*/*"))
    assert not _meet(("image/png",), ("text/*",))
    assert Modes() == Modes((), ())
