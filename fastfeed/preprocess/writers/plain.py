"""Metadata of a sample as text that every reader accepts."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from fastfeed.preprocess.model.entry import Entry

__all__ = ["as_json", "as_text", "class_of", "name_of"]

_SURROGATES = re.compile("[\ud800-\udfff]")


def as_json(meta: dict[str, Any]) -> bytes:
    """ASCII JSON, sorted, on one line.

    Bytes of a name that are not UTF-8 are surrogates, as `os.fsdecode` makes them. Non-finite
    numbers become null.
    """
    try:
        return _dump(meta)
    except ValueError:
        return _dump(_finite(meta))


def as_text(text: str) -> str:
    """Replace surrogates by U+FFFD: readers fail on invalid UTF-8."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def _dump(meta: Any) -> bytes:
    return json.dumps(meta, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def name_of(entry: Entry) -> str:
    """The URI of the source image; "" if unknown."""
    return str(entry.meta.get("uri") or "")


def class_of(entry: Entry) -> str:
    """The class name; "" if there is none."""
    return str(entry.meta.get("class") or "")
