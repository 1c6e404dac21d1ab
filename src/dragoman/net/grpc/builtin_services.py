"""The standard services of gRPC: health and reflection. Limits apply to them like to others."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Any
from urllib.parse import unquote

from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc

from dragoman.dialects.a2a.proto import POOL

from ..http.connections import Client, Connections

Servicer = Any
"""The context of a call, for which grpcio has no type."""

HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name


class CountedCall:
    """A gRPC call as a `RunningExchange`, which has ended when `cr_frame` is None."""

    __slots__ = ("_connections", "_servicer", "cr_frame")

    def __init__(self, connections: Connections, servicer: Servicer) -> None:
        self.cr_frame: object = self
        self._connections, self._servicer = connections, servicer

    def begin(self) -> CountedCall:
        """Marks the call as read. Until then its connection has the limits of one without a
        request, so that a message that never arrives does not hold it open."""
        self._connections.note(client_in(self._servicer.peer()), self)
        return self

    def end(self) -> None:
        """Marks the call as answered."""
        self.cr_frame = None


class HealthService(health.aio.HealthServicer):  # type: ignore[misc]  # grpcio is untyped
    """The health service, whose calls are counted."""

    def __init__(self, connections: Connections) -> None:
        super().__init__()
        self._connections = connections

    async def Check(self, request: Any, context: Servicer) -> Any:  # noqa: N802  gRPC's name
        """Answers whether a service is available."""
        counted = CountedCall(self._connections, context).begin()
        try:
            return await super().Check(request, context)
        finally:
            counted.end()

    async def Watch(self, request: Any, context: Servicer) -> None:  # noqa: N802  the same
        """Streams whether a service is available, and each change of that."""
        counted = CountedCall(self._connections, context).begin()
        try:
            await super().Watch(request, context)
        finally:
            counted.end()


class ReflectionService(reflection.aio.ReflectionServicer):  # type: ignore[misc]  # grpcio is untyped
    """The reflection service, whose calls are counted."""

    def __init__(self, names: Iterable[str], connections: Connections) -> None:
        super().__init__(names, pool=POOL)
        self._connections = connections

    async def ServerReflectionInfo(  # noqa: N802  the same
        self, asked: AsyncIterable[Any], context: Servicer
    ) -> AsyncIterator[Any]:
        """Describes the services and messages."""
        counted = CountedCall(self._connections, context).begin()
        try:
            async for told in super().ServerReflectionInfo(asked, context):
                yield told
        finally:
            counted.end()


def client_in(peer: str) -> Client:
    """Parses the address and port of a peer, which gRPC writes as `ipv4:127.0.0.1:5000` or
    `ipv6:%5B::1%5D:5000`."""
    address, _, port = peer.partition(":")[2].rpartition(":")
    if address.startswith("%5B"):
        address = unquote(address).strip("[]").partition("%")[0].removeprefix("::ffff:")
    return address, port


def add_reflection(services: Iterable[str], server: Any, connections: Connections) -> None:
    """Adds the reflection service for tools such as grpcurl. Its descriptors come from our own pool
    and not from the default one of the process."""
    for module in (health_pb2, reflection_pb2):
        POOL.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    servicer = ReflectionService((*services, HEALTH, reflection.SERVICE_NAME), connections)
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, server)
