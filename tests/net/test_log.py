"""The log: one line per event, cheap, and flat in memory when nobody reads."""

from __future__ import annotations

import logging
import os
import re
import time

import pytest

from dragoman.observability import log as logs
from dragoman.observability.log import Bridge, Log


def written(log: Log, reader: int) -> str:
    log.close()
    return os.read(reader, 1_000_000).decode()


@pytest.fixture
def pipe() -> tuple[int, int]:
    return os.pipe()


def test_a_line_holds_time_level_event_and_fields(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    log = Log("info", fd=writer)
    log.debug("hidden")
    log.info("started", task="t-1", url="http://x/", trace="", name='a "b"\nc', share="50 %")
    line = written(log, reader)
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info started task=t-1 url=http://x/ "
        r'name="a \\"b\\"\\nc" share="50 %"\n',
        line,
    )


def test_a_traceback_stays_on_its_line(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    log = Log("error", fd=writer)
    try:
        raise ValueError("no")
    except ValueError as exc:
        log.error("crash", exc, error="abc")
    line = written(log, reader)
    assert line.count("\n") == 1
    assert "error crash error=abc exception=ValueError" in line
    assert "ValueError: no" in line


def test_the_standard_log_comes_along(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    log = Log("info", fd=writer)
    bridge = Bridge(log)
    for name, extra in (("dragoman.engine", {"task": "t"}), ("lib", None)):
        logger = logging.Logger(name)
        logger.addHandler(bridge)
        logger.warning("odd %s", "thing", extra=extra)
    lines = written(log, reader).splitlines()
    assert lines[0].endswith("warning odd thing task=t")
    assert lines[1].endswith('warning log logger=lib message="odd thing"')


def test_no_text_from_outside_can_forge_a_line_or_a_field(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    log = Log("info", fd=writer)
    logger = logging.Logger("dragoman.pusher")
    logger.addHandler(Bridge(log))
    evil = "h\r\n2026-01-01T00:00:00.000Z info\x1b[2K\u2028 seq=1 status=200"
    logger.error("given up hook=%s seq=%d error=%s", evil, 7, "timeout")
    logger.warning("reason=%s: %s (100%%)", "peer_refused", f"they said {evil}")
    logger.warning(f"made elsewhere {evil}")
    log.info(f"event {evil}")
    lines = written(log, reader)
    assert lines.count("\n") == 4
    assert all(c.isprintable() for c in lines.replace("\n", ""))
    given_up, told, *_ = lines.splitlines()
    hook = r'hook="h\u000d\n2026-01-01T00:00:00.000Z info\u001b[2K\u2028 seq=1 status=200"'
    assert given_up.endswith(f"error given up {hook} seq=7 error=timeout")
    assert "warning reason=peer_refused: they said h" in told
    assert told.endswith("(100%)")


def test_a_percent_sign_without_arguments_is_only_text(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    log = Log("info", fd=writer)
    bridge = logs.Bridge(log)
    for text in ("50% done", "at 100%"):
        bridge.emit(logging.LogRecord("dragoman.mine", 20, "", 0, text, (), None))
    assert [line.split(" info ")[1] for line in written(log, reader).splitlines()] == [
        "50% done",
        "at 100%",
    ]


def test_lines_are_dropped_and_counted_when_nobody_reads(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MOST_LINES", 50)
    reader, writer = pipe
    log = Log("info", fd=writer)
    began = time.monotonic()
    for _ in range(300):
        log.info("long", text="x" * 5000)  # a pipe holds 64 KiB
    assert time.monotonic() - began < 30  # waiting for the reader would take for ever
    assert log.dropped > 100
    os.set_blocking(reader, True)
    heard = b""
    while b"log_lines_dropped" not in heard:
        heard += os.read(reader, 65536)
        log.flush()
    assert log.dropped == 0


async def test_lines_of_one_turn_leave_in_one_write(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = pipe
    writes: list[bytes] = []
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: writes.append(data) or write(fd, data))
    log = Log("info", fd=writer)
    for number in range(100):
        log.info("task_done", number=number)
    assert written(log, reader).count("\n") == 100
    assert len(writes) == 1
