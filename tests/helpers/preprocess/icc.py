"""ICC profiles made by hand, and what their colors are in sRGB by the textbook, in float64."""

from __future__ import annotations

import struct

import numpy as np

D50 = np.array([0.9642, 1.0, 0.8249])  # of the profile connection space
D65 = np.array([0.3127 / 0.3290, 1.0, (1 - 0.3127 - 0.3290) / 0.3290])
_BRADFORD = np.array(
    [[0.8951, 0.2664, -0.1614], [-0.7502, 1.7135, 0.0367], [0.0389, -0.0685, 1.0296]]
)
PRIMARIES = {  # x, y of red, green, blue; all with white at D65
    "sRGB": ((0.64, 0.33), (0.30, 0.60), (0.15, 0.06)),
    "Display P3": ((0.680, 0.320), (0.265, 0.690), (0.150, 0.060)),
    "Adobe RGB": ((0.64, 0.33), (0.21, 0.71), (0.15, 0.06)),
    "linear": ((0.64, 0.33), (0.30, 0.60), (0.15, 0.06)),
}


def srgb_linear(v: np.ndarray) -> np.ndarray:
    """IEC 61966-2-1: [0, 1] as encoded -> light."""
    return np.where(v <= 0.04045, v / 12.92, ((v + 0.055) / 1.055) ** 2.4)


def srgb_encoded(light: np.ndarray) -> np.ndarray:
    light = np.clip(light, 0, 1)
    return np.where(light <= 0.0031308, light * 12.92, 1.055 * light ** (1 / 2.4) - 0.055)


CURVES = {
    "sRGB": srgb_linear,
    "Display P3": srgb_linear,
    "Adobe RGB": lambda v: v ** (563 / 256),
    "gray 1.8": lambda v: v**1.8,
    "linear": lambda v: v,
}


def to_xyz(name: str) -> np.ndarray:
    """Light -> XYZ under D50: 3 x 3."""
    columns = np.array([(x / y, 1, (1 - x - y) / y) for x, y in PRIMARIES[name]]).T
    matrix = columns * np.linalg.solve(columns, D65)
    cones = np.diag((_BRADFORD @ D50) / (_BRADFORD @ D65))
    return np.linalg.inv(_BRADFORD) @ cones @ _BRADFORD @ matrix


def srgb_of(name: str, pixels: np.ndarray) -> np.ndarray:
    """uint8 (..., 3) in these colors -> float64 in [0, 255], clipped to sRGB's gamut."""
    xyz = CURVES[name](pixels / 255) @ to_xyz(name).T
    return 255 * srgb_encoded(xyz @ np.linalg.inv(to_xyz("sRGB")).T)


def srgb_of_lab(lab: np.ndarray) -> np.ndarray:
    """CIE 1976 under D50, (..., 3) -> float64 in [0, 255]."""
    y = (lab[..., 0] + 16) / 116
    f = np.stack([y + lab[..., 1] / 500, y, y - lab[..., 2] / 200], axis=-1)
    xyz = D50 * np.where(f > 6 / 29, f**3, 3 * (6 / 29) ** 2 * (f - 4 / 29))
    return 255 * srgb_encoded(xyz @ np.linalg.inv(to_xyz("sRGB")).T)


def _fixed(*values: float) -> bytes:
    return b"".join(struct.pack(">i", round(v * 65_536)) for v in values)


def _curve(name: str) -> bytes:
    table = np.rint(CURVES[name](np.linspace(0, 1, 4096)) * 65_535).astype(">u2")
    return b"curv\0\0\0\0" + struct.pack(">I", len(table)) + table.tobytes()


def _profile(
    space: bytes, kind: bytes, connection: bytes, description: str, tags: dict[bytes, bytes]
) -> bytes:
    text = description.encode() + b"\0"
    desc = b"desc\0\0\0\0" + struct.pack(">I", len(text)) + text + bytes(78)
    tags = {
        b"desc": desc,
        b"cprt": b"text\0\0\0\0none\0",
        b"wtpt": b"XYZ \0\0\0\0" + _fixed(*D50),
        **tags,
    }
    at, index, body = 132 + 12 * len(tags), b"", b""
    for name, content in tags.items():
        index += name + struct.pack(">II", at + len(body), len(content))
        body += content + bytes(-len(content) % 4)
    head = struct.pack(">I4sI4s4s4s", at + len(body), bytes(4), 0x02400000, kind, space, connection)
    head += struct.pack(">6H", 2024, 1, 1, 0, 0, 0) + b"acsp" + bytes(28) + _fixed(*D50)
    return head + bytes(128 - len(head)) + struct.pack(">I", len(tags)) + index + body


def rgb_profile(name: str, description: str | None = None, padding: int = 0) -> bytes:
    """Of PRIMARIES; `padding` bytes that mean nothing make it long."""
    columns = to_xyz(name).T
    tags = {
        key: b"XYZ \0\0\0\0" + _fixed(*c)
        for key, c in zip((b"rXYZ", b"gXYZ", b"bXYZ"), columns, strict=True)
    }
    tags |= {key: _curve(name) for key in (b"rTRC", b"gTRC", b"bTRC")}
    if padding:
        tags[b"zzzz"] = b"data\0\0\0\0" + bytes(range(256)) * (padding // 256)
    return _profile(b"RGB ", b"mntr", b"XYZ ", description or name, tags)


def gray_profile(name: str = "gray 1.8") -> bytes:
    return _profile(b"GRAY", b"mntr", b"XYZ ", name, {b"kTRC": _curve(name)})


def cmyk_colors() -> np.ndarray:
    """The Lab of each combination of full inks, (2, 2, 2, 2, 3): whole numbers in sRGB's gamut;
    black is black.
    """
    lab = np.zeros((2, 2, 2, 2, 3))
    for c, m, y in np.ndindex(2, 2, 2):
        if c + m + y < 3:
            lab[c, m, y, 0] = 100 - 17 * (c + m + y), 25 * m - 20 * c, 30 * y - 20 * c
    return np.rint(lab * [2.55, 1, 1]) / [2.55, 1, 1]


def cmyk_profile(black: float = 0, kind: bytes = b"prtr") -> bytes:
    """A table with two steps per ink, in 8 bits. black: lightness of all that would have less."""
    lab = np.maximum(cmyk_colors(), [black, -128, -128])
    table = (lab * [2.55, 1, 1] + [0, 128, 128]).round().astype(np.uint8)
    ramp = bytes(range(256))
    lut = b"mft1\0\0\0\0" + bytes((4, 3, 2, 0)) + _fixed(1, 0, 0, 0, 1, 0, 0, 0, 1)
    lut += ramp * 4 + table.tobytes() + ramp * 3
    return _profile(b"CMYK", kind, b"Lab ", "Two inks and two more", {b"A2B0": lut, b"A2B1": lut})
