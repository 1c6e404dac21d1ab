"""Arguments that may be `-`, for standard input. Cyclopts takes every leading hyphen for a flag."""

from __future__ import annotations

from cyclopts import Parameter


def _no_flag(kind: object, value: object) -> None:
    if isinstance(value, str) and value.startswith("-") and value != "-" and " " not in value:
        raise ValueError(f"unknown option {value}")


DASH = Parameter(allow_leading_hyphen=True, validator=_no_flag)
"""Beside the parameter's own; a mistyped flag is still one."""
