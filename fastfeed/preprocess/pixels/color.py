"""ICC profiles: what they are called, and the way from their colors to sRGB.

Relative colorimetric with black point compensation, in 8 bits, through LittleCMS. A profile that maps every color to
itself, within two levels, is sRGB whatever it calls itself, and pixels stay as they are. One that is damaged, or of
another kind of pixels than the image has, is ignored. Only ICC profiles count: PNG's gAMA, cHRM, sRGB and cICP chunks,
AVIF's nclx and EXIF's color space are not looked at, as in nearly all software that trains on photographs.
"""

from __future__ import annotations

import hashlib
import io
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image, ImageCms

__all__ = ["NONE", "Profile", "profile_of"]

_INTENT = ImageCms.Intent.RELATIVE_COLORIMETRIC
_FLAGS = ImageCms.Flags.BLACKPOINTCOMPENSATION
_SPACES = {"L": "GRAY", "RGB": "RGB", "CMYK": "CMYK"}
_KNOWN = ("Display P3", "Adobe RGB", "ProPhoto RGB", "Apple RGB", "sRGB")  # whatever else stands around it
_SAME = 2  # levels of 255
_KEPT = 64  # profiles; a job meets a few kinds of cameras
_LONGEST = 40  # characters of a name


@dataclass(frozen=True, slots=True)
class Profile:
    """The meaning of an image's numbers."""

    name: str  # "none", "sRGB", "Display P3", ..., "damaged"
    transform: Any = None  # ImageCmsTransform to RGB; None: nothing is to be done
    back: Any = None  # from sRGB to these colors, where the profile knows the way

    @property
    def mode(self) -> str | None:
        """Of pixels that are to be converted."""
        return self.transform.input_mode if self.transform else None

    def converted(self, image: Image.Image) -> Image.Image:
        """Pixels of that mode as sRGB; those of another one are sRGB, and become RGB."""
        if image.mode == self.mode:
            return self.transform.apply(image)
        return image if image.mode == "RGB" else image.convert("RGB")

    def source_color(self, color: tuple[int, int, int]) -> tuple[int, int, int]:
        """What becomes this sRGB color once it is converted."""
        if self.back is None:
            return color
        return self.back.apply(Image.new("RGB", (1, 1), color)).getpixel((0, 0))


NONE = Profile("none")
_DAMAGED = Profile("damaged")
_found: OrderedDict[tuple[bytes, str], Profile] = OrderedDict()
_lock = threading.Lock()


def profile_of(icc: bytes | None, mode: str) -> Profile:
    """The profile of pixels in `mode`, "L", "RGB" or "CMYK"; None: there is none, b"": what there was is unreadable."""
    if icc is None:
        return NONE
    key = hashlib.sha256(icc).digest(), mode
    with _lock:
        if key in _found:
            _found.move_to_end(key)
            return _found[key]
    profile = _read(icc, mode)
    with _lock:
        _found[key] = profile
        while len(_found) > _KEPT:
            _found.popitem(last=False)
    return profile


def _read(icc: bytes, mode: str) -> Profile:
    try:
        given = ImageCms.ImageCmsProfile(io.BytesIO(icc))
        space = given.profile.xcolor_space.strip()
        srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))
        if mode == "L" and space == "RGB" and _same(_transform(given, srgb, "RGB", "RGB"), "RGB"):
            return Profile("sRGB")  # what many programs write into gray files; gray stays gray
        if space != _SPACES.get(mode):
            return _DAMAGED
        transform = _transform(given, srgb, mode, "RGB")
        if mode != "CMYK" and _same(transform, mode):
            return Profile("sRGB" if mode == "RGB" else _name(given))
        return Profile(_name(given), transform, _back(srgb, given) if mode == "RGB" else None)
    except Exception:  # LittleCMS and Pillow raise anything for hostile profiles; the picture is worth having without
        return _DAMAGED


def _transform(given: Any, wanted: Any, mode: str, to: str) -> Any:
    return ImageCms.ImageCmsTransform(given, wanted, mode, to, _INTENT, flags=_FLAGS)


def _back(srgb: Any, given: Any) -> Any:
    try:
        return _transform(srgb, given, "RGB", "RGB")
    except Exception:  # a scanner's profile knows only one way
        return None


def _same(transform: Any, mode: str) -> bool:
    """Whether it leaves colors as they are."""
    ramp = np.arange(256, dtype=np.uint8)
    if mode == "L":
        colors = ramp[None]
        want = np.stack([colors] * 3, axis=2)
    else:
        steps = np.linspace(0, 255, 12).astype(np.uint8)
        cube = np.stack(np.meshgrid(steps, steps, steps), axis=3).reshape(-1, 3)
        colors = want = np.concatenate([cube, np.stack([ramp] * 3, axis=1)])[None]
    got = np.asarray(transform.apply(Image.fromarray(np.ascontiguousarray(colors))))
    return int(np.abs(got.astype(int) - want).max()) <= _SAME


def _name(profile: Any) -> str:
    """From its description; short, printable, on one line."""
    text = profile.profile.profile_description or profile.profile.model or ""
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    for name in _KNOWN:
        if name.replace(" ", "").lower() in text.replace(" ", "").lower():
            # "sRGB" in a name does not make it sRGB: that it is not, is known here
            return f"not {text}"[:_LONGEST] if name == "sRGB" else name
    return text[:_LONGEST].strip() or "unnamed"
