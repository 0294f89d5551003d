"""Reads chosen EXIF fields of a photograph, as JSON values."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from typing import Any

from fastfeed.decode.pillow import OPEN

__all__ = ["exif_columns"]

_MAKE, _MODEL, _DATE, _EXIF, _GPS = 0x010F, 0x0110, 0x0132, 0x8769, 0x8825
_ORIGINAL, _OFFSET, _LENS_MAKE, _LENS = 0x9003, 0x9011, 0xA433, 0xA434  # of the EXIF folder
_SIGNS = {"N": 1, "S": -1, "E": 1, "W": -1}
_TIME = re.compile(r"(\d{4}):(\d\d):(\d\d) (\d\d:\d\d:\d\d)")
_ZONE = re.compile(r"[+-]\d\d:\d\d|Z")
_MAX_TEXT = 200  # characters


def exif_columns(blob: bytes, format: str, fields: Sequence[str]) -> dict[str, Any]:
    """`exif_time`, `exif_camera`, ... for each of `fields` (of recipe.EXIF_FIELDS); None where the
    file says nothing.

    Times are ISO 8601, with a zone if the camera recorded one; gps is [latitude, longitude] in
    degrees, north and east positive. Never raises for what a file contains.
    """
    try:
        image = OPEN[format](io.BytesIO(blob), "")  # of TIFFs, folders are read from the open file
        exif = image.getexif()
    except Exception:  # hostile bytes make plugins raise anything
        exif = {}
    return {f"exif_{field}": _value(exif, field) for field in fields}


def _value(exif: Any, field: str) -> Any:
    try:
        return _READERS[field](exif)
    except Exception:  # a damaged folder or field, such as a fraction with denominator 0
        return None


def _time(exif: Any) -> str | None:
    details = exif.get_ifd(_EXIF)
    match = _TIME.match(str(details.get(_ORIGINAL) or exif.get(_DATE) or ""))
    if not match:
        return None
    zone = _ZONE.fullmatch(_text(details.get(_OFFSET)) or "")
    return f"{match[1]}-{match[2]}-{match[3]}T{match[4]}" + (zone[0] if zone else "")


def _camera(exif: Any) -> str | None:
    return _named(exif.get(_MAKE), exif.get(_MODEL))


def _lens(exif: Any) -> str | None:
    details = exif.get_ifd(_EXIF)
    return _named(details.get(_LENS_MAKE), details.get(_LENS))


def _gps(exif: Any) -> list[float] | None:
    place = exif.get_ifd(_GPS)
    latitude, longitude = _degrees(place[1], place[2]), _degrees(place[3], place[4])
    is_valid = abs(latitude) <= 90 and abs(longitude) <= 180  # false for NaN
    return [round(latitude, 7), round(longitude, 7)] if is_valid else None


def _degrees(letter: Any, parts: Any) -> float:
    degrees, minutes, seconds = (float(part) for part in parts)
    return _SIGNS[str(letter).strip("\0 ").upper()] * (degrees + minutes / 60 + seconds / 3600)


def _named(make: Any, model: Any) -> str | None:
    """Make and model, where the model does not begin with the make."""
    make, model = _text(make), _text(model)
    if make and model and not model.lower().startswith(make.split()[0].lower()):
        return f"{make} {model}"
    return model or make


def _text(value: Any) -> str | None:
    """One printable line."""
    text = (
        value.decode("utf-8", "replace")
        if isinstance(value, bytes)
        else value
        if isinstance(value, str)
        else ""
    )
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text[:_MAX_TEXT] or None


_READERS: dict[str, Callable[[Any], Any]] = {
    "time": _time,
    "camera": _camera,
    "lens": _lens,
    "gps": _gps,
}
