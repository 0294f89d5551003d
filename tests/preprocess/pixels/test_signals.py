"""Colors named by numbers: against the formulas of ITU-R BT.2100, BT.709 and IEC 61966-2-1 in
float64.
"""

from __future__ import annotations

import numpy as np
import pytest
from helpers.preprocess import icc
from PIL import Image

from fastfeed.preprocess.pixels.color import signaled

LEVELS = (
    np.stack(np.meshgrid(*[np.arange(0, 256, 15)] * 3), axis=3).reshape(1, -1, 3).astype(np.uint8)
)
P3, BT2020 = icc.PRIMARIES["Display P3"], ((0.708, 0.292), (0.170, 0.797), (0.131, 0.046))


def pq(v: np.ndarray) -> np.ndarray:
    """BT.2100, table 4: cd/m²."""
    m1 = 2610 / 16384
    m2 = 2523 / 4096 * 128
    c1 = 3424 / 4096
    c2 = 2413 / 4096 * 32
    c3 = 2392 / 4096 * 32
    root = v ** (1 / m2)
    return 10_000 * (np.maximum(root - c1, 0) / (c2 - c3 * root)) ** (1 / m1)


def hlg(v: np.ndarray) -> np.ndarray:
    """BT.2100, table 5: scene light."""
    a = 0.17883277
    b, c = 1 - 4 * a, 0.5 - a * np.log(4 * a)
    return np.where(v <= 0.5, v * v / 3, (np.exp((v - c) / a) + b) / 12)


def bt709(v: np.ndarray) -> np.ndarray:
    return np.where(v < 0.081, v / 4.5, ((v + 0.099) / 1.099) ** (1 / 0.45))


CASES = {
    "Display P3": ((12, 13), P3, icc.srgb_linear),
    "BT.709": ((1, 1), icc.PRIMARIES["sRGB"], bt709),
    "BT.2020 BT.709": ((9, 14), BT2020, bt709),
    "BT.2020 linear": ((9, 8), BT2020, lambda v: v),
    "BT.2020 PQ": ((9, 16), BT2020, lambda v: pq(v) / 203),
    "BT.2020 HLG": ((9, 18), BT2020, lambda v: hlg(v) ** 1.2 * 1000 / 203),
    "gamma 1.80": (((), 1.8), icc.PRIMARIES["sRGB"], lambda v: v**1.8),
    "BT.709 gamma 2.2": ((2, 4), icc.PRIMARIES["sRGB"], lambda v: v**2.2),
    "Display P3 gamma 2.60": (
        ((0.3127, 0.329, 0.68, 0.32, 0.265, 0.69, 0.15, 0.06), 2.6),
        P3,
        lambda v: v**2.6,
    ),
}


@pytest.fixture(autouse=True)
def _primaries(monkeypatch):
    for name, (_, points, curve) in CASES.items():
        monkeypatch.setitem(icc.PRIMARIES, name, points)
        monkeypatch.setitem(icc.CURVES, name, lambda v, curve=curve: np.clip(curve(v), 0, 1))


@pytest.mark.parametrize("name", CASES)
def test_colors_become_srgb(name):
    profile = signaled(*CASES[name][0])
    assert profile.name == name
    got = np.asarray(profile.converted(Image.fromarray(LEVELS))).astype(float)
    off = np.abs(got - icc.srgb_of(name, LEVELS.astype(float)))
    assert off.max() <= 2 and off.mean() < 0.4


@pytest.mark.parametrize("name", ["BT.709", "BT.2020 PQ", "BT.2020 HLG", "gamma 1.80"])
def test_gray_stays_gray(name):
    levels = np.arange(256, dtype=np.uint8)[None]
    got = np.asarray(signaled(*CASES[name][0], mode="L").converted(Image.fromarray(levels))).astype(
        float
    )
    want = 255 * icc.srgb_encoded(icc.CURVES[name](levels / 255))
    assert np.abs(got - want[..., None]).max() <= 1.5


def test_reference_white_of_hdr_is_white():
    """BT.2408: 203 cd/m² is 58 % of PQ and 75 % of HLG."""
    for transfer, share in ((16, 0.5807), (18, 0.75)):
        levels = np.array([[share * 255 - 4, share * 255 + 1, 255]]).round().astype(np.uint8)
        gray = np.asarray(signaled(9, transfer, mode="L").converted(Image.fromarray(levels)))
        low, white, top = gray[0, :, 0].tolist()
        assert 230 < low < 252 < white <= top == 255


def test_narrow_range_is_stretched():
    levels = np.array([[0, 16, 126, 235, 255]], np.uint8)
    profile = signaled(1, 13, False, "L")
    assert profile.name == "BT.709 sRGB, 16 to 235"
    got = np.asarray(profile.converted(Image.fromarray(levels)))[0, :, 0].astype(int)
    assert np.abs(got - [0, 0, 128, 255, 255]).max() <= 1


@pytest.mark.parametrize(
    ("signal", "name"),
    [
        ((1, 13), "sRGB"),
        (((), 1 / 0.45455), "sRGB"),
        (((0.3127, 0.329, 0.64, 0.33, 0.3, 0.6, 0.15, 0.06), 1 / 0.45455), "sRGB"),
        ((2, 2), "none"),
        ((2, 13), "sRGB"),
        ((3, 13), "CICP 3/13"),
        ((1, 99), "CICP 1/99"),
        (((0.0,) * 8, 2.2), "damaged"),
        (((0.3, 0.3, 0.1, 0.1, 0.2, 0.2, 0.3, 0.3), 1.8), "damaged"),
        (((9.0,) * 8, 2.2), "damaged"),
        (((), 20_000.0), "damaged"),
        (((), 0.00002), "damaged"),
    ],
    ids=str,
)
def test_what_is_not_converted_has_a_name(signal, name):
    profile = signaled(*signal)
    assert (profile.name, profile.transform) == (name, None)
