"""Runs in the environment of a2a-sdk 1.3.0: signs and verifies with its own code.

Reads one JSON object from the file named first and answers with one: `sign` gives the card back
with the SDK's signature, `verify` says for each card whether the SDK's verifier takes it.
"""

import json
import sys

from a2a.types import AgentCard
from a2a.utils import signing
from google.protobuf.json_format import MessageToDict, ParseDict
from jwt.api_jwk import PyJWK


def card_in(said):
    return ParseDict(said, AgentCard(), ignore_unknown_fields=True)


def sign(asked):
    header = asked["header"]
    key = PyJWK.from_dict(asked["key"], algorithm=header["alg"])
    signer = signing.create_agent_card_signer(key, header)
    return MessageToDict(signer(card_in(asked["card"])))


def verify(asked):
    keys = {each["kid"]: PyJWK.from_dict(each, algorithm=each["alg"]) for each in asked["keys"]}
    verifier = signing.create_signature_verifier(
        lambda kid, jku: keys[kid], ["ES256", "EdDSA", "RS256"]
    )
    told = []
    for said in asked["cards"]:
        try:
            verifier(card_in(said))
            told.append("ok")
        except signing.SignatureVerificationError as exc:
            told.append(type(exc).__name__)
    return told


with open(sys.argv[1], encoding="utf-8") as file:
    asked = json.load(file)
print(json.dumps({"sign": sign, "verify": verify}[asked["do"]](asked)))
