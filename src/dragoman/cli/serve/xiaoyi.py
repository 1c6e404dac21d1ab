"""`dragoman xiaoyi`: XiaoYi links."""

from __future__ import annotations

from cyclopts import App

from ..operate.link_keys import keys

xiaoyi = App(name="xiaoyi", help="XiaoYi links: agents that dial in, and their keys.")
xiaoyi.command(keys)
