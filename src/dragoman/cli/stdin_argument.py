"""Arguments that may be `-`, for standard input. Cyclopts treats every leading hyphen as a flag."""

from __future__ import annotations

from cyclopts import Parameter


def _no_flag(kind: object, value: object) -> None:
    if isinstance(value, str) and value.startswith("-") and value != "-" and " " not in value:
        raise ValueError(f"unknown option {value}")


DASH = Parameter(allow_leading_hyphen=True, validator=_no_flag)
"""An addition to the options of the parameter itself; a mistyped flag is still reported."""
