"""Names ICC profiles and converts their colors to sRGB.

Relative colorimetric with black point compensation, in 8 bits, through LittleCMS. A profile that
maps every color to itself, within two levels, counts as sRGB whatever its name. A damaged profile,
or one for another color model, is ignored. Colors named by numbers (ITU-T H.273), or by gamma and
chromaticities, become profiles.

HDR becomes SDR by one rule: 203 cd/m² is white (ITU-R BT.2408), anything brighter is clipped. HLG
is shown at 1000 cd/m² with a gamma of 1.2 on each channel. BT.709 and its relatives are undone by
their camera curve's inverse.
"""

from __future__ import annotations

import functools
import io
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from PIL import Image, ImageCms

_INTENT = ImageCms.Intent.RELATIVE_COLORIMETRIC
_FLAGS = ImageCms.Flags.BLACKPOINTCOMPENSATION
_SPACES = {"L": "GRAY", "RGB": "RGB", "CMYK": "CMYK"}
# names to find in descriptions
_NAMES = ("Display P3", "Adobe RGB", "ProPhoto RGB", "Apple RGB", "sRGB")
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
        """Convert pixels of `mode` to sRGB; others are sRGB already and become RGB."""
        if image.mode == self.mode:
            return self.transform.apply(image)
        return image if image.mode == "RGB" else image.convert("RGB")


NONE = Profile("none")
_DAMAGED = Profile("damaged")


def read_profile(icc: bytes | None, mode: str) -> Profile:
    """The profile of pixels in `mode` ("L", "RGB", "CMYK"); b"" is an unreadable one."""
    return NONE if icc is None else _read(icc, mode)


@functools.lru_cache(_CACHE_SIZE)
def _read(icc: bytes, mode: str) -> Profile:
    try:
        profile = ImageCms.ImageCmsProfile(io.BytesIO(icc))
        space = profile.profile.xcolor_space.strip()
        srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))
        is_mixed = mode == "L" and space == "RGB"
        if is_mixed and _is_identity(_transform(profile, srgb, "RGB", "RGB"), "RGB"):
            return Profile("sRGB")  # many programs write it into gray files; gray stays gray
        if space != _SPACES.get(mode):
            return _DAMAGED
        transform = _transform(profile, srgb, mode, "RGB")
        if mode != "CMYK" and _is_identity(transform, mode):
            return Profile("sRGB" if mode == "RGB" else _name(profile))
        return Profile(_name(profile), transform, mode != "CMYK" and _is_linear(transform, mode))
    except Exception:
        # LittleCMS and Pillow raise anything for hostile profiles; the image is usable without
        return _DAMAGED


def _transform(profile: Any, target: Any, mode: str, to: str) -> Any:
    return ImageCms.ImageCmsTransform(profile, target, mode, to, _INTENT, flags=_FLAGS)


def _is_linear(transform: Any, mode: str) -> bool:
    """True if middle gray changes so much that it changes scaling (linear: 60, gamma 1.8: 20)."""
    middle = Image.new(mode, (1, 1), (128,) * len(mode))
    return int(np.abs(np.asarray(transform.apply(middle)).astype(int) - 128).max()) > LINEAR


def _is_identity(transform: Any, mode: str) -> bool:
    """True if the transform leaves colors unchanged."""
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


Chromaticities = tuple[float, ...]  # x, y of white, red, green and blue
Curve = Callable[[np.ndarray], np.ndarray]  # levels, 1 for the highest, to light, 1 for white
_D65 = (0.3127, 0.3290)
_C = (0.310, 0.316)
_DCI = (0.314, 0.351)
_E = (1 / 3, 1 / 3)
_SRGB = (1, 13)
_UNSPECIFIED = 2
_PRIMARIES: dict[int, tuple[str, Chromaticities]] = {  # H.273, table 2
    1: ("BT.709", (*_D65, 0.640, 0.330, 0.300, 0.600, 0.150, 0.060)),
    4: ("BT.470 M", (*_C, 0.670, 0.330, 0.210, 0.710, 0.140, 0.080)),
    5: ("BT.470 BG", (*_D65, 0.640, 0.330, 0.290, 0.600, 0.150, 0.060)),
    6: ("SMPTE 170M", (*_D65, 0.630, 0.340, 0.310, 0.595, 0.155, 0.070)),
    7: ("SMPTE 240M", (*_D65, 0.630, 0.340, 0.310, 0.595, 0.155, 0.070)),
    8: ("film", (*_C, 0.681, 0.319, 0.243, 0.692, 0.145, 0.049)),
    9: ("BT.2020", (*_D65, 0.708, 0.292, 0.170, 0.797, 0.131, 0.046)),
    10: ("XYZ", (*_E, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0)),
    11: ("DCI P3", (*_DCI, 0.680, 0.320, 0.265, 0.690, 0.150, 0.060)),
    12: ("Display P3", (*_D65, 0.680, 0.320, 0.265, 0.690, 0.150, 0.060)),
    22: ("EBU 3213", (*_D65, 0.630, 0.340, 0.295, 0.605, 0.155, 0.077)),
}
# cd/m²
_WHITE = 203
_HLG_PEAK = 1000
_PQ_PEAK = 10_000


