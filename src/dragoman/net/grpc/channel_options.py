"""The options of gRPC's core for a server."""

from __future__ import annotations

from dragoman.settings import Limits


def options(limits: Limits, *, shared: bool = False) -> list[tuple[str, int]]:
    """Returns the channel arguments of gRPC's core. Times are in milliseconds. The workers of one
    server have a `shared` port."""
    return [
        # A second server must fail to start, and not share our port.
        ("grpc.so_reuseport", int(shared)),
        ("grpc.max_receive_message_length", limits.body_size),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", limits.head_size),
        ("grpc.absolute_max_metadata_size", 2 * limits.head_size),
        # Pings keep an idle stream open through proxies and reveal a client that vanished.
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ("grpc.max_concurrent_streams", limits.http2_streams),
        ("grpc.server_handshake_timeout_ms", int(limits.hello_time * 1000)),
        # gRPC sends GOAWAY before it closes an idle connection, so no call is lost.
        ("grpc.max_connection_idle_ms", int(limits.head_time * 1000)),
        ("grpc.http2.max_ping_strikes", 5),
    ]
