"""Limits: which photographs are wanted, to the pixel."""

from __future__ import annotations

import pytest

from fastfeed.preprocess.model.recipe import Limits
from fastfeed.preprocess.model.record import REASONS
from fastfeed.preprocess.pixels.geometry import limit_error

LIMITS = Limits(min_side=100, max_aspect=2.5, formats=("jpeg", "PNG"), max_pixels=1_000_000)


@pytest.mark.parametrize(
    "format,height,width", [("JPEG", 100, 250), ("PNG", 250, 100), ("JPEG", 1000, 1000)]
)
def test_wanted(format: str, height: int, width: int) -> None:
    assert limit_error(LIMITS, format, height, width) is None


@pytest.mark.parametrize(
    "format,height,width,reason,detail",
    [
        ("GIF", 300, 300, "policy", "GIF; allowed are JPEG, PNG"),
        ("JPEG", 1000, 1001, "bomb", "1001x1000 pixels, the limit is 1000000"),
        ("JPEG", 99, 120, "too_small", "120x99 pixels, the short side must be >= 100"),
        ("JPEG", 120, 99, "too_small", "99x120 pixels, the short side must be >= 100"),
        ("JPEG", 100, 251, "aspect", "251x100 pixels, 2.51:1; at most 2.5:1"),
        ("JPEG", 251, 100, "aspect", "100x251 pixels, 2.51:1; at most 2.5:1"),
        ("GIF", 1, 10**9, "policy", "GIF; allowed are JPEG, PNG"),
    ],
)
def test_not_wanted(format: str, height: int, width: int, reason: str, detail: str) -> None:
    assert limit_error(LIMITS, format, height, width) == (reason, detail)
    assert reason in REASONS


def test_without_limits_all_is_wanted() -> None:
    assert limit_error(Limits(), "PPM", 1, 65_000) is None