def _bt709(v: np.ndarray) -> np.ndarray:
    return np.where(v < 0.081, v / 4.5, ((v + 0.099) / 1.099) ** (1 / 0.45))


def _srgb(v: np.ndarray) -> np.ndarray:
    return np.where(v <= 0.04045, v / 12.92, ((v + 0.055) / 1.055) ** 2.4)


def _pq(v: np.ndarray) -> np.ndarray:
    root = v ** (32 / 2523)
    light = np.maximum(root - 3424 / 4096, 0) / (2413 / 128 - 2392 / 128 * root)
    return light ** (16384 / 2610) * _PQ_PEAK / _WHITE


def _hlg(v: np.ndarray) -> np.ndarray:
    a = 0.17883277
    b = 0.28466892
    c = 0.55991073
    scene = np.where(v <= 0.5, v * v / 3, (np.exp((v - c) / a) + b) / 12)
    return scene**1.2 * _HLG_PEAK / _WHITE


_TRANSFERS: dict[int, tuple[str, Curve]] = {  # table 3; to light, 1 for white
    1: ("BT.709", _bt709),
    4: ("gamma 2.2", lambda v: v**2.2),
    5: ("gamma 2.8", lambda v: v**2.8),
    6: ("BT.709", _bt709),
    7: ("SMPTE 240M", lambda v: np.where(v < 0.0912, v / 4, ((v + 0.1115) / 1.1115) ** (1 / 0.45))),
    8: ("linear", lambda v: v),
    9: ("logarithmic", lambda v: np.where(v > 0, 10 ** (2 * (v - 1)), 0)),
    10: ("logarithmic", lambda v: np.where(v > 0, 10 ** (2.5 * (v - 1)), 0)),
    11: ("BT.709", _bt709),
    12: ("BT.709", _bt709),
    13: ("sRGB", _srgb),
    14: ("BT.709", _bt709),
    15: ("BT.709", _bt709),
    16: ("PQ", _pq),
    17: ("gamma 2.6", lambda v: v**2.6 * 52.37 / 48),
    18: ("HLG", _hlg),
}
_LIKE_SRGB = 0.05  # share that a gamma may differ from 2.2, as in libpng
_LIKE_BT709 = 0.005  # that a chromaticity may differ
_GAMMAS = 0.1, 10.0  # others are damage
_MAX_CHROMATICITY = 1.1


@functools.lru_cache(_CACHE_SIZE)
def signaled(
    primaries: int | Chromaticities,
    transfer: int | float,
    full_range: bool = True,
    mode: str = "RGB",
) -> Profile:
    """The profile of pixels whose colors are named without an ICC profile.

    Args:
        primaries: ColourPrimaries of H.273; or x, y of white, red, green and blue; () if only a
            gamma is known.
        transfer: TransferCharacteristics of H.273, an int; or the exponent that gives light, a
            float such as 2.2.
        full_range: black and white are 0 and 255; else 16 and 235.
        mode: "L" or "RGB", of the pixels.

    Returns:
        A profile named "sRGB" for what needs no conversion, "CICP 3/19" without a conversion for
        numbers that H.273 reserves, "damaged" for chromaticities that no colors have, "none" where
        the file leaves both open.
    """
    if isinstance(primaries, int):
        if (primaries, transfer) == (_UNSPECIFIED, _UNSPECIFIED):
            return NONE
        primaries = _SRGB[0] if primaries == _UNSPECIFIED else primaries
        transfer = _SRGB[1] if transfer == _UNSPECIFIED else transfer
        if primaries not in _PRIMARIES:
            return Profile(f"CICP {primaries}/{transfer}")
        space, points = _PRIMARIES[primaries]
    else:
        space, points = _named_points(primaries)
    if isinstance(transfer, int):
        if transfer not in _TRANSFERS:
            return Profile(f"CICP {primaries}/{transfer}")
        curve_name, curve = _TRANSFERS[transfer]
    else:
        curve_name, curve = _named_gamma(transfer)
    if not curve_name:
        return Profile("damaged")
    if full_range and curve_name == "sRGB" and (space in ("", "BT.709") or mode == "L"):
        return Profile("sRGB")
    name = f"{space} {curve_name}".lstrip()
    if space == curve_name or (space == "Display P3" and curve_name == "sRGB"):
        name = space
    name += "" if full_range else ", 16 to 235"
    levels = np.arange(256) / 255 if full_range else np.clip((np.arange(256) - 16) / 219, 0, 1)
    try:
        light = np.clip(curve(levels), 0, 1)
        if mode == "L":
            return _gray(name, light)
        profile = read_profile(_profile(name, points, light), mode)
        return replace(profile, name=name) if profile.transform else profile
    except (ArithmeticError, ValueError, np.linalg.LinAlgError):
        # chromaticities on one line, or far outside
        return Profile("damaged")


