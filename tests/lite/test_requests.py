"""An agent in a room of two: messages become tasks, and tasks are told as messages."""

from __future__ import annotations

import pytest

from lite.room import living, member


async def test_a_task_is_acknowledged_and_its_result_is_told() -> None:
    async with living() as hub, member(hub, "anna", person=False) as anna:
        await anna.say("[A2A:task id=t1]\nhello")
        result = await anna.hears("result")
        assert (result.task, result.params["state"]) == ("t1", "completed")
        assert result.body == "HELLO"
        assert [each.type for each in anna.markers] == ["ack", "result"]


async def test_a_skill_is_chosen_by_its_id_and_an_unknown_one_is_rejected() -> None:
    async with living() as hub, member(hub, "anna") as anna:
        await anna.say("[A2A:task id=t1 skill=shout]\nhello")
        assert (await anna.hears("result", task="t1")).body == "hello!!!"
        await anna.say("[A2A:task id=t2 skill=dance]\nhello")
        refused = await anna.hears_state("rejected", "t2")
        assert "dance" in refused.body


async def test_discover_is_answered_with_a_card() -> None:
    async with living() as hub, member(hub, "anna") as anna:
        await anna.say("[A2A:discover]")
        card = await anna.hears("card")
        assert '"protocol":"a2a-lite/1.0"' in card.body
        assert '"maxConcurrentTasks":8' in card.body


async def test_a_question_is_answered_by_the_same_id() -> None:
    async with living() as hub, member(hub, "anna", person=False) as anna:
        await anna.say("[A2A:task id=t1]\nask")
        question = await anna.hears_state("input-required", "t1")
        assert question.body == "Which city?"
        await anna.say("[A2A:task id=t1]\nKyoto")
        assert (await anna.hears("result")).body == "You said Kyoto."
        assert len(anna.of_type("ack")) == 1


async def test_a_question_is_answered_by_a_plain_reply_in_a_room_of_two() -> None:
    async with living() as hub, member(hub, "anna", person=False) as anna:
        await anna.say("[A2A:task id=t1]\nask")
        await anna.hears_state("input-required", "t1")
        await anna.say("Kyoto")
        assert (await anna.hears("result", task="t1")).body == "You said Kyoto."


async def test_progress_and_what_the_agent_says_are_told() -> None:
    async with living() as hub, member(hub, "anna") as anna:
        await anna.say("[A2A:task id=t1]\nprogress")
        await anna.hears("result")
        told = [(each.params.get("progress"), each.body) for each in anna.of_type("status")]
        assert told == [("40%", ""), (None, "Halfway.")]
        assert anna.of_type("status")[0].params["eta"] == "3m"


async def test_a_failure_is_told_with_its_reason() -> None:
    async with living() as hub, member(hub, "anna") as anna:
        await anna.say("[A2A:task id=t1]\nfail")
        assert (await anna.hears_state("failed", "t1")).body == "It broke."


async def test_a_sender_is_a_principal_of_its_own() -> None:
    async with living() as hub, member(hub, "anna") as anna:
        await anna.say("[A2A:task id=t1]\nwho")
        assert (await anna.hears("result")).body == "lite:here:anna"


async def test_the_text_of_an_agent_is_never_a_marker() -> None:
    async with living() as hub, member(hub, "anna") as anna:
        await anna.say("marker")
        told = await anna.hears_text("I am only text.")
        assert anna.markers == []
        assert told.text.startswith("[ A2A:cancel")


async def test_files_are_carried_both_ways() -> None:
    async with living() as hub, member(hub, "anna") as anna:
        await anna.post("minutes.md", b"hello")
        await anna.say("[A2A:task id=t1]\nfiles\n[附件: minutes.md]")
        result = await anna.hears("result")
        assert result.attachments == ("minutes.md",)
        assert result.params["artifacts"] == "minutes.md"
        assert await anna.fetch("minutes.md") == b"HELLO"


async def test_a_file_that_comes_after_its_message_is_waited_for() -> None:
    async with living() as hub, member(hub, "anna") as anna:
        await anna.say("[A2A:task id=t1]\nfiles\n[附件: minutes.md]")
        await anna.post("minutes.md", b"later")
        await anna.hears("result")
        assert await anna.fetch("minutes.md") == b"LATER"


async def test_a_file_above_the_limit_of_the_card_is_rejected() -> None:
    async with living(file_size=4) as hub, member(hub, "anna") as anna:
        await anna.post("minutes.md", b"hello")
        await anna.say("[A2A:task id=t1]\nfiles\n[附件: minutes.md]")
        refused = await anna.hears_state("rejected", "t1")
        assert refused.body == "The file minutes.md is larger than 4 bytes."


@pytest.mark.slow  # takes three seconds
async def test_a_task_above_the_limit_of_the_card_is_rejected() -> None:
    async with living(tasks=1) as hub, member(hub, "anna") as anna:
        await anna.say("[A2A:task id=t1]\nwait")
        await anna.hears_state("working", "t1")
        await anna.say("[A2A:task id=t2]\nhello")
        assert "1 tasks" in (await anna.hears_state("rejected", "t2")).body
