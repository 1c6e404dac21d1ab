"""The grammar of A2A-Lite: what is read, what is written, and what the reference parser reads."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counts import count
from dialects.lite import reference_parser, strategies
from dragoman.dialects.lite.wire import (
    LONGEST_MARKER,
    REQUIRED,
    LiteMessage,
    escape,
    file_name,
    is_called,
    parse,
    render,
    take_address,
    take_mention,
    unescape,
    value_out,
)

often = settings(max_examples=count(100, 400, 2000))


@given(message=strategies.messages)
@often
def test_what_is_written_is_read(message: LiteMessage) -> None:
    assert parse(render(message)) == message


@given(message=strategies.messages)
@often
def test_the_reference_parser_reads_what_is_written(message: LiteMessage) -> None:
    found = reference_parser.read(render(message))
    assert found is not None
    assert (found.type, found.params) == (message.type, message.params)
    lines = [escape(message.body)] if message.body else []
    assert found.body == "\n".join([*lines, *(f"[附件: {name}]" for name in message.attachments)])


@given(values=st.dictionaries(st.sampled_from(["id", "reason", "eta"]), st.text(max_size=300)))
@often
def test_whatever_a_value_holds_the_marker_stays_readable(values: dict[str, str]) -> None:
    text = render(LiteMessage("task", values, "Body."))
    written = {key: value_out(value) for key, value in values.items() if value_out(value)}
    assert parse(text) == LiteMessage("task", written, "Body.")
    assert reference_parser.read(text) == ("task", written, "Body.")


@given(text=st.text() | strategies.bodies)
@often
def test_anything_can_be_read(text: str) -> None:
    found = parse(text, mentions=("kiln", "", "[A2A"))
    assert found is None or (found.type.isascii() and found.type == found.type.lower() != "")


@given(text=strategies.bodies | st.text())
@often
def test_an_escaped_text_is_no_marker_wherever_it_is_cut(text: str) -> None:
    safe = escape(text)
    assert unescape(safe) == text
    for at in range(len(safe)):
        assert parse(safe[at:]) is None
        assert reference_parser.read(safe[at:]) is None


CASES = {
    "[A2A:discover]\nWhat can you do?": LiteMessage("discover", {}, "What can you do?"),
    "[A2A:status task=t1 state=working progress=50% eta=10m]": LiteMessage(
        "status", {"task": "t1", "state": "working", "progress": "50%", "eta": "10m"}
    ),
    "  \n[A2A:ack task=t]": LiteMessage("ack", {"task": "t"}),
    "\ufeff[A2A:ack task=t]": LiteMessage("ack", {"task": "t"}),
    "@kiln [A2A:ack task=t]": LiteMessage("ack", {"task": "t"}, mention="kiln"),
    "@kiln:loop.test: [A2A:ack task=t]": LiteMessage(
        "ack", {"task": "t"}, mention="kiln:loop.test"
    ),
    "<@!42> [A2A:ack task=t]": LiteMessage("ack", {"task": "t"}, mention="42"),
    "Kiln: [A2A:ack task=t]": LiteMessage("ack", {"task": "t"}, mention="kiln"),
    "kiln,[A2A:ack task=t]": LiteMessage("ack", {"task": "t"}, mention="kiln"),
    "小炉：[A2A:ack task=t]": None,
    "[a2a:task id=x]": LiteMessage("task", {"id": "x"}),
    "[A2A:Task ID=x]": LiteMessage("task", {"id": "x"}),
    "[A2A: task id=x]": LiteMessage("task", {"id": "x"}),
    "[A2A:status task=t state=working] nearly there\nmore": LiteMessage(
        "status", {"task": "t", "state": "working"}, "nearly there\nmore"
    ),
    "[A2A:status task=t state=working] see [1] and x=y]": LiteMessage(
        "status", {"task": "t", "state": "working"}, "see [1] and x=y]"
    ),
    "[A2A:task id=x]\r\nHello\r\nthere": LiteMessage("task", {"id": "x"}, "Hello\nthere"),
    '[A2A:cancel task=t reason="user ] \\"changed\\" mind"]': LiteMessage(
        "cancel", {"task": "t", "reason": 'user ] "changed" mind'}
    ),
    "[A2A:cancel task=t reason=user changed mind]": LiteMessage(
        "cancel", {"task": "t", "reason": "user"}
    ),
    "[A2A:task id=a=b]": LiteMessage("task", {"id": "a=b"}),
    "[A2A:task id=a]b]": LiteMessage("task", {"id": "a]b"}),
    "[A2A:task id=a]b c]": LiteMessage("task", {"id": "a"}, "b c]"),
    "[A2A:task id=a id=b]": LiteMessage("task", {"id": "b"}),
    "[A2A:task id= skill=x]": LiteMessage("task", {"skill": "x"}),
    "\\[A2A:task id=a\\_b\\]\nHi": LiteMessage("task", {"id": "a_b"}, "Hi"),
    "[A2A:]": None,
    "[A2A:task": None,
    "[A2A task id=x]": None,
    "[ A2A:task id=x]": None,
    "Hello [A2A:task id=x]": None,
    "[A2A:task id=x]\n[A2A:cancel task=y]": LiteMessage("task", {"id": "x"}, "[A2A:cancel task=y]"),
    "[A2A:negotiate price=3]\nWell?": LiteMessage("negotiate", {"price": "3"}, "Well?"),
    "[A2A:task x1=3]": LiteMessage("task", {"x1": "3"}),
    "[A2A:task id=x]\nRead\n[附件: a b.md]\n[附件：c.md]\nthis": LiteMessage(
        "task", {"id": "x"}, "Read\nthis", ("a b.md", "c.md")
    ),
    "[A2A:task id=x]\n```\n[附件: a.md]\n```\n> [附件: b.md]": LiteMessage(
        "task", {"id": "x"}, "```\n[附件: a.md]\n```\n> [附件: b.md]"
    ),
    "[A2A:result task=t]\n[附件: /etc/passwd]\n[附件: ..]": LiteMessage(
        "result", {"task": "t"}, "[附件: ..]", ("passwd",)
    ),
    "[A2A:ack task=" + "x" * LONGEST_MARKER + "]": None,
}


@pytest.mark.parametrize("text", CASES, ids=lambda text: repr(text[:50]))
def test_real_messages_are_read_as_decided(text: str) -> None:
    assert parse(text, mentions=("kiln",)) == CASES[text]


def test_the_seven_types_know_their_required_parameters() -> None:
    assert REQUIRED == {
        "discover": (),
        "card": (),
        "task": ("id",),
        "status": ("task", "state"),
        "result": ("task", "state"),
        "cancel": ("task",),
        "ack": ("task",),
    }
    assert LiteMessage("status", {"task": "t"}).missing == ("state",)
    assert LiteMessage("status", {"task": "t"}).task == "t"
    assert LiteMessage("task", {"id": "t"}).task == "t"
    assert not LiteMessage("task", {"id": "t"}).missing
    assert not LiteMessage("negotiate").missing
    assert not LiteMessage("negotiate").known
    assert LiteMessage("ack").known


def test_a_name_that_the_reference_parser_loses_is_not_written() -> None:
    for message in (LiteMessage("Task"), LiteMessage("task", {"x1": "3"}), LiteMessage("")):
        with pytest.raises(ValueError, match="lower case"):
            render(message)


def test_values_become_words() -> None:
    assert value_out("user changed [his] mind!") == "user-changed-his-mind!"
    assert value_out("报告 一.md") == "报告-一.md"
    assert render(LiteMessage("ack", {"task": "t", "reason": ' "" '})) == "[A2A:ack task=t]"


def test_an_attachment_never_names_a_folder() -> None:
    assert file_name("/home/me/minutes.md") == "minutes.md"
    assert file_name("C:\\Users\\me\\minutes.md") == "minutes.md"
    assert file_name("..") == file_name("a/") == file_name("") == ""
    assert file_name("evil\u202egpj.exe") == "evilgpj.exe"
    assert render(LiteMessage("task", {"id": "x"}, "", ("/tmp/a\nb.md", "/"))) == (
        "[A2A:task id=x]\n[附件: a b.md]"
    )


def test_a_person_mentions_an_agent_in_the_ways_of_the_channels() -> None:
    assert take_mention("@kiln hello") == ("kiln", "hello")
    assert take_mention("@kiln") == ("kiln", "")
    assert take_mention("<@42>, hello") == ("42", "hello")
    assert take_mention("KILN: hello", ("Kiln",)) == ("Kiln", "hello")
    assert take_mention("kiln: hello") == ("", "kiln: hello")
    assert take_mention("me@kiln hello", ("kiln",)) == ("", "me@kiln hello")


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("@kiln a pot", ("kiln", "a pot")),
        ("@kiln:   indented", ("kiln", "  indented")),
        ("Kiln, a pot", ("Kiln", "a pot")),
        ("<@42> a pot", ("42", "a pot")),
        ("@kiln\n\ntext", ("kiln", "\ntext")),
        ("@kiln", ("kiln", "")),
        ("@bob a pot", ("", "@bob a pot")),
        ("a pot, @kiln", ("", "a pot, @kiln")),
    ],
)
def test_a_body_may_begin_with_the_one_that_it_is_for(body: str, found: tuple[str, str]) -> None:
    name, rest = take_address(body, ("kiln", "<@42>"))
    assert (name.casefold(), rest) == (found[0].casefold(), found[1])


def test_a_name_is_the_same_in_every_kind_of_mention() -> None:
    assert all(is_called(name, ("<@!42>", "Kiln")) for name in ("42", "<@42>", "@kiln", "KILN"))
    assert not is_called("kiln2", ("kiln",))
