"""An issuer of tokens for the tests: its keys, and every kind of token it would never issue."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from joserfc import jwk
from joserfc.jws import JWSRegistry

ISSUER, AUDIENCE = "https://id.example.com", "https://agent.example.com"


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class Issuer:
    """Signs with an EC key, and has a second one of RSA."""

    def __init__(self) -> None:
        self.ec = jwk.ECKey.generate_key("P-256", {"kid": "ec-1"})
        self.rsa = jwk.RSAKey.generate_key(2048, {"kid": "rsa-1"})
        self.stranger = jwk.ECKey.generate_key("P-256", {"kid": "ec-1"})

    def jwks(self) -> dict[str, Any]:
        return {"keys": [key.as_dict(private=False) for key in (self.ec, self.rsa)]}

    def save(self, folder: Path) -> str:
        path = folder / "jwks.json"
        path.write_bytes(msgspec.json.encode(self.jwks()))
        return str(path)

    def claims(self, **changes: Any) -> dict[str, Any]:
        now = int(time.time())
        told = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": now, "exp": now + 600}
        told |= changes
        return {name: value for name, value in told.items() if value is not None}

    def token(
        self,
        claims: dict[str, Any] | None = None,
        *,
        alg: str = "ES256",
        key: Any = None,
        header: dict[str, Any] | None = None,
    ) -> str:
        signer = key or (self.ec if alg.startswith("ES") else self.rsa)
        head = {"alg": alg, "kid": signer.kid, "typ": "at+jwt", **(header or {})}
        head = {name: value for name, value in head.items() if value is not None}
        text = ".".join(b64(msgspec.json.encode(p)) for p in (head, claims or self.claims()))
        return f"{text}.{b64(JWSRegistry.algorithms[alg].sign(text.encode(), signer))}"

    def forged(self) -> dict[str, str]:
        """Tokens that must not be believed, by what is wrong with them."""
        good, now = self.token(), int(time.time())
        head, payload, sealed = good.split(".")
        altered = b64(msgspec.json.encode(self.claims(sub="root")))
        make: Callable[..., str] = self.token
        return {
            "signature stripped": f"{head}.{payload}.",
            "signature cut": f"{head}.{payload}.{sealed[:-8]}",
            "claims altered": f"{head}.{altered}.{sealed}",
            "alg none": self._unsigned("none"),
            "alg None": self._unsigned("None"),
            "no alg": self._unsigned(None),
            "alg is a number": self._unsigned(7),
            "HMAC with the public key": self._confused(),
            "a stranger's key under our id": make(key=self.stranger),
            "a key in its own header": make(
                key=self.stranger, header={"jwk": self.stranger.as_dict(private=False)}
            ),
            "a key set by its own address": make(
                key=self.stranger, header={"jku": "https://evil.example/jwks.json"}
            ),
            "unknown key id": make(header={"kid": "other"}),
            "key id of another kind of key": make(header={"kid": "rsa-1"}),
            "key id that is no word": make(header={"kid": 5}),
            "unknown critical extension": make(header={"crit": ["exp"], "exp": 1}),
            "unencoded payload": make(header={"b64": False, "crit": ["b64"]}),
            "a type of something else": make(header={"typ": "dpop+jwt"}),
            "expired": make(self.claims(exp=now - 3600)),
            "no expiry": make(self.claims(exp=None)),
            "expiry is a word": make(self.claims(exp="tomorrow")),
            "expiry is true": make(self.claims(exp=True)),
            "not yet valid": make(self.claims(nbf=now + 3600)),
            "issued tomorrow": make(self.claims(iat=now + 86_400)),
            "another issuer": make(self.claims(iss="https://evil.example")),
            "issuer with a slash more": make(self.claims(iss=ISSUER + "/")),
            "no issuer": make(self.claims(iss=None)),
            "for another audience": make(self.claims(aud="https://other.example.com")),
            "for other audiences": make(self.claims(aud=["a", 1, None])),
            "no audience": make(self.claims(aud=None)),
            "nobody": make(self.claims(sub=None)),
            "an empty name": make(self.claims(sub="")),
            "a name that is no word": make(self.claims(sub=["alice"])),
            "a name with a line in it": make(self.claims(sub="al\nice")),
            "claims are a list": self._claims_as(b"[1]"),
            "claims are no JSON": self._claims_as(b"{"),
            "five parts": good + ".x.y",
            "two parts": f"{head}.{payload}",
            "padding": f"{head}=.{payload}.{sealed}",
            "a line end": f"{head}.{payload}.{sealed}\n.",
            "not base64": f"{head}.{payload}.***",
            "nothing": "..",
            "endless": "a" * 100_000,
        }

    def _unsigned(self, alg: object) -> str:
        head = {"alg": alg, "typ": "JWT"} if alg is not None else {"typ": "JWT"}
        return f"{b64(msgspec.json.encode(head))}.{b64(msgspec.json.encode(self.claims()))}."

    def _confused(self) -> str:
        """CVE-2015-9235: the public key, which everyone has, as the secret of an HMAC."""
        public = self.rsa.public_key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        head = {"alg": "HS256", "typ": "JWT", "kid": "rsa-1"}
        text = ".".join(b64(msgspec.json.encode(part)) for part in (head, self.claims()))
        return f"{text}.{b64(hmac.digest(public, text.encode(), hashlib.sha256))}"

    def _claims_as(self, raw: bytes) -> str:
        head = b64(msgspec.json.encode({"alg": "ES256", "kid": "ec-1"}))
        text = f"{head}.{b64(raw)}"
        return f"{text}.{b64(JWSRegistry.algorithms['ES256'].sign(text.encode(), self.ec))}"
