"""The scenarios of `a2a_sdk_client.py`, over gRPC: `a2a_sdk_grpc_client.py URL 1.0|0.3 SCRIPT`.

Runs in the environment of `a2a-sdk` 1.3.0. The card is fetched over HTTP as always; it says where
gRPC is.
"""

from __future__ import annotations

import asyncio
import runpy
import sys
from typing import Any

import grpc
from a2a.client import ClientConfig, ClientFactory

url, version, path = sys.argv[1:]
script = runpy.run_path(path)
Caller, scenarios, main = script["Caller"], script["SCENARIOS"], script["main"]
SKIPPED = {"card"}  # looks at the JSON-RPC entries of the card


def grpc_client(self: Any, config: ClientConfig) -> Any:
    config.httpx_client = self.http
    config.supported_protocol_bindings = ["GRPC"]
    config.grpc_channel_factory = grpc.aio.insecure_channel
    client = ClientFactory(config).create(self.card)
    used = client._transport  # type: ignore[attr-defined]
    # Where the card names a tenant, it is put into every request by a transport around this one.
    transport = type(getattr(used, "_base", used)).__name__
    wanted = "CompatGrpcTransport" if self.legacy else "GrpcTransport"
    assert transport == wanted, f"wanted {wanted}, found {transport}"
    return client


Caller._client = grpc_client
chosen = [each.__name__ for each in scenarios if each.__name__ not in SKIPPED]
sys.exit(asyncio.run(main(url, version, *chosen)))
