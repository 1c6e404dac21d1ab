"""Texts that are made to take long: whatever somebody writes is read in time that grows with its
length, and not with the square of it."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from dragoman.core.model import Text
from dragoman.dialects.lite.card import body_in
from dragoman.dialects.lite.parts import parts_in, parts_out
from dragoman.dialects.lite.wire import parse

SIZE = 4_000


def read(body: str) -> object:
    return parse(f"[A2A:task id=t]\n{body}")


def tell(body: str) -> object:
    """What an agent streams in many small chunks is said as one text."""
    return parts_out([Text(each) for each in body], glue="")


@pytest.mark.parametrize(
    ("handle", "begin", "unit"),
    [
        (read, "[附件:", " "),
        (read, "", "[附件: x"),
        (read, "", "```\n"),
        (parts_in, "", "```json data\n"),
        (lambda body: body_in(body, "kiln"), "", "```json\n"),
        (lambda body: body_in(body, "kiln"), "", "```\n{"),
        (tell, "", "x"),
    ],
    ids=["spaces", "names", "fences", "data", "card", "braces", "chunks"],
)
def test_a_text_is_handled_in_proportion_to_its_length(
    handle: Callable[[str], object], begin: str, unit: str
) -> None:
    def seconds(size: int) -> float:
        body, began = f"{begin}{unit * (size // len(unit))}x", time.process_time()
        handle(body)
        return time.process_time() - began

    seconds(SIZE)
    small, large = min(seconds(SIZE) for _ in range(3)), seconds(16 * SIZE)
    assert large < 16 * small * 4 + 0.2
