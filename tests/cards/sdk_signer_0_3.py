"""Runs in the environment of a2a-sdk 0.3.26: signs and verifies with its own code, as `sdk_signer`
does with that of 1.3.0.
"""

import json
import sys

from a2a.types import AgentCard
from a2a.utils import signing
from jwt.api_jwk import PyJWK


def sign(asked):
    header = asked["header"]
    key = PyJWK.from_dict(asked["key"], algorithm=header["alg"])
    signer = signing.create_agent_card_signer(key, header)
    signed = signer(AgentCard.model_validate(asked["card"]))
    return signed.model_dump(mode="json", exclude_none=True, by_alias=True)


def verify(asked):
    keys = {each["kid"]: PyJWK.from_dict(each, algorithm=each["alg"]) for each in asked["keys"]}
    verifier = signing.create_signature_verifier(
        lambda kid, jku: keys[kid], ["ES256", "EdDSA", "RS256"]
    )
    told = []
    for said in asked["cards"]:
        try:
            verifier(AgentCard.model_validate(said))
            told.append("ok")
        except signing.SignatureVerificationError as exc:
            told.append(type(exc).__name__)
    return told


with open(sys.argv[1], encoding="utf-8") as file:
    asked = json.load(file)
print(json.dumps({"sign": sign, "verify": verify}[asked["do"]](asked)))
