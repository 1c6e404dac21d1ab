"""Error responses of the XiaoYi link: `{"code": "TASK_NOT_FOUND", "message": "..."}`.

In the source document a code is a word, but it lists no codes. Ours are the names of our errors;
other agents send words or numbers of their own, which are read as `PeerRefused`.
"""

from __future__ import annotations

from dragoman.core.errors import DragomanError, PeerRefused, errors_in

from . import wire

MAX_CODE_CHARACTERS = 100
"""The length of the code of another agent, which is part of our error."""
CODES = {cls: cls().reason.upper() for cls in errors_in()}
_MEANINGS = {code: cls for cls, code in CODES.items()}


def error_out(error: DragomanError) -> wire.Error:
    """Writes an error."""
    code = next(CODES[cls] for cls in type(error).__mro__ if cls in CODES)
    return wire.Error(code, error.message)


def error_in(error: wire.ErrorIn) -> DragomanError:
    """Reads an error."""
    code, message = error.code, error.message or ""
    if isinstance(code, str):
        known = _MEANINGS.get(code)
        if known is not None:
            return known(message or code)
        word = code[:MAX_CODE_CHARACTERS]
        return PeerRefused(f"{word}: {message}" if message else word)
    return PeerRefused(message, code=int(code) if code is not None else 0)
