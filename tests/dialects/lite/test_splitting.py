"""Long messages of A2A-Lite: pieces that fit a channel, and the message again."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counts import count
from dialects.lite import reference_parser, strategies
from dragoman.core.errors import TooLarge
from dragoman.dialects.lite import splitting
from dragoman.dialects.lite.splitting import Joiner, TextLimit, split, split_text
from dragoman.dialects.lite.wire import LiteMessage, escape, parse
from dragoman.net.chat import ChannelLimits

often = settings(max_examples=count(60, 250, 1000))
long_bodies = st.lists(
    st.sampled_from([*strategies.LIKE_MARKERS, "x" * 150, "\\", "\\\\", "长" * 70, "👩‍🚀", "word "])
    | strategies.texts,
    min_size=1,
    max_size=40,
).map(lambda pieces: "".join(pieces).replace("\r", "").rstrip("\n"))
limits = st.builds(
    TextLimit,
    st.integers(150, 500),
    st.sampled_from(["bytes", "characters", "utf-16"]),
    st.just(True),
)
lines = st.builds(TextLimit, st.integers(150, 450), st.just("bytes"), st.just(False))
names = st.lists(st.sampled_from(["a.md", "b c.png", "报告.pdf"]), max_size=3).map(tuple)


def told(body: str, attachments: tuple[str, ...] = ()) -> LiteMessage:
    return LiteMessage("result", {"task": "t-1", "state": "completed"}, body, attachments)


def heard(texts: list[str], joiner: Joiner | None = None) -> list[LiteMessage | str]:
    joiner = joiner or Joiner()
    # Channels remove whitespace at both ends of a message.
    return [found for text in texts for found in hear(joiner, "r", "kiln", text.strip(), 0)]


def hear(joiner: Joiner, *said: Any) -> list[LiteMessage | str]:
    return [found.said for found in joiner.hear(*said)]


@given(body=long_bodies, attachments=names, limit=limits)
@often
def test_a_split_message_is_joined_again(
    body: str, attachments: tuple[str, ...], limit: TextLimit
) -> None:
    message = told(body.strip(), attachments)
    texts = split(message, limit)
    assert all(limit.fits(text) for text in texts)
    assert heard(texts) == [message]


def test_a_limit_counts_as_channels_do() -> None:
    text = "ä漢🏯"
    for unit, size in (("bytes", 9), ("characters", 3), ("utf-16", 4)):
        channel = ChannelLimits(text=size, unit=unit)
        assert channel.size(text) == size
        assert TextLimit(size, unit).fits(text)
        assert not TextLimit(size - 1, unit).fits(text)


@given(body=long_bodies, attachments=names, limit=limits, seed=st.integers(0, 99))
@settings(max_examples=count(30, 100, 1000))
def test_parts_may_come_in_any_order(
    body: str, attachments: tuple[str, ...], limit: TextLimit, seed: int
) -> None:
    texts = split(told(body.strip(), attachments), limit)
    random.Random(seed).shuffle(texts)
    assert heard(texts) == [told(body.strip(), attachments)]


@given(body=long_bodies, attachments=names, limit=lines)
@often
def test_a_message_is_joined_again_where_every_line_is_a_message(
    body: str, attachments: tuple[str, ...], limit: TextLimit
) -> None:
    body = "\n".join(line if line.strip() else "" for line in body.split("\n")).strip("\n")
    message = told(body, attachments)
    texts = split(message, limit)
    assert all(limit.fits(text) and text for text in texts)
    joiner = Joiner()
    assert [m for text in texts for m in hear(joiner, "r", "kiln", text, 0)] == [message]
    for text in texts[1:]:
        assert parse(text) is None
        assert reference_parser.read(text) is None


@given(body=long_bodies, limit=limits)
@often
def test_the_reference_parser_reads_every_part(body: str, limit: TextLimit) -> None:
    for text in split(told(body.strip()), limit):
        found = reference_parser.read(text)
        assert found is not None
        assert (found.type, found.params["task"]) == ("result", "t-1")


@given(text=long_bodies, limit=limits | lines)
@often
def test_pieces_of_a_plain_text_fit_and_are_no_markers(text: str, limit: TextLimit) -> None:
    pieces = split_text(text, limit)
    assert all(limit.fits(piece) and piece.strip() and parse(piece) is None for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(escape(text).split())


def test_a_short_message_is_one_text() -> None:
    assert split(told("Done."), TextLimit(100)) == ["[A2A:result task=t-1 state=completed]\nDone."]
    assert split(told(""), TextLimit(100, multiline=False)) == [
        "[A2A:result task=t-1 state=completed lines=0]"
    ]


def test_a_long_message_is_cut_at_the_end_of_lines_and_words() -> None:
    body = "First line of it.\nSecond line of it, which is rather long."
    assert split(told(body), TextLimit(93)) == [
        "[A2A:result task=t-1 state=completed part=1/3]\nFirst line of it.",
        "[A2A:result task=t-1 state=completed part=2/3 cut=line]\nSecond line of it, which is",
        "[A2A:result task=t-1 state=completed part=3/3 cut=space]\nrather long.",
    ]


def test_lines_are_counted_and_long_ones_continued() -> None:
    limit = TextLimit(60, "bytes", multiline=False)
    body = "A line that is longer than sixty bytes continues on the next one.\n\nEnd."
    assert split(told(body), limit) == [
        "[A2A:result task=t-1 state=completed lines=4]",
        "A line that is longer than sixty bytes continues on the\\",
        " next one.",
        " ",
        "End.",
    ]


def test_parts_of_others_are_never_joined() -> None:
    first, second, *_ = split(told("word " * 100), TextLimit(200))
    joiner = Joiner()
    assert hear(joiner, "r", "kiln", first, 0) == []
    assert hear(joiner, "r", "mallory", second, 0) == []
    assert hear(joiner, "other", "kiln", second, 0) == []


def test_a_body_that_never_ends_does_not_hold_back_the_next_message() -> None:
    joiner = Joiner()
    assert hear(joiner, "r", "kiln", "[A2A:ack task=t lines=3]", 0) == []
    assert hear(joiner, "r", "kiln", "only one line", 0) == []
    assert hear(joiner, "r", "ann", "hello", 0) == ["hello"]
    assert hear(joiner, "r", "kiln", "[A2A:discover]", 0) == [
        LiteMessage("ack", {"task": "t"}, "only one line", damaged=True),
        LiteMessage("discover"),
    ]


def test_a_repeated_part_begins_anew_and_what_waits_too_long_is_forgotten() -> None:
    texts = split(told("word " * 100), TextLimit(200))
    joiner = Joiner()
    assert heard([texts[0], *texts], joiner) == [told(("word " * 100).strip())]
    assert hear(joiner, "r", "kiln", texts[0], 0) == []
    late = splitting.EXPIRES + 1
    assert [m for text in texts[1:] for m in hear(joiner, "r", "kiln", text, late)] == []


def test_what_waits_is_bounded() -> None:
    joiner = Joiner(most_text=300)
    long = "[A2A:ack task=t part=1/3]\n" + "x" * 301
    (found,) = hear(joiner, "r", "kiln", long, 0)
    assert isinstance(found, LiteMessage)
    assert found.damaged  # it is not obeyed: the rest is missing
    for number in range(splitting.MOST_OPEN + 5):
        assert hear(joiner, "r", f"kiln-{number}", "[A2A:ack task=t lines=1]", 0) == []
    assert hear(joiner, "r", "kiln-0", "y", 0) == ["y"]  # the oldest, of senders with one each
    last = f"kiln-{splitting.MOST_OPEN}"
    (found,) = hear(joiner, "r", last, "y" * 301, 0)
    assert found == LiteMessage("ack", {"task": "t"}, damaged=True)
    with pytest.raises(TooLarge):
        split(told("x" * 100_000), TextLimit(100))
    with pytest.raises(TooLarge):
        split(told("x\n" * 1000), TextLimit(100, multiline=False))


@pytest.mark.parametrize("part", ["0/2", "3/2", "x/2", "1", "1/1000", "-1/2", "٣/٤", ""])
def test_a_part_that_makes_no_sense_is_a_message(part: str) -> None:
    (found,) = hear(Joiner(), "r", "kiln", f"[A2A:ack task=t part={part}]\nHi", 0)
    assert isinstance(found, LiteMessage)
    assert found.body == "Hi"


def test_optional_parameters_that_do_not_fit_are_left_out() -> None:
    params = {"task": "t", "state": "completed", "artifacts": "a" * 200}
    texts = split(LiteMessage("result", params, "word " * 50), TextLimit(120))
    assert all(len(text) <= 120 and "artifacts" not in text for text in texts)
    (found,) = heard(texts)
    assert found == LiteMessage(
        "result", {"task": "t", "state": "completed"}, ("word " * 50).strip()
    )


def test_a_sender_that_leaves_much_unfinished_does_not_crowd_out_others() -> None:
    joiner = Joiner()
    first, *rest = split(told(("word " * 100).strip()), TextLimit(200))
    assert hear(joiner, "r", "kiln", first, 0) == []
    for number in range(2_000):
        hear(joiner, f"r{number % 7}", "mallory", f"[A2A:ack task=m{number} part=1/9]\nx", 0)
    (whole,) = [found for text in rest for found in hear(joiner, "r", "kiln", text, 0)]
    assert whole == told(("word " * 100).strip())


def test_the_memory_of_one_sender_is_bounded() -> None:
    joiner = Joiner(most_text=10_000)
    for number in range(8):
        hear(joiner, "r", "mallory", f"[A2A:ack task=m{number} part=1/9]\n{'x' * 6_000}", 0)
    assert kept(joiner) <= 10_000
    for number in range(1, 999):  # parts of which only the markers are long
        hear(joiner, "r", "ann", f"[A2A:ack task=t part={number}/999 x={'x' * 3_000}]\n", 0)
    assert kept(joiner) <= 20_000
    lines = Joiner(most_text=10_000, lines=True)
    hear(lines, "r", "mallory", "[A2A:result task=t state=completed]", 0)
    for _ in range(20_000):
        hear(lines, "r", "mallory", " ", 0)
    (found,) = lines.take_quiet(10_000)
    assert isinstance(found.said, LiteMessage)
    assert found.said.damaged
    assert len(found.said.body) < 1_000


def kept(joiner: Joiner) -> int:
    """The characters of everything that waits, markers included."""
    return sum(
        sum(len(f"{piece.params}{piece.body}") for piece in each.pieces.values())
        for each in joiner._open.values()
        if isinstance(each, splitting._Parts)
    )


def test_lines_behind_a_marker_of_a_foreign_agent_are_its_body() -> None:
    joiner = Joiner(lines=True)
    assert hear(joiner, "r", "kiln", "[A2A:result task=t state=completed]", 0) == []
    assert hear(joiner, "r", "kiln", "First line.", 1_000) == []
    assert hear(joiner, "r", "ann", "hello", 1_500) == ["hello"]
    assert hear(joiner, "r", "kiln", "Second line.", 2_000) == []
    assert joiner.take_quiet(4_000) == []
    assert joiner.due == 2_000 + splitting.BODY_QUIET_MILLISECONDS
    (found,) = joiner.take_quiet(joiner.due)
    body = "First line.\nSecond line."
    assert found.said == LiteMessage("result", {"task": "t", "state": "completed"}, body)
    assert hear(joiner, "r", "kiln", "Later.", 20_000) == ["Later."]


def test_a_message_that_needs_no_body_is_obeyed_at_once_and_its_lines_are_no_texts() -> None:
    joiner = Joiner(lines=True)
    assert hear(joiner, "r", "kiln", "[A2A:ack task=t]", 0) == [LiteMessage("ack", {"task": "t"})]
    assert hear(joiner, "r", "kiln", "Got it.", 100) == []
    assert joiner.take_quiet(10_000) == []


@pytest.mark.slow  # splits megabytes
@pytest.mark.parametrize(
    "limit", [TextLimit(400, "bytes", multiline=False), TextLimit(2000, "utf-16")]
)
@pytest.mark.parametrize("unit", ["word ", "[", "[ ", "[A2A:", "\\", "x", "长", "[\u200b"])
def test_splitting_takes_time_in_proportion_to_the_text(unit: str, limit: TextLimit) -> None:
    def seconds(size: int) -> float:
        message, began = told(unit * (size // len(unit))), time.process_time()
        split(message, limit, 1_000_000)
        split_text(message.body, limit, 1_000_000)
        return time.process_time() - began

    seconds(20_000)
    small, large = min(seconds(100_000) for _ in range(3)), seconds(800_000)
    assert large < 8 * small * 4 + 0.2
