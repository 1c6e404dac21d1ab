"""The bytes of a file in 0.3 over REST and gRPC, which may be encoded once more than declared.

The .proto has bytes there. The SDKs put base64 text into them, other peers the bytes themselves,
and nothing tells which. Bytes that are not valid base64 are used unchanged. Valid base64 could be
either, so the declared media type decides: the bytes are used unchanged if only they can be of this
type, and otherwise they are decoded, as the SDKs intend. If the type says nothing about its bytes,
they are decoded too.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Iterator, Mapping

import msgspec

from dragoman.core.model import Json

AS_SENT, DECODED = "as sent", "decoded"
LONGEST_WORD = 256
"""The length beyond which text without a space, a comma or a line end is taken for base64."""


def bytes_in(content: bytes, media_type: str) -> bytes:
    """Returns the content of the file."""
    decoded = _decode(content)
    if decoded is None:
        return content
    return content if decide(content, media_type) == AS_SENT else decoded


def decide(content: bytes, media_type: str) -> str:
    """Returns how ambiguous bytes were interpreted, or an empty text if they were not ambiguous."""
    decoded = _decode(content)
    if decoded is None:
        return ""
    fits = _of(media_type)
    if fits is None or not fits(content) or fits(decoded):
        return DECODED
    # All base64 is text, and texts in other encodings than UTF-8 are files too.
    if fits is _text and (content.endswith(b"=") or len(content) > LONGEST_WORD):
        return DECODED
    return AS_SENT


def notes(files: Iterator[tuple[int, bytes, str]]) -> Iterator[Mapping[str, Json]]:
    """Returns how each of these files was interpreted, by the number of its part, for the log."""
    for part, content, media_type in files:
        if how := decide(content, media_type):
            yield {"what": "file_bytes", "part": part, "media_type": media_type, "taken": how}


def _decode(content: bytes) -> bytes | None:
    try:
        return binascii.a2b_base64(content, strict_mode=True) if content else None
    except ValueError:
        return None


# What bytes of a type look like

_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]").search
_TEXTS = frozenset(
    f"application/{name}"
    for name in (
        *("xml", "javascript", "ecmascript", "typescript", "yaml", "x-yaml", "toml", "sql", "csv"),
        *("graphql", "x-sh", "x-ndjson", "jsonl", "jsonlines", "x-www-form-urlencoded", "rtf"),
    )
)
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_RIFF, _OGG, _MATROSKA = b"RIFF", b"OggS", b"\x1aE\xdf\xa3"
_MAGIC: dict[str, tuple[bytes, ...]] = {
    "image/png": (b"\x89PNG",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/jpg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF8",),
    "image/webp": (_RIFF,),
    "image/bmp": (b"BM",),
    "image/tiff": (b"II*\0", b"MM\0*"),
    "application/pdf": (b"%PDF-",),
    "application/zip": _ZIP,
    "application/gzip": (b"\x1f\x8b",),
    "application/wasm": (b"\0asm",),
    "audio/wav": (_RIFF,),
    "audio/ogg": (_OGG,),
    "audio/flac": (b"fLaC",),
    "audio/mpeg": (b"ID3", b"\xff\xfb", b"\xff\xfa", b"\xff\xf3", b"\xff\xf2"),
    "video/ogg": (_OGG,),
    "video/webm": (_MATROSKA,),
    "video/x-matroska": (_MATROSKA,),
}
_OFFICE = ("application/vnd.openxmlformats-", "application/vnd.oasis.opendocument.")


def _of(media_type: str) -> Callable[[bytes], bool] | None:
    """Returns whether bytes can be of this type, or None if that is not known."""
    name = media_type.partition(";")[0].strip().lower()
    if name == "application/json" or name.endswith("+json"):
        return _json
    if name in _MAGIC:
        return lambda content: content.startswith(_MAGIC[name])
    if name.startswith(_OFFICE):
        return lambda content: content.startswith(_ZIP)
    if name.startswith("text/") or name.endswith("+xml") or name in _TEXTS:
        return _text
    return None


def _text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return _CONTROL(content) is None


def _json(content: bytes) -> bool:
    try:
        _skip(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


_skip = msgspec.json.Decoder(msgspec.Raw).decode
