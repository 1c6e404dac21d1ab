"""The secrets of channels."""

from __future__ import annotations

import os

from dragoman.core.auth_schemes import Secret
from dragoman.core.errors import ConfigError
from dragoman.security.verifiers import read_secret


def secret_of(secret: Secret | None, variable: str, field: str) -> str:
    """Returns the secret that the settings refer to, else that of the variable, else an empty
    text."""
    return read_secret(secret, field) if secret is not None else os.environ.get(variable, "")


def needed_secret(secret: Secret | None, variable: str, field: str) -> str:
    """Returns the secret as `secret_of` does. Raises `ConfigError` if there is none."""
    found = secret_of(secret, variable, field)
    if not found:
        raise ConfigError(f'There is no {field}: set {variable}, or {field} = {{env = "X"}}.')
    return found
