"""`dragoman xiaoyi`: XiaoYi links."""

from __future__ import annotations

from cyclopts import App

from ..operate.link_keys import keys
from ..operate.link_status import status
from .link import link

xiaoyi = App(
    name="xiaoyi",
    help="XiaoYi links: an agent that dials out, agents that dial in, their keys and their state.",
)
xiaoyi.command(keys)
xiaoyi.command(link)
xiaoyi.command(status)
