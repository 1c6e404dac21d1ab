"""What every chat channel promises, tested once for all kinds.

A test file of a kind has a `ChatService`, which runs or plays the server, and a class that inherits
`ChannelContract` and has it as the fixture `service`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress

import pytest

from dragoman.core.errors import PeerRefused, PeerUnreachable, TooLarge, Unsupported
from dragoman.net.chat import Channel, ChatMessage, Cursor, MemoryCursor
from waiting import LIMIT, turns, until

SAID = '[A2A:task id=t-1 skill=plan]\nThree days in 京都 🏯.\n\n  "quotes", `code`\n@someone: #!'
"""A text of several lines, as agents send it."""


class ChatService(ABC):
    """A chat server that tests use."""

    room: str
    """The name of a room in which the members of the tests meet."""
    keeps = True
    """Whether the server keeps what was said while a member was away."""
    keyed = True
    """Whether the server recognises a message that is sent again."""
    marks_replies = True
    """Whether the server says which message is replied to."""

    @abstractmethod
    async def member(self, name: str, cursor: Cursor) -> Channel:
        """Returns a new channel for the account of this name, not yet connected."""

    @abstractmethod
    async def cut(self) -> None:
        """Breaks the connections of all members."""

    @asynccontextmanager
    async def joined(self, name: str, cursor: Cursor | None = None) -> AsyncIterator[Channel]:
        """A channel that is connected and in the room."""
        channel = await self.member(name, cursor or MemoryCursor())
        try:
            async with asyncio.timeout(LIMIT):
                await channel.connect()
                await channel.join(self.room)
            yield channel
        finally:
            await channel.close()


class Ear:
    """Hears a channel in the background."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.heard: list[ChatMessage] = []

    @property
    def texts(self) -> list[str]:
        return [each.text for each in self.heard if each.text]

    async def until(self, *texts: str) -> None:
        """Waits until these are the last texts that were heard."""
        try:
            await until(lambda: self.texts[-len(texts) :] == [*texts])
        except AssertionError:
            raise AssertionError(f"heard {self.texts}, not {texts}") from None

    async def run(self) -> None:
        async with aclosing(self.channel.hear()) as messages:
            async for message in messages:
                self.heard.append(message)


@asynccontextmanager
async def hearing(channel: Channel) -> AsyncIterator[Ear]:
    """Hears a channel for the time of the block."""
    ear = Ear(channel)
    task = asyncio.create_task(ear.run())
    try:
        yield ear
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def heard_next(channel: Channel) -> ChatMessage:
    """Hears one message, and dies before it counts as heard."""
    async with aclosing(channel.hear()) as messages, asyncio.timeout(LIMIT):
        async for message in messages:
            return message
    raise AssertionError("the channel ended")


async def said_until_heard(channel: Channel, room: str, text: str, ear: Ear) -> None:
    """Says something until it is heard: some servers lose what is said while a member is away."""
    while True:
        with suppress(PeerUnreachable, TimeoutError):
            await channel.say(room, text)
            async with asyncio.timeout(2):
                await ear.until(text)
            return


