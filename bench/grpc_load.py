"""The load over gRPC: one channel per connection, and every answer checked."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from dragoman.dialects.a2a.proto import reader, writer

from .load import HOST
from .wire import ECHO_TEXT, WrongAnswer

_request = writer("lf.a2a.v1.SendMessageRequest")
_response = reader("lf.a2a.v1.SendMessageResponse")
_COMPLETED = 3
_VERSION = (("a2a-version", "1.0"),)


class GrpcChannel:
    """One connection that carries one call at a time."""

    def __init__(self, port: int) -> None:
        alone = [("grpc.use_local_subchannel_pool", 1)]
        self.channel = grpc.aio.insecure_channel(f"{HOST}:{port}", options=alone)
        self._send = self.channel.unary_unary("/lf.a2a.v1.A2AService/SendMessage")

    async def send(self, number: int, text: str) -> None:
        """Sends the text; raises unless it comes back, completed."""
        message = {"message_id": f"bench-{number}", "role": 1, "parts": [{"text": text}]}
        body = await self._send(_request({"message": message}), metadata=_VERSION)
        task = _response(body).task
        found = "".join(part.text for artifact in task.artifacts for part in artifact.parts)
        if task.status.state != _COMPLETED or found != text:
            raise WrongAnswer(f"not the echo, completed: {task}")

    async def echo(self, number: int) -> None:
        """An exchange as `load.drive` wants it."""
        await self.send(number, ECHO_TEXT)


@asynccontextmanager
async def channels(port: int, count: int) -> AsyncIterator[list[GrpcChannel]]:
    """So many connections, closed in the end."""
    opened = [GrpcChannel(port) for _ in range(count)]
    try:
        yield opened
    finally:
        for each in opened:
            await each.channel.close()
