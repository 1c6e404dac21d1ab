r"""The grammar of A2A-Lite: a chat message whose first line is a marker.

    [A2A:task id=kiln-7f3a skill=summarise]
    Please shorten the attached minutes to five lines.
    [附件: minutes.md]

What is written is strict, so that the parser of the reference implementation reads it. What is read
is tolerant (dialects §1.2), with one exception: a marker is obeyed only at the very beginning of a
text. A byte order mark, whitespace, one mention and the `\` of rich text may stand before it, and
nothing else; therefore a marker in a quotation, in a code fence or in the middle of a text is text
about a marker. Its own characters are ASCII, so look-alikes are text too, and one that hides
characters is not obeyed.

The text of agents and people never becomes a marker: `escape` puts a space behind the bracket of
whatever looks like one, anywhere, since a channel may cut a text anywhere. `parse` takes it out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from dragoman.core.shown_text import HIDDEN_CHARACTERS, remove_hidden

DISCOVER, CARD, TASK, STATUS, RESULT, CANCEL, ACK = (
    *("discover", "card", "task", "status", "result", "cancel", "ack"),
)
REQUIRED: dict[str, tuple[str, ...]] = {
    DISCOVER: (),
    CARD: (),
    TASK: ("id",),
    STATUS: ("task", "state"),
    RESULT: ("task", "state"),
    CANCEL: ("task",),
    ACK: ("task",),
}
"""The types of messages, with the parameters that each must have. Others are ignored."""
TO = "to"
"""Our own parameter that names the agent which a message is for; others ignore it."""
LONGEST_MARKER, LONGEST_VALUE = 4096, 256
"""The characters of the longest first line that is read as a marker, and of the longest value that
is written."""

_KEY = r"[A-Za-z_-][A-Za-z0-9_-]*"
# A bare value does not end with `]`, so that text behind the marker is not taken for a value.
_VALUE = r'"(?:[^"\\]|\\.)*"|[^\s"\]][^\s\]]*(?:\]+[^\s\]]+)*'
_param = re.compile(rf"(?<!\S)({_KEY})=({_VALUE})")
# Greedy: of all brackets that may close the marker, it is the last one.
_marker = re.compile(
    rf"\[[Aa]2[Aa]:[ \t]*([A-Za-z][A-Za-z0-9_-]*)((?:\s+{_KEY}=(?:{_VALUE}))*)\s*\]"
)
# With other words between the parameters, it is the first one. The words are ignored.
_loose_marker = re.compile(r"\[[Aa]2[Aa]:[ \t]*([A-Za-z][A-Za-z0-9_-]*)(?=[\s\]])([^\]]*)\]")
_unescaped = re.compile(r"\\([][\\`*_{}()#+.!=~|>-])")

_mention = re.compile(
    r"<@[!&]?([\w.:-]+)>[:,]?\s*|@(\w[\w.+=/:#-]*?)(?:[:,]?\s+|[:,](?=\\?\[)|[:,]?\Z)"
)

_GAP = f"[{HIDDEN_CHARACTERS}]*"
_LIKENESS = _GAP + _GAP.join(("[Aa]", "2", "[Aa]", ":")) + f"|{_GAP}附{_GAP}件"
_like_marker = re.compile(rf"\[(?= *(?:{_LIKENESS}))")
_escaped_marker = re.compile(rf"\[ (?= *(?:{_LIKENESS}))")

# The spaces around the name are not part of the pattern: with them, a line of many spaces would
# take the cube of its length.
_attachment = re.compile(r"\[附件[:：](.*)\]")
_fence = re.compile(r" {0,3}(`{3,}|~{3,})")
# Quotes and backslashes break the JSON of the reference parser; its shell expands `*` and `?`.
_unsafe_value = re.compile(rf"[\s{HIDDEN_CHARACTERS}\[\]\"'`\\*?]+")
_written_name = re.compile(r"[a-z_-]+")


class LiteMessage(Struct, frozen=True):
    """A message of A2A-Lite."""

    type: str
    """The type, in lower case. It may be one that `REQUIRED` does not know."""
    params: dict[str, str] = {}
    body: str = ""
    attachments: tuple[str, ...] = ()
    """The names of the files that belong to the message, which the channel carries."""
    mention: str = ""
    """The name that stood before the marker, if any. It is never written."""
    damaged: bool = False
    """Whether a part of the body is missing, so that the message must not be obeyed."""

    @property
    def task(self) -> str:
        """The sender's id of the task that the message is about, or an empty text."""
        return self.params.get("id" if self.type == TASK else "task", "")

    @property
    def known(self) -> bool:
        """Whether the type is one of this version."""
        return self.type in REQUIRED

    @property
    def missing(self) -> tuple[str, ...]:
        """The required parameters that the message does not have."""
        return tuple(key for key in REQUIRED.get(self.type, ()) if not self.params.get(key))


