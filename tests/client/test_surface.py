"""What a caller of the client sees first: the result in one word, the text as it comes, headers."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
from msgspec.structs import replace

from dragoman import Agent, Data, Message, State, Turn, connect, file
from dragoman.agent.serve_options import ServeOptions
from dragoman.core.errors import BadParams, PeerRefused
from dragoman.settings import Server, Settings
from dragoman.testing.served import served


def desk() -> Agent:
    agent = Agent("Desk", output_modes=["*/*"])

    @agent.skill("tell", default=True)
    async def tell(turn: Turn) -> AsyncGenerator[object, None]:
        for word in ("one ", "two ", "three"):
            yield word
        yield {"n": 3}
        yield file(b"a,b", filename="x.csv")

    @agent.skill("hello", may_reply=True)
    async def hello(turn: Turn) -> None:
        await turn.reply("Hello!")

    @agent.skill("fails")
    async def fails(turn: Turn) -> str:
        raise turn.fail("no paper")

    @agent.skill("status")
    async def status(turn: Turn) -> None:
        await turn.complete("All is well")

    @agent.skill("headers")
    async def headers(turn: Turn) -> dict[str, str]:
        return dict(turn.caller.headers)

    return agent


async def test_the_result_of_a_task_is_one_word_away() -> None:
    async with served(desk()) as url, connect(url) as far:
        task = await far.send("x")
        assert task.text == "one two three"
        assert task.data == {"n": 3}
        assert [each.filename for each in task.files] == ["x.csv"]


async def test_a_direct_reply_is_a_completed_task_without_an_id() -> None:
    async with served(desk()) as url, connect(url) as far:
        task = await far.send("x", skill="hello")
        assert (task.id, task.state, task.text) == ("", State.COMPLETED, "Hello!")
        with pytest.raises(BadParams, match="replied directly"):
            await far.get(task)
        assert isinstance(await far.ask("x", skill="hello"), Message)
        assert (await far.conversation(skill="hello").send("x")).text == "Hello!"


async def test_the_result_of_a_stream_is_a_task_like_that_of_send() -> None:
    async with served(desk()) as url, connect(url) as agent:
        events = agent.stream("hi", skill="hello")
        task = await events.result()
        assert (task.id, task.state, task.text) == ("", State.COMPLETED, "Hello!")
        assert events.reply is not None
        failed = await agent.stream("go", skill="fails").result()
        assert (failed.state, failed.status.text) == (State.FAILED, "no paper")
        assert (await agent.send("go")).status.text == ""


@pytest.mark.parametrize(
    ("skill", "text"), [("tell", "one two three"), ("hello", "Hello!"), ("status", "All is well")]
)
async def test_the_text_of_an_answer_as_it_comes(skill: str, text: str) -> None:
    async with served(desk()) as url, connect(url) as far:
        pieces = [piece async for piece in far.stream_text("x", skill=skill)]
        assert "".join(pieces) == text
        assert len(pieces) == (3 if skill == "tell" else 1)


async def test_a_text_that_never_comes_is_an_error() -> None:
    async with served(desk()) as url, connect(url) as far:
        with pytest.raises(PeerRefused, match="no paper") as refused:
            _ = [piece async for piece in far.stream_text("x", skill="fails")]
        assert refused.value.public["state"] == "failed"


async def test_headers_go_along_with_every_request() -> None:
    settings = Settings(server=Server(store="memory:", caller_headers=("x-team",)))
    async with served(desk(), settings) as url, connect(url, headers={"X-Team": "red"}) as far:
        assert (await far.send("x", skill="headers")).data == {"x-team": "red"}


async def test_events_say_in_a_few_words_what_they_are() -> None:
    async with served(desk()) as url, connect(url) as far:
        shown = [repr(event) async for event in far.stream("x" * 500)]
        assert max(map(len, shown)) < 120
        assert "<2 StateChanged(working)>" in shown
        assert "<3 ArtifactChunk(result, 'one ')>" in shown
        assert any("ArtifactChunk(result, 1 other part, append)" in each for each in shown)
        assert shown[-1].endswith("StateChanged(completed)>")


def test_the_options_of_serve_are_the_keys_of_the_settings() -> None:
    others = {"on_start", "config", "auth", "signing_keys", "workspace", "iat_host"}
    assert set(ServeOptions.__annotations__) - others == set(Server.__struct_fields__)


def test_data_of_a_message() -> None:
    from dragoman import Role

    message = Message(message_id="m", role=Role.AGENT, parts=(Data({"a": 1}), file(b"x")))
    assert message.data == {"a": 1}
    assert len(message.files) == 1
    assert replace(message, parts=()).data is None
