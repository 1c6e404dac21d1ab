"""A stream that is refused: told in plain JSON or as the only event of a stream, it is the same."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from client.auth.http_server import LittleHttp, Request, Response, as_json
from client.our_server import QUICK
from client.test_answers import IN_STATUS, card
from dragoman import Task, connect
from dragoman.core.errors import BadParams, ContentTypeUnsupported, DragomanError, TaskNotFound

AS_EVENT = [False, True]
told_in = pytest.mark.parametrize("as_event", AS_EVENT, ids=["json", "event"])


def refusing(code: int, *, as_event: bool, asked: list[str]) -> LittleHttp:
    """An agent of 0.3 that has no streams, though its card says so."""

    def respond(request: Request) -> Response:
        if request.method == "GET":
            return as_json(card(request.base, streaming=True))
        call = msgspec.json.decode(request.body)
        asked.append(call["method"])
        told: dict[str, Any] = {"jsonrpc": "2.0", "id": call["id"]}
        if call["method"] not in ("message/stream", "tasks/resubscribe"):
            return as_json(told | {"result": IN_STATUS})
        told["error"] = {"code": code, "message": "No"}
        if not as_event:
            return as_json(told)
        body = b"data: " + msgspec.json.encode(told) + b"\n\n"
        return Response(200, body, {"content-type": "text/event-stream"})

    return LittleHttp(respond)


@told_in
@pytest.mark.parametrize("code", [-32004, -32601])
async def test_a_task_without_its_stream_is_had_by_asking(code: int, as_event: bool) -> None:
    asked: list[str] = []
    async with (
        refusing(code, as_event=as_event, asked=asked) as agent,
        connect(agent.url, limits=QUICK) as found,
    ):
        result = await found.stream("hi").result()
        assert isinstance(result, Task)
        assert result.text == "Oslo is fine"
        assert asked[:2] == ["message/stream", "message/send"]


@told_in
@pytest.mark.parametrize(
    ("code", "error"),
    [(-32602, BadParams), (-32005, ContentTypeUnsupported), (-32001, TaskNotFound)],
)
async def test_a_refused_message_is_the_same_error(
    code: int, error: type[DragomanError], as_event: bool
) -> None:
    asked: list[str] = []
    async with (
        refusing(code, as_event=as_event, asked=asked) as agent,
        connect(agent.url, limits=QUICK) as found,
    ):
        with pytest.raises(error, match="No") as caught:
            await found.stream("hi", task="t1").result()
        assert caught.value.code == code
        assert asked == ["tasks/get", "message/stream"]  # the context of the task, then the message


@told_in
async def test_a_refused_subscription_is_looked_at_instead(as_event: bool) -> None:
    asked: list[str] = []
    async with (
        refusing(-32001, as_event=as_event, asked=asked) as agent,
        connect(agent.url, limits=QUICK) as found,
    ):
        assert (await found.watch("t1").result()).text == "Oslo is fine"
        assert asked == ["tasks/resubscribe", "tasks/get"]
