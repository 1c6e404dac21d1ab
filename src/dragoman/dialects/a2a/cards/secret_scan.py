"""Finds values on a card that look like secrets. A card is public, so such a value prevents the
start of the server (A2A 0.3 §5.4).

Known formats are searched everywhere. Random strings are searched only outside of web addresses,
because hashes are common in the addresses of pages. UUIDs, digests and long names in text are
common too and do not count. What remains, a long run of letters and digits without a pattern, is
hardly ever anything but a key.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from dragoman.core.model import Json

SKIPPED = frozenset(("signatures",))
"""The members of a card that consist of random bytes."""
PIECE, OVERLAP = 1024, 256

_SHAPES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("a private key", r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----"),
        ("an AWS access key", r"\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}\b"),
        ("a GitHub token", r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{22,})"),
        ("a GitLab token", r"\bglpat-[A-Za-z0-9_-]{20,}"),
        ("an API key", r"\b(?:sk|rk|pk)[-_](?:[a-z]+[-_])*[A-Za-z0-9_-]{20,}"),
        ("a Google API key", r"\bAIza[A-Za-z0-9_-]{35}"),
        ("a Slack token", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}"),
        ("a Hugging Face token", r"\bhf_[A-Za-z0-9]{30,}"),
        ("a package registry token", r"\b(?:npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{40,})"),
        ("a JSON Web Token", r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}"),
        ("a password in an address", r"\b[a-z][a-z0-9+.-]*://[^\s/?#:@<{$]*:[^\s/?#@<{$*]+@"),
        ("credentials", r"\b(?:Bearer|Basic) +(?=[^\s]*\d)[A-Za-z0-9._~+/=-]{16,}"),
        (
            "a secret in an address",
            r"[?&](?:access_token|api_?key|token|secret|password|passwd|sig|signature|client_secret)"
            r"=(?=[^&\s]*\d)[^&\s<{$]{8,}",
        ),
        (
            "a password",
            r"(?i)\b(?:password|passwd|pwd|secret|api[ _-]?key|access[ _-]?token)\s*(?:is|[:=])\s*"
            r"[\"'`]?(?=[^\s\"'`]*\d)(?=[^\s\"'`]*[a-z])[^\s\"'`<{$*,.;]{8,}",
        ),
    )
)
_SECRET_NAME = re.compile(
    r"(?i)(?:^|[_-])(?:password|passwd|pwd|secret|api_?key|private_?key|(?:access|auth|refresh|api)"
    r"_?token|client_?secret|credentials?)$"
)
_RUN = re.compile(r"[A-Za-z0-9_+/=-]{28,}")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_LEAST_BITS = 4.2
"""The minimum of Shannon bits per character; random base64 of this length has at least 4.4."""
_LEAST_CHANGES = 0.42
"""The minimum share of characters that are followed by another kind of character (capital, small
letter, digit or sign). In random base64 it is 0.65 (with a deviation of 0.09 at this length), in
names that people choose 0.3."""


def leaks(document: Json, where: str = "") -> Iterator[tuple[str, str]]:
    """Yields the places of values that look like secrets, and the kind of secret."""
    match document:
        case dict():
            for name, value in document.items():
                if not where and name in SKIPPED:
                    continue
                place = f"{where}.{name}" if where else name
                if isinstance(value, str) and _named_secret(name, value):
                    yield place, "a secret, by its name"
                    continue
                yield from leaks(value, place)
        case list():
            for number, value in enumerate(document):
                yield from leaks(value, f"{where}[{number}]")
        case str():
            what = looks_like(document)
            if what:
                yield where, what


def looks_like(text: str) -> str:
    """Returns the kind of secret that this text seems to contain, or an empty text."""
    words = [word for word in text.split(" ") if "data:image/" not in word]
    for piece in _pieces(" ".join(words)):
        for name, shape in _SHAPES:
            if shape.search(piece):
                return name
    plain = " ".join(word for word in words if "://" not in word)
    return "a random key" if any(map(_random, _RUN.findall(plain))) else ""


def _pieces(text: str) -> Iterator[str]:
    """Returns overlapping parts of a text, because the cost of some patterns grows with the square
    of its length."""
    for start in range(0, max(len(text) - OVERLAP, 1), PIECE - OVERLAP):
        yield text[start : start + PIECE]


def _named_secret(name: str, value: str) -> bool:
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)
    return bool(_SECRET_NAME.search(snake)) and len(value) >= 8 and not re.search(r"[\s<{$]", value)


def _random(run: str) -> bool:
    if _UUID.search(run):
        return False
    kinds = [
        "d" if char.isdigit() else "u" if char.isupper() else "l" if char.islower() else "s"
        for char in run
    ]
    if not {"d", "u", "l"}.issubset(kinds):
        return False  # hex does not mix capitals and small letters
    changes = sum(one != other for one, other in pairwise(kinds))
    if changes / (len(run) - 1) < _LEAST_CHANGES:
        return False
    counts = Counter(run).values()
    return -sum(n / len(run) * math.log2(n / len(run)) for n in counts) >= _LEAST_BITS