def parse(text: str, *, mentions: Iterable[str] = ()) -> LiteMessage | None:
    """Reads a chat message, or returns None for a text without a marker. `mentions` are our names
    in the channel: a text may begin with any `@name` or `<@id>`, and with `name:` or `name,` if it
    is one of these."""
    text = _lines_in(text).removeprefix("\ufeff").lstrip()
    mention, rest = take_mention(text, mentions)
    line, _, body = rest.partition("\n")
    if len(line) > LONGEST_MARKER:
        return None
    found, behind = _marker_in(line)
    if found is None or remove_hidden(found[0]) != found[0]:
        return None
    behind = behind.strip()
    body, attachments = take_attachments(f"{behind}\n{body}" if behind else body)
    params = {key.lower(): _value_in(value) for key, value in _param.findall(found[2])}
    return LiteMessage(found[1].lower(), params, unescape(body), attachments, mention)


def render(message: LiteMessage) -> str:
    """Writes a message. Values become words: what a marker cannot hold is replaced by `-`. Raises
    `ValueError` for a type or a parameter whose name the reference parser does not read."""
    for name in (message.type, *message.params):
        if not _written_name.fullmatch(name):
            raise ValueError(f"{name!r} is not written in lower case.")
    params = ((key, value_out(value)) for key, value in message.params.items())
    marker = " ".join(
        [f"[A2A:{message.type}", *(f"{key}={value}" for key, value in params if value)]
    )
    body = escape(_lines_in(message.body)).rstrip("\n")
    names = (file_name(name) for name in message.attachments)
    lines = [
        f"{marker}]",
        *([body] if body else []),
        *(f"[附件: {name}]" for name in names if name),
    ]
    return "\n".join(lines)


def escape(text: str) -> str:
    """Returns a text in which nothing can be read as a marker or as the name of an attachment."""
    return _like_marker.sub("[ ", text)


def find_likenesses(text: str) -> list[int]:
    """Returns where `escape` adds a character to a text, in order."""
    return [found.start() for found in _like_marker.finditer(text)]


def unescape(text: str) -> str:
    """Returns the text that was escaped."""
    return _escaped_marker.sub("[", text)


def value_out(value: str) -> str:
    """Returns the value of a parameter as a word, which may be empty."""
    word = _unsafe_value.sub("-", value)
    return (word if word == value else word.strip("-"))[:LONGEST_VALUE]


def file_name(name: str) -> str:
    """Returns the name of a file without any folders, or an empty text if there is none."""
    last = re.split(r"[/\\]", remove_hidden(name))[-1]
    last = " ".join(last.split())
    return "" if last.strip(".") == "" else last


def take_mention(text: str, mentions: Iterable[str] = ()) -> tuple[str, str]:
    """Returns the name that is mentioned at the beginning of a text, and the rest of the text. The
    name is empty if nobody is mentioned."""
    if found := _mention.match(text):
        return found[1] or found[2], text[found.end() :]
    for name in mentions:
        begin, end = text[: len(name)], text[len(name) : len(name) + 1]
        if name and end in (":", ",") and begin.casefold() == name.casefold():
            return name, text[len(name) + 1 :].lstrip()
    return "", text


def take_address(body: str, names: Iterable[str]) -> tuple[str, str]:
    """Returns which of these names a body begins with, as in `@kiln Please ...`, and the body
    without it. The name is empty if it is none of them."""
    name, rest = take_mention(body, names)
    if not name or not is_called(name, names):
        return "", body
    # One character separates the name from the text; further ones belong to the text.
    behind = body[: len(body) - len(rest)]
    return name, behind[len(behind.rstrip()) + 1 :] + rest


def is_called(name: str, names: Iterable[str]) -> bool:
    """Returns whether a name is one of these. Its case does not matter, nor the characters that
    make a mention of it (`@kiln`, `<@42>`)."""
    plain = _bare(name)
    return any(plain == _bare(each) for each in names)


def _bare(name: str) -> str:
    return name.lstrip("<@!&").rstrip(">").casefold()


def take_attachments(body: str) -> tuple[str, tuple[str, ...]]:
    """Returns a body without the lines that name attachments, and those names. Lines in a code
    fence are text."""
    kept, names = [], []
    for line, fenced in _fenced_lines(body):
        found = None if fenced else _attachment.fullmatch(line.strip())
        name = file_name(found[1]) if found else ""
        if name:
            names.append(name)
        else:
            kept.append(line)
    return "\n".join(kept).rstrip("\n"), tuple(names)


def _marker_in(line: str) -> tuple[re.Match[str] | None, str]:
    """Returns the marker at the beginning of a line, and the text behind it."""
    if line.startswith("\\["):
        # Rich text that was written as plain text.
        line = _unescaped.sub(r"\1", line)
    found = _marker.match(line) or _loose_marker.match(line)
    return found, line[found.end() :] if found else ""


def _value_in(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value


def _lines_in(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _fenced_lines(body: str) -> Iterator[tuple[str, bool]]:
    """Yields every line, with whether it is in a code fence that is closed later."""
    waiting: list[str] = []
    fence = ""
    for line in body.split("\n"):
        found = _fence.match(line)
        if not fence:
            if found is None:
                yield line, False
                continue
            fence, waiting = found[1], [line]
        elif found and found[1].startswith(fence) and line.strip() == found[1]:
            yield from ((each, True) for each in (*waiting, line))
            fence, waiting = "", []
        else:
            waiting.append(line)
    yield from ((each, False) for each in waiting)
