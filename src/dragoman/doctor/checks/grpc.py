"""What only gRPC has: unknown methods, bytes that are no message, details of errors."""

from __future__ import annotations

from ..check import GRPC, check, need
from ..expected_errors import NOT_FOUND, ExpectedRefusal
from ..requests import grpc_request
from ..subject import NO_TASK, Case

NO_MESSAGE = b"\x0a\xff\xff\xff\x7f"
"""What nothing can be read from: a field that ends beyond the end."""


def call(it: Case, path: str, body: bytes) -> ExpectedRefusal | None:
    """Any bytes to any method; what it says with a no."""
    from ..grpc_probe import GrpcProbe  # gRPC is an extra

    return it.through(GrpcProbe).call(path, body)[1]


@check(
    "grpc.no-method", "An unknown method is UNIMPLEMENTED.", "1.0 §10; 0.3 §3.2.2", bindings=GRPC
)
def no_method(it: Case) -> None:
    service = grpc_request(it.version, "send", {})[0].rpartition("/")[0]
    refusal = call(it, f"{service}/NoSuchMethod", b"")
    need(refusal and refusal.grpc == "UNIMPLEMENTED", f"answered {refusal or 'OK'}")


@check(
    "grpc.bad-bytes",
    "Bytes that are no message are refused, and the next call works.",
    "1.0 §10; 0.3 §3.2.2",
    bindings=GRPC,
)
def bad_bytes(it: Case) -> None:
    need(call(it, grpc_request(it.version, "send", {})[0], NO_MESSAGE), "answered OK")
    it.refused(it.ask("get", id=NO_TASK), NOT_FOUND)
