"""The table in `docs/dialects/a2a-lite.md`: every row of the source document, and its tests."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from lite.room import member
from lite.test_restart import arrives, living
from pages import all_tests, named_tests

ROWS: dict[str, list[str]] = {
    "协议版本": ["a2a-lite/1.0"],
    "消息类型完整列表": ["discover", "card", "task", "status", "result", "cancel", "ack"],
    "状态值 (state)": [
        *("accepted", "working", "input-required", "completed", "failed", "cancelled", "rejected"),
    ],
    "Agent Card Schema": [
        *("the whole schema", "protocol", "agent", "description", "skills", "capabilities"),
        *("limits", "channels", "contact"),
    ],
    "与 Google A2A 的对比": [
        *("传输层", "发现机制", "消息格式", "流式传输", "推送通知", "认证", "复杂度"),
    ],
    "为什么用自然语言 + 标记？": ["人类可读", "优雅降级", "灵活性", "简单"],
    "为什么不实现 HTTP 服务？": ["部署复杂", "网络限制", "已有通道", "安全性"],
    "为什么不支持流式传输？": ["复杂度", "必要性低", "可扩展"],
    "扩展点": ["capabilities", "skills", "消息类型可扩展", "状态值可扩展", "旧版本"],
}
"""The rows of the tables and lists of the source document, by their sections."""
TESTS = Path(__file__).parents[1]


def table() -> list[tuple[str, str, str]]:
    page = (TESTS.parent / "docs" / "dialects" / "a2a-lite.md").read_text("utf-8")
    rows = page.partition("## The requirement, row by row")[2]
    found = re.findall(r"^\| (.+?) \| (.+?) \| (.+) \|$", rows, re.M)
    return [row for row in found if row[0] != "section"]


def test_every_row_of_the_source_document_has_a_row() -> None:
    found = [(section, row.lstrip("`")) for section, row, _ in table()]
    wanted = [(section, row) for section, rows in ROWS.items() for row in rows]
    assert [section for section, _ in found] == [section for section, _ in wanted]
    for (_, row), (_, begin) in zip(found, wanted, strict=True):
        assert row.startswith(begin)


def test_every_row_names_tests_that_exist() -> None:
    for *_, tests in table():
        assert named_tests(tests)
        assert set(named_tests(tests)) <= all_tests()


def listening(pid: int) -> set[str]:
    """The addresses at which a process listens for TCP connections."""
    own = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            own.add(os.readlink(descriptor))
        except FileNotFoundError:
            continue  # closed meanwhile
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:
                found.add(fields[1])
    return found


@pytest.mark.slow  # starts a process
@pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="needs /proc")
async def test_an_agent_in_a_room_opens_no_port(tmp_path: Path) -> None:
    hub = f"no-port-{os.getpid()}"
    async with (
        member(hub, "anna", shared=True) as anna,
        living(tmp_path, hub) as process,
    ):
        await arrives(anna)
        assert listening(process.pid) == set()
