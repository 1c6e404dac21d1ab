"""What a session keeps of a request while it is answered: a large file is kept once."""

from __future__ import annotations

import tracemalloc

import pytest

from dragoman.core.model import Blob, Message, Role
from dragoman.core.operations import SendMessage
from dragoman.core.session import Call, Frame
from dragoman.dialects import DIALECTS

SIZE = 4 << 20


@pytest.mark.parametrize("name", ["a2a-1.0", "a2a-1.0-rest", "a2a-0.3", "a2a-0.1", "a2a-go"])
def test_a_file_by_value_is_kept_once(name: str) -> None:
    dialect = DIALECTS[name]
    assert dialect.callee is not None
    message = Message(message_id="m", role=Role.USER, parts=(Blob(bytes(SIZE)),), task_id="t")
    (frame,) = dialect.caller().send(Call(1, SendMessage(message=message), stream=True))
    callee = dialect.callee()
    tracemalloc.start()
    try:
        (signal,) = callee.receive(Frame(frame.body, frame.target, frame.headers))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(signal, Call)
    assert isinstance(signal.op, SendMessage)
    assert len(signal.op.message.parts[0].content) == SIZE  # type: ignore[union-attr]
    assert kept < 1.1 * SIZE, f"{kept / SIZE:.1f} times its size"
