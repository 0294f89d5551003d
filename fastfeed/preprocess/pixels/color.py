"""Names ICC profiles and converts their colors to sRGB.

Relative colorimetric with black point compensation, in 8 bits, through LittleCMS. A profile that
maps every color to itself, within two levels, counts as sRGB whatever its name, and pixels are not
changed. A profile that is damaged, or for another color model than the image's, is ignored.
`signals` makes profiles for files that name their colors by numbers; EXIF's color space is ignored,
as in nearly all training software.
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

__all__ = ["LINEAR", "NONE", "TOLERANCE", "Profile", "profile_of"]

_INTENT = ImageCms.Intent.RELATIVE_COLORIMETRIC
_FLAGS = ImageCms.Flags.BLACKPOINTCOMPENSATION
_SPACES = {"L": "GRAY", "RGB": "RGB", "CMYK": "CMYK"}
# names to find in descriptions
_NAMES = (
    "Display P3",
    "Adobe RGB",
    "ProPhoto RGB",
    "Apple RGB",
    "sRGB",
)
TOLERANCE = 2  # levels of 255
LINEAR = 40  # levels of 255
_CACHE_SIZE = 64  # profiles; a job meets few kinds of cameras
_MAX_NAME = 40  # characters of a name


@dataclass(frozen=True, slots=True)
class Profile:
    """A color profile: its name and its transforms."""

    name: str  # "none", "sRGB", "Display P3", ..., "damaged"
    transform: Any = None  # ImageCmsTransform to sRGB; None: nothing to convert
    # levels are spread far from sRGB's, as of linear light: convert before scaling
    linear: bool = False

    @property
    def mode(self) -> str | None:
        """Mode of pixels that the transform takes."""
        return self.transform.input_mode if self.transform else None

    def converted(self, image: Image.Image) -> Image.Image:
        """Convert pixels to sRGB; images of another mode than `mode` are sRGB already and only
        become RGB.
        """
        if image.mode == self.mode:
            return self.transform.apply(image)
        return image if image.mode == "RGB" else image.convert("RGB")


NONE = Profile("none")
_DAMAGED = Profile("damaged")
_cache: OrderedDict[tuple[bytes, str], Profile] = OrderedDict()
_lock = threading.Lock()


def profile_of(icc: bytes | None, mode: str) -> Profile:
    """The profile of pixels in `mode`, "L", "RGB" or "CMYK"; None: no profile, b"": an unreadable
    one.
    """
    if icc is None:
        return NONE
    key = hashlib.sha256(icc).digest(), mode
    with _lock:
        if key in _cache:
            _cache.move_to_end(key)
            return _cache[key]
    profile = _read(icc, mode)
    with _lock:
        _cache[key] = profile
        while len(_cache) > _CACHE_SIZE:
            _cache.popitem(last=False)
    return profile


def _read(icc: bytes, mode: str) -> Profile:
    try:
        profile = ImageCms.ImageCmsProfile(io.BytesIO(icc))
        space = profile.profile.xcolor_space.strip()
        srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))
        if (
            mode == "L"
            and space == "RGB"
            and _is_identity(_transform(profile, srgb, "RGB", "RGB"), "RGB")
        ):
            return Profile("sRGB")  # many programs write it into gray files; gray stays gray
        if space != _SPACES.get(mode):
            return _DAMAGED
        transform = _transform(profile, srgb, mode, "RGB")
        if mode != "CMYK" and _is_identity(transform, mode):
            return Profile("sRGB" if mode == "RGB" else _name(profile))
        return Profile(_name(profile), transform, mode != "CMYK" and _is_linear(transform, mode))
    except (
        Exception
    ):  # LittleCMS and Pillow raise anything for hostile profiles; the image is usable without
        return _DAMAGED


def _transform(profile: Any, target: Any, mode: str, to: str) -> Any:
    return ImageCms.ImageCmsTransform(profile, target, mode, to, _INTENT, flags=_FLAGS)


def _is_linear(transform: Any, mode: str) -> bool:
    """Whether middle gray changes so much (by 60 levels from linear light, by 20 from gamma 1.8)
    that scaling does.
    """
    middle = Image.new(mode, (1, 1), (128,) * len(mode))
    return int(np.abs(np.asarray(transform.apply(middle)).astype(int) - 128).max()) > LINEAR


def _is_identity(transform: Any, mode: str) -> bool:
    """Whether the transform leaves colors unchanged."""
    ramp = np.arange(256, dtype=np.uint8)
    if mode == "L":
        colors = ramp[None]
        want = np.stack([colors] * 3, axis=2)
    else:
        steps = np.linspace(0, 255, 12).astype(np.uint8)
        cube = np.stack(np.meshgrid(steps, steps, steps), axis=3).reshape(-1, 3)
        colors = want = np.concatenate([cube, np.stack([ramp] * 3, axis=1)])[None]
    got = np.asarray(transform.apply(Image.fromarray(np.ascontiguousarray(colors))))
    return int(np.abs(got.astype(int) - want).max()) <= TOLERANCE


def _name(profile: Any) -> str:
    """A short, printable name from the profile's description."""
    text = profile.profile.profile_description or profile.profile.model or ""
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    for name in _NAMES:
        if name.replace(" ", "").lower() in text.replace(" ", "").lower():
            # named sRGB, but known not to be sRGB
            return f"not {text}"[:_MAX_NAME] if name == "sRGB" else name
    return text[:_MAX_NAME].strip() or "unnamed"
