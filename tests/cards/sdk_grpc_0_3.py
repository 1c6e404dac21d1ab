"""Asks for the card over gRPC of 0.3 with the stub of a2a-sdk: `sdk_grpc_0_3.py HOST:PORT [TOKEN]`.

Prints one JSON line: the card's name and addresses, or the status code and its words.
"""

from __future__ import annotations

import json
import sys

import grpc
from a2a.grpc import a2a_pb2, a2a_pb2_grpc

where, *token = sys.argv[1:]
metadata = [("authorization", f"Bearer {each}") for each in token]
with grpc.insecure_channel(where) as channel:
    stub = a2a_pb2_grpc.A2AServiceStub(channel)
    try:
        card = stub.GetAgentCard(a2a_pb2.GetAgentCardRequest(), metadata=metadata, timeout=60)
    except grpc.RpcError as exc:
        print(json.dumps({"code": exc.code().name, "words": exc.details()}))
    else:
        skills = [skill.id for skill in card.skills]
        urls = [card.url, *(each.url for each in card.additional_interfaces)]
        print(json.dumps({"name": card.name, "skills": skills, "urls": urls}))
