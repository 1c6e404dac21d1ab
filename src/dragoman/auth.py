"""Authentication in code: the schemes that an agent accepts.

    from dragoman.auth import ApiKeys, Known, Secret

    agent = Agent("Desk", auth={"keys": ApiKeys(callers={"ada": Known(secret=Secret(env="KEY"))})})

The same schemes stand in `[auth.NAME]` of the settings. For the credentials of a client, see
`dragoman.client.auth`.
"""

from dragoman.core.auth_schemes import (
    ApiKeys,
    Certificates,
    Grant,
    Held,
    Jwt,
    Known,
    OAuth,
    Passwords,
    Scheme,
    Secret,
    Tokens,
)

__all__ = [
    "ApiKeys",
    "Certificates",
    "Grant",
    "Held",
    "Jwt",
    "Known",
    "OAuth",
    "Passwords",
    "Scheme",
    "Secret",
    "Tokens",
]