def _named_points(points: Chromaticities) -> tuple[str, Chromaticities]:
    if not points:
        return "", _PRIMARIES[1][1]
    for name, known in _PRIMARIES.values():
        if max(abs(a - b) for a, b in zip(points, known, strict=True)) <= _LIKE_BT709:
            return name, known
    return "cHRM", points


def _named_gamma(gamma: float) -> tuple[str, Curve]:
    """A name and a curve; no name for damage. What is near 2.2 is meant as sRGB, as in libpng."""
    if not _GAMMAS[0] <= gamma <= _GAMMAS[1]:
        return "", _srgb
    if abs(gamma / 2.2 - 1) <= _LIKE_SRGB:
        return _TRANSFERS[13]
    if abs(gamma - 1) <= _LIKE_SRGB:
        return _TRANSFERS[8]
    return f"gamma {gamma:.2f}", lambda v: v**gamma


@dataclass(frozen=True, slots=True)
class _Levels:
    """A transform of gray, exact where LittleCMS would interpolate."""

    table: tuple[int, ...]
    input_mode: str = "L"

    def apply(self, image: Image.Image) -> Image.Image:
        return image.point(self.table).convert("RGB")


def _gray(name: str, light: np.ndarray) -> Profile:
    encoded = np.where(light <= 0.0031308, light * 12.92, 1.055 * light ** (1 / 2.4) - 0.055)
    levels = np.rint(255 * encoded).astype(int)
    if np.abs(levels - np.arange(256)).max() <= TOLERANCE:
        return Profile("sRGB")
    return Profile(name, _Levels(tuple(levels.tolist())), abs(int(levels[128]) - 128) > LINEAR)


def _profile(name: str, points: Chromaticities, light: np.ndarray) -> bytes:
    """An ICC profile, version 2: a curve for each of the 256 levels, and a matrix."""
    trc = b"curv\0\0\0\0" + struct.pack(">I", 256) + np.rint(light * 65_535).astype(">u2").tobytes()
    columns = _to_xyz(points).T
    tags: dict[bytes, bytes] = dict.fromkeys((b"rTRC", b"gTRC", b"bTRC"), trc)
    points_of = zip((b"rXYZ", b"gXYZ", b"bXYZ"), map(_xyz, columns), strict=True)
    return _packed(name, dict(points_of) | tags)


_D50 = np.array([0.9642, 1.0, 0.8249])  # white of profiles
_BRADFORD = np.array(
    [[0.8951, 0.2664, -0.1614], [-0.7502, 1.7135, 0.0367], [0.0389, -0.0685, 1.0296]]
)


def _to_xyz(points: Chromaticities) -> np.ndarray:
    """Light of red, green and blue to XYZ under D50, by Bradford: float64 (3, 3)."""
    if not all(0 <= v <= _MAX_CHROMATICITY for v in points) or not points[1]:
        raise ValueError(points)
    pairs = [(points[k], points[k + 1]) for k in range(0, 8, 2)]
    white, *colors = (np.array([x, y, 1 - x - y]) for x, y in pairs)
    matrix = np.array(colors).T
    white = white / white[1]
    adapted = _BRADFORD @ white
    if (adapted <= 0).any() or abs(np.linalg.det(matrix)) < 1e-3:
        raise ValueError(points)
    matrix = matrix * np.linalg.solve(matrix, white)
    gains = np.diag(_BRADFORD @ _D50 / adapted)
    return np.linalg.inv(_BRADFORD) @ gains @ _BRADFORD @ matrix


def _xyz(values: np.ndarray) -> bytes:
    return b"XYZ \0\0\0\0" + struct.pack(">3i", *np.rint(values * 65_536).astype(int).tolist())


def _packed(name: str, tags: dict[bytes, bytes]) -> bytes:
    """Bytes of an ICC profile with these tags, as in ICC.1:2001-04, clause 6."""
    text = name.encode("ascii") + b"\0"
    description = b"desc\0\0\0\0" + struct.pack(">I", len(text)) + text + bytes(78)
    tags = {b"desc": description, b"wtpt": _xyz(_D50), **tags}
    index = b""
    body = b""
    start = 132 + 12 * len(tags)
    for tag, content in tags.items():
        index += tag + struct.pack(">II", start + len(body), len(content))
        body += content + bytes(-len(content) % 4)
    kinds = b"mntr", b"RGB ", b"XYZ ", b"acsp"
    head = struct.pack(">I4xI4s4s4s12x4s28x", start + len(body), 0x02400000, *kinds)
    head += _xyz(_D50)[8:]
    return head.ljust(128, b"\0") + struct.pack(">I", len(tags)) + index + body