class ChannelContract:
    """The tests of every kind."""

    async def test_the_others_hear_what_one_says_in_its_order(self, service: ChatService) -> None:
        async with AsyncExitStack() as stack:
            ann = await stack.enter_async_context(service.joined("ann"))
            bob = await stack.enter_async_context(service.joined("bob"))
            cas = await stack.enter_async_context(service.joined("cas"))
            at_ann = await stack.enter_async_context(hearing(ann))
            at_bob = await stack.enter_async_context(hearing(bob))
            at_cas = await stack.enter_async_context(hearing(cas))
            room = await ann.join(service.room)
            ids = [await ann.say(room, f"number {n}") for n in range(5)]
            said = [f"number {n}" for n in range(5)]
            await at_bob.until(*said)
            await at_cas.until(*said)
            assert len(set(ids)) == 5
            assert {each.room for each in at_bob.heard} == {await bob.join(service.room)}
            assert {each.sender for each in at_bob.heard} == {ann.me}
            assert {each.direct for each in at_bob.heard} == {False}
            assert len({each.id for each in at_bob.heard}) == 5

            await bob.say(room, "hello to both")
            await at_ann.until("hello to both")
            await at_cas.until("hello to both")
            assert "hello to both" not in at_bob.texts
            assert at_ann.texts == ["hello to both"], "a channel never hears itself"

    async def test_a_text_of_several_lines_arrives_unchanged(self, service: ChatService) -> None:
        async with service.joined("ann") as ann, service.joined("bob") as bob, hearing(bob) as ear:
            await ann.say(await ann.join(service.room), SAID)
            if ann.limits.multiline:
                await ear.until(SAID)
            else:
                await ear.until(*filter(None, SAID.split("\n")))

    async def test_the_longest_text_arrives_and_a_longer_one_is_refused(
        self, service: ChatService
    ) -> None:
        async with service.joined("ann") as ann, service.joined("bob") as bob, hearing(bob) as ear:
            room = await ann.join(service.room)
            end = "\n" if ann.limits.multiline else " "
            text = "[A2A:result task=t-1]" + f'{end}ä 漢 "x" 🏯' * ann.limits.text
            while ann.limits.size(text) > ann.limits.text:
                text = text[: -max(1, (ann.limits.size(text) - ann.limits.text) // 4)]
            text = text.rstrip()
            with pytest.raises(TooLarge):
                await ann.say(room, text + "y" * (ann.limits.text - ann.limits.size(text) + 1))
            await ann.say(room, text)
            await ear.until(text)

    async def test_a_file_arrives_as_it_was_sent(self, service: ChatService) -> None:
        async with service.joined("ann") as ann, service.joined("bob") as bob, hearing(bob) as ear:
            room = await ann.join(service.room)
            body = bytes(range(256)) * 300
            if not ann.limits.files:
                with pytest.raises(Unsupported):
                    await ann.send_file(room, "plan.bin", "application/octet-stream", body)
                return
            await ann.send_file(room, "旅 plan.bin", "application/octet-stream", body)
            await until(lambda: any(each.files for each in ear.heard))
            (file,) = next(each.files for each in ear.heard if each.files)
            assert (file.name, file.media_type) == ("旅 plan.bin", "application/octet-stream")
            assert file.size in (None, len(body))
            assert await bob.fetch_file(file, len(body)) == body
            with pytest.raises(TooLarge):
                await bob.fetch_file(file, len(body) - 1)

    async def test_a_file_that_is_too_large_is_not_sent(self, service: ChatService) -> None:
        async with service.joined("ann") as ann:
            if ann.limits.files:
                with pytest.raises(TooLarge):
                    await ann.send_file(
                        *(await ann.join(service.room), "big", "text/plain"),
                        b"x" * (ann.limits.file_size + 1),
                    )

    async def test_nothing_that_was_said_before_the_first_start_is_heard(
        self, service: ChatService
    ) -> None:
        async with (
            service.joined("ann") as ann,
            service.joined("cas") as cas,
            hearing(cas) as at_cas,
        ):
            room = await ann.join(service.room)
            async with service.joined("bob"):
                pass  # an account of that name exists, and is in the room
            await ann.say(room, "before")
            await at_cas.until("before")
            async with service.joined("bob") as bob, hearing(bob) as ear:
                await ann.say(room, "after")
                await ear.until("after")
                assert ear.texts == ["after"], ear.heard

    async def test_what_was_said_meanwhile_is_heard_after_a_restart_and_nothing_twice(
        self, service: ChatService
    ) -> None:
        if not service.keeps:
            pytest.skip("this server keeps nothing")
        cursor = MemoryCursor()
        async with service.joined("ann") as ann:
            room = await ann.join(service.room)
            async with service.joined("bob", cursor) as bob, hearing(bob) as ear:
                await ann.say(room, "one")
                await ann.say(room, "two")
                await ear.until("one", "two")
            await ann.say(room, "three")
            await ann.say(room, "four")
            async with service.joined("bob", cursor) as bob, hearing(bob) as ear:
                await ear.until("four")
                await ann.say(room, "five")
                await ear.until("five")
                assert ear.texts == ["three", "four", "five"]

    async def test_a_message_that_was_not_handled_is_heard_again(
        self, service: ChatService
    ) -> None:
        if not service.keeps:
            pytest.skip("this server keeps nothing")
        cursor = MemoryCursor()
        async with service.joined("ann") as ann:
            room = await ann.join(service.room)
            async with service.joined("bob", cursor) as bob:
                await ann.say(room, "one")
                await ann.say(room, "two")
                first = await heard_next(bob)
                assert first.text == "one"
            async with service.joined("bob", cursor) as bob, hearing(bob) as ear:
                await ear.until("one", "two")
                assert ear.heard[0].id == first.id

    async def test_a_message_with_the_same_key_is_sent_once(self, service: ChatService) -> None:
        if not service.keyed:
            pytest.skip("this server recognises no message")
        async with service.joined("ann") as ann, service.joined("bob") as bob, hearing(bob) as ear:
            room = await ann.join(service.room)
            first = await ann.say(room, "once", key="task-1:7")
            assert await ann.say(room, "once", key="task-1:7") == first
            await ann.say(room, "end")
            await ear.until("end")
            assert ear.texts == ["once", "end"]

    async def test_a_reply_says_what_it_replies_to_and_addresses_its_author(
        self, service: ChatService
    ) -> None:
        async with (
            service.joined("ann") as ann,
            service.joined("bob") as bob,
            hearing(ann) as at_ann,
            hearing(bob) as at_bob,
        ):
            room = await ann.join(service.room)
            asked = await ann.say(room, "Which city?")
            await at_bob.until("Which city?")
            await bob.say(room, "Kyoto", reply_to=at_bob.heard[-1].id)
            await at_ann.until("Kyoto")
            if service.marks_replies:
                assert at_ann.heard[-1].reply_to == asked
                assert at_ann.heard[-1].mentioned

    async def test_an_unknown_room_is_refused_with_words(self, service: ChatService) -> None:
        async with service.joined("ann") as ann:
            with pytest.raises(PeerRefused) as refused:
                await ann.say(self.elsewhere, "is anybody here?")
            assert refused.value.message

    elsewhere = "nowhere"
    """A room in which nobody is."""

    async def test_hearing_ends_when_the_channel_is_closed(self, service: ChatService) -> None:
        async with service.joined("ann") as ann:
            ear = Ear(ann)
            async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as group:
                group.create_task(ear.run())
                await turns()
                await ann.close()
            await ann.close()

    async def test_the_conversation_goes_on_after_the_connections_broke(
        self, service: ChatService
    ) -> None:
        async with (
            service.joined("ann") as ann,
            service.joined("bob") as bob,
            hearing(ann) as at_ann,
            hearing(bob) as at_bob,
        ):
            room = await ann.join(service.room)
            await ann.say(room, "before")
            await at_bob.until("before")
            await service.cut()
            async with asyncio.timeout(LIMIT):
                await said_until_heard(ann, room, "after", at_bob)
                await said_until_heard(bob, room, "here again", at_ann)
