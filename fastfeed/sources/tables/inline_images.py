"""Images that a table holds as text: data URIs, and base64 of an image file."""

from __future__ import annotations

import base64
import binascii
import re
from urllib.parse import unquote_to_bytes

from fastfeed.sources.tables.string_column import StringColumn
from fastfeed.storage.reads import Unread

LONGEST_PATH = 4096  # bytes, on Linux, with its end
_SHORTEST = 40  # characters of base64: no image has less
_DATA = re.compile(r"data:([^,]{0,200}),", re.IGNORECASE)
# how base64 of JPEG, PNG, GIF, WebP, TIFF, BMP, AVIF and HEIC begins
_BASE64 = ("/9j/", "iVBORw0KGgo", "R0lGOD", "UklGR", "SUkqA", "TU0AK", "Qk", "AAAA")
_CHARACTERS = re.compile(r"[A-Za-z0-9+/\s]{40,}={0,2}\s*")
_TRACES = tuple(map(str.encode, ("data:", "DATA:", *_BASE64)))


def is_inline(text: str) -> bool:
    """Return True if a text is an image rather than a path."""
    if text[:5].lower() == "data:":
        return True
    return (
        len(text) >= _SHORTEST
        and text.startswith(_BASE64)
        and _CHARACTERS.fullmatch(text) is not None
    )


def has_inline(texts: StringColumn) -> bool:
    """Return True if any text is an image."""
    blob = texts.blob.tobytes()
    if not any(trace in blob for trace in _TRACES):
        return False
    return any(map(is_inline, texts.tolist()))


def inline_image(text: str) -> bytes | Unread:
    """The bytes of an image in a text."""
    header = _DATA.match(text)
    if header is None and text[:5].lower() == "data:":
        return Unread("corrupt", "a data URI without a comma")
    content = text[header.end() :] if header else text
    try:
        if header and not header[1].lower().endswith(";base64"):
            return unquote_to_bytes(content) or Unread("empty")
        return base64.b64decode("".join(content.split()), validate=True) or Unread("empty")
    except (binascii.Error, ValueError) as error:
        return Unread("corrupt", f"base64: {error}")
