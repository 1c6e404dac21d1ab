"""Checks that apply to gRPC only: unknown methods and bytes that are not a message."""

from __future__ import annotations

from ..check import GRPC, check, need
from ..expected_errors import NOT_FOUND, ExpectedRefusal
from ..requests import grpc_request
from ..subject import NO_TASK, Case

NO_MESSAGE = b"\x0a\xff\xff\xff\x7f"
"""Bytes that are not a message: a field that is longer than the rest."""


def call(it: Case, path: str, body: bytes) -> ExpectedRefusal | None:
    """Sends any bytes to any method, and returns the refusal."""
    from ..grpc_probe import GrpcProbe  # gRPC is an optional extra

    return it.through(GrpcProbe).call(path, body)[1]


@check("grpc.no-method", "1.0 §10; 0.3 §3.2.2", bindings=GRPC)
def no_method(it: Case) -> None:
    """An unknown method is UNIMPLEMENTED."""
    service = grpc_request(it.version, "send", {})[0].rpartition("/")[0]
    refusal = call(it, f"{service}/NoSuchMethod", b"")
    need(refusal and refusal.grpc == "UNIMPLEMENTED", f"answered {refusal or 'OK'}")


@check("grpc.bad-bytes", "1.0 §10; 0.3 §3.2.2", bindings=GRPC)
def bad_bytes(it: Case) -> None:
    """Bytes that are not a message are refused, and the next call works."""
    need(call(it, grpc_request(it.version, "send", {})[0], NO_MESSAGE), "answered OK")
    it.refused(it.ask("get", id=NO_TASK), NOT_FOUND)
