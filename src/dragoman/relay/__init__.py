"""A local task follows a remote task. The remote task is opened once and its stream is resumed;
questions are passed up, and answers and cancels down.

The relay knows only `Peer` and `Turn`. `turn.agent`, the IAT host and the gateway use it (ADR
0005).
"""

from .relay import Relay
from .relayed_task import RelayedTask
from .remote_task import RemoteTask
from .upstream import QuestionAnswer, Upstream

__all__ = ["QuestionAnswer", "Relay", "RelayedTask", "RemoteTask", "Upstream"]
