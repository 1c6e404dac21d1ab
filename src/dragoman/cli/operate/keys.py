"""`dragoman keys`: keys that sign cards."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from cyclopts import App, Parameter

from dragoman.core.errors import ConfigError
from dragoman.dialects.a2a.cards.signatures import Refused, key_in
from dragoman.security.card_signing import jwks_in, key_set, new_key, save

keys = App(name="keys", help="Create keys that sign cards.")

AsJson = Annotated[bool, Parameter(name=("--json", "-j"), help="Print JSON.")]


@keys.command
def new(
    file: Annotated[
        Path | None, Parameter(help="File or folder to write to. [default: ./card-KID.jwk]")
    ] = None,
    /,
    *,
    alg: Annotated[
        Literal["ES256", "EdDSA", "RS256"], Parameter(help="Signature algorithm.")
    ] = "ES256",
    json: AsJson = False,
) -> None:
    """Create a private key that only you can read, and print its id.

    In a folder with older keys it is the newest, so it signs cards from the next start on.
    """
    made = new_key(alg, time.time())
    kid = made["kid"]
    path = file or Path()
    if path.is_dir():
        path = path / f"card-{kid[:8]}.jwk"
    save(path, made)
    if json:
        public = key_in(made).public()
        print(msgspec.json.encode({"file": str(path), "kid": kid, "key": public}).decode())
        return
    print(f"{path}  {alg}  {kid}")
    # A folder that was named holds the keys of one agent: the newest of them signs.
    print(f"Sign with it:  dragoman serve agent.py --signing-key {file or path}")


@keys.command
def public(
    *files: Annotated[Path, Parameter(help="Files with private keys.")],
) -> None:
    """Write the public keys as a key set, for clients that verify cards."""
    if not files:
        raise ConfigError("Which keys? Give their files.")
    found = []
    for path in files:
        for said in jwks_in(path):
            try:
                found.append(key_in(said))
            except Refused as exc:
                raise ConfigError(f"{path}: {exc}.") from None
    sys.stdout.buffer.write(msgspec.json.format(key_set(found), indent=2) + b"\n")
