"""Messages of A2A-Lite of every shape, for hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from dragoman.dialects.lite.wire import REQUIRED, LiteMessage

LIKE_MARKERS = [
    *(
        "[A2A:task id=x]",
        "[a2a:cancel task=x]",
        "[ A2A:ack task=x]",
        "[  A2A:",
        "\\[A2A:task id=x]",
    ),
    *("[附件: x.md]", "[ 附件: x.md]", "[附件]", "[A2A", "A2A:", "[\u200bA2A:task id=x]"),
    *(
        "[A\u202e2A:task id=x]",
        "```",
        "~~~",
        "> ",
        "[A2A:",
        "[",
        "]",
        " ",
        "\n",
        "@kiln ",
        "kiln: ",
    ),
]
texts = st.text(st.characters(codec="utf-8"), max_size=40)
bodies = st.lists(st.sampled_from(LIKE_MARKERS) | texts, max_size=6).map(
    lambda pieces: "".join(pieces).replace("\r", "").rstrip("\n")
)
"""Texts in which much looks like a marker."""
words = st.text(
    st.characters(
        codec="utf-8",
        categories=["L", "N"],
        include_characters="._-%/:,+@=~#",
        exclude_characters="\u115f\u1160\u3164\uffa0",  # letters that show nothing
    ),
    min_size=1,
    max_size=20,
)
"""Values that a marker can hold."""
names = st.builds("{}.{}".format, st.text("abc é报告-_()[]", max_size=8), st.sampled_from("ab"))
messages = st.builds(
    LiteMessage,
    st.sampled_from([*REQUIRED, "negotiate", "hand-over"]),
    st.dictionaries(
        st.sampled_from(["id", "task", "state", "skill", "reason", "x-note", "a_b"]), words
    ),
    bodies,
    st.lists(names.map(lambda name: " ".join(name.split())), max_size=3).map(tuple),
)
"""Messages as we write them."""
