"""People in a room: they use agents without markers, and learn why a marker was refused."""

from __future__ import annotations

from lite.room import living, member
from waiting import until


async def test_a_person_asks_and_is_answered_without_any_marker() -> None:
    async with living() as hub, member(hub, "anna") as anna:
        await anna.say("hello")
        await anna.hears_text("HELLO")
        assert anna.texts == ["HELLO"]


async def test_in_a_group_an_agent_is_mentioned() -> None:
    async with living() as hub, member(hub, "anna") as anna, member(hub, "bob"):
        await anna.say("not for the agent")
        await anna.say("@desk one")
        await anna.hears_text("ONE")
        await anna.say("desk: two")
        await anna.hears_text("TWO")
        assert anna.texts == ["ONE", "TWO"]


async def test_a_person_answers_a_question() -> None:
    async with living() as hub, member(hub, "anna") as anna:
        await anna.say("ask")
        await anna.hears_text("Which city?")
        await anna.say("Kyoto")
        await anna.hears_text("You said Kyoto.")


async def test_in_a_group_a_reply_to_the_question_answers_it() -> None:
    async with living() as hub, member(hub, "anna") as anna, member(hub, "bob") as bob:
        await anna.say("@desk ask")
        question = await anna.hears_text("Which city?")
        await bob.say("Osaka", reply_to=question.id)  # was not asked
        await anna.say("Kyoto", reply_to=question.id)
        await anna.hears_text("You said Kyoto.")


async def test_a_person_approves_and_denies() -> None:
    async with living() as hub, member(hub, "anna") as anna:
        await anna.say("approve")
        await anna.hears_text("Book it?\n(yes or no)")
        await anna.say("approve")
        await anna.hears_text("Booked.")
        await anna.say("approve")
        await until(lambda: sum("Book it?" in each for each in anna.texts) == 2)
        await anna.say("deny")
        await anna.hears_text("Left alone.")


async def test_a_person_says_cancel() -> None:
    async with living() as hub, member(hub, "anna") as anna:
        await anna.say("cancel")
        await anna.hears_text("There is nothing to cancel.")
        await anna.say("wait")
        await anna.hears_text("Waiting.")
        await anna.say("Cancel!")
        await anna.hears_text("Canceled.")


async def test_a_person_posts_a_file_and_then_says_what_to_do_with_it() -> None:
    async with living() as hub, member(hub, "anna") as anna:
        await anna.post("a.txt", b"hello")
        await anna.say("files")
        await until(lambda: any(each.files for each in anna.heard))
        assert await anna.fetch("a.txt") == b"HELLO"


async def test_a_person_learns_why_a_marker_was_refused() -> None:
    async with living() as hub, member(hub, "anna") as anna:
        await anna.say("[A2A:taks id=t1]\nhello")
        await anna.hears_text("I do not know messages of the type taks.")
        await anna.say("[A2A:cancel]")
        await anna.hears_text("A message of the type cancel needs task.")
        await anna.say("[A2A:task]\nhello")
        await anna.hears_text("Your marker has no id; I read it as plain text.")
        await anna.hears_text("HELLO")
        await anna.say("[A2A:cancel task=t9]")
        await anna.hears_text("There is no open task t9 of yours here.")


async def test_a_sender_that_is_not_allowed_is_told_so() -> None:
    async with living(allow=("anna",)) as hub, member(hub, "bob") as bob:
        await bob.say("hello")
        await bob.hears_text("You may not use this agent here.")
        await bob.say("[A2A:task id=t1]\nhello")
        assert "You may not" in (await bob.hears_state("rejected", "t1")).body
