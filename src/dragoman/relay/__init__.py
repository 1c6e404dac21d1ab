"""Our task follows a remote task: opened once, resumed, questions up, answers and cancels down.

Knows only `Peer` and `Turn`. `turn.agent`, the IAT host and the gateway stand on it (ADR 0005).
"""

from .relay import Relay
from .relayed_task import RelayedTask
from .remote_task import RemoteTask
from .upstream import QuestionAnswer, Upstream

__all__ = ["QuestionAnswer", "Relay", "RelayedTask", "RemoteTask", "Upstream"]
