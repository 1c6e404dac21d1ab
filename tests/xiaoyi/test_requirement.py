"""The table in `docs/dialects/xiaoyi.md`: every section of the source document, and its tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dragoman.xiaoyi import outbound_link
from pages import all_tests, named_tests

SECTIONS = """
WebSocket URL
认证机制
AK/SK 签名
WebSocket 连接头
消息类型
1. 初始化消息 (客户端 → 服务端)
2. 心跳消息 (客户端 → 服务端)
3. A2A 请求 (服务端 → 客户端)
4. Agent 响应 (客户端 → 服务端)
5. 清除上下文 (服务端 → 客户端)
6. 任务取消 (服务端 → 客户端)
消息 Parts 类型
文本消息
文件消息
数据消息
JSON-RPC 响应格式
Artifact Update (流式/最终响应)
Status Update (状态更新)
错误响应
任务状态
心跳机制
重连策略
会话路由
流式响应
媒体文件处理
参考文档
""".strip().splitlines()
"""The headings of the source document."""
UNTESTED = {"参考文档": "outside references"}
TESTS = Path(__file__).parents[1]


def rows() -> dict[str, str]:
    page = (TESTS.parent / "docs" / "dialects" / "xiaoyi.md").read_text("utf-8")
    table = page.partition("## The requirement, section by section")[2]
    found = re.findall(r"^\| (.+?) \| (.+) \|$", table, re.M)
    return {section: tests for section, tests in found if section not in ("section", "---")}


def test_every_section_of_the_source_document_has_a_row() -> None:
    assert [row for row in rows() if not row.startswith("---")] == SECTIONS


@pytest.mark.parametrize("section", SECTIONS)
def test_every_row_names_tests_that_exist(section: str) -> None:
    row = rows()[section]
    if section in UNTESTED:
        assert row.startswith(UNTESTED[section])
        return
    assert named_tests(row)
    assert set(named_tests(row)) <= all_tests()


def test_a_link_pings_every_30_seconds_and_is_dead_after_90() -> None:
    assert (outbound_link.PING, outbound_link.DEAD) == (30.0, 90.0)
    assert outbound_link.HEARTBEAT == 20.0
