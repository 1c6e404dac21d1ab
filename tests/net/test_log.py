"""The log: one line per event, cheap, and flat in memory when nobody reads."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterator

import pytest

from dragoman.core.log import Logger
from dragoman.observability import log as logs
from dragoman.observability.log import AgentLog, Bridge, HostLog, Log, set_up


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


@pytest.fixture
def bridged(pipe: tuple[int, int]) -> Iterator[Callable[[], str]]:
    """What our modules and libraries log until it is read, as the server's log has it."""
    reader, writer = pipe
    log = Log("info", fd=writer)
    bridge, root = Bridge(log), logging.getLogger()
    root.addHandler(bridge)
    yield lambda: written(log, reader)
    root.removeHandler(bridge)


def test_our_modules_and_libraries_log_to_the_same_place(bridged: Callable[[], str]) -> None:
    Logger("engine").warning("Something is odd", task="t", skill="", size=0)
    logging.getLogger("lib").warning("odd %s", "thing", extra={"a": 1})
    try:
        raise ValueError("no")
    except ValueError as exc:
        Logger("engine").error("It broke", exc, task="t")
    ours, theirs, broken = bridged().splitlines()
    assert ours.endswith("warning Something is odd task=t size=0")
    assert theirs.endswith('warning log logger=lib message="odd thing" a=1')
    assert "error It broke task=t traceback=" in broken
    assert "ValueError: no" in broken


def test_a_line_of_ours_reads_the_same_in_the_standard_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG, "dragoman.engine"):
        Logger("engine").debug("Something is odd", task="a b", none=None)
    (record,) = caplog.records
    assert record.getMessage() == 'Something is odd task="a b"'
    assert (record.name, record.levelname) == ("dragoman.engine", "DEBUG")
    assert record.funcName == "test_a_line_of_ours_reads_the_same_in_the_standard_log"


def test_a_program_that_logs_by_itself_keeps_its_handlers_and_gets_our_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    with caplog.at_level(logging.INFO, "dragoman"):
        log = set_up("info")  # pytest is a program with handlers of its own
        assert (root.handlers, root.level) == before
        assert isinstance(log, HostLog)
        log.debug("hidden")
        log.info("started", url="http://x/")
        try:
            raise ValueError("no")
        except ValueError as exc:
            AgentLog(log, "desk").error("crash", exc, error="abc")
    started, crash = caplog.records
    assert (started.name, started.getMessage()) == ("dragoman", "started url=http://x/")
    assert crash.getMessage() == "crash agent=desk error=abc"
    assert crash.exc_info is not None
    assert isinstance(crash.exc_info[1], ValueError)


def test_a_program_that_set_up_no_logging_finds_our_lines_on_stderr(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = pipe
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    log = HostLog("info", fd=writer)
    log.info("started", url="http://x/")
    log.error("crash", ValueError("no"))
    started, crash = written(log, reader).splitlines()
    assert started.endswith("info started url=http://x/")
    assert "ValueError: no" in crash


def test_no_text_from_outside_can_forge_a_line_or_a_field(bridged: Callable[[], str]) -> None:
    evil = "h\r\n2026-01-01T00:00:00.000Z info\x1b[2K\u2028 seq=1 status=200"
    Logger("webhooks").error("A delivery was given up", hook=evil, seq=7, error="timeout")
    Logger("webhooks").warning(f"made elsewhere {evil}")
    logging.getLogger("lib").warning("they said %s (100%%)", evil)
    logging.getLogger("lib").warning("at 100%")
    lines = bridged()
    assert lines.count("\n") == 4
    assert all(c.isprintable() for c in lines.replace("\n", ""))
    given_up, _, told, percent = lines.splitlines()
    hook = r'hook="h\u000d\n2026-01-01T00:00:00.000Z info\u001b[2K\u2028 seq=1 status=200"'
    assert given_up.endswith(f"error A delivery was given up {hook} seq=7 error=timeout")
    assert told.endswith('status=200 (100%)"')
    assert percent.endswith('message="at 100%"')


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
    os.set_blocking(reader, True)
    heard, told = b"", 0
    while heard.count(b" long ") + told < 300:  # every line is written, or counted
        heard += os.read(reader, 65536)
        log.flush()
        told = sum(map(int, re.findall(rb"Log lines were dropped count=(\d+)\n", heard)))
    assert told > 100
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
