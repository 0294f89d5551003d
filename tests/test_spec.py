"""Spec: what one sample looks like between two stages."""

from __future__ import annotations

import pytest

from fastfeed.errors import ConfigError
from fastfeed.spec import ENCODED, PIXELS, Spec

HWC, CHW = Spec((224, 160, 3), "uint8", "HWC"), Spec((1, 28, 30), "float32", "CHW")


@pytest.mark.parametrize(
    ("spec", "text", "size", "channels", "fixed", "encoded"),
    [
        (ENCODED, "encoded bytes", (None, None), None, False, True),
        (PIXELS, "HWC uint8[?, ?, 3]", (None, None), 3, False, False),
        (HWC, "HWC uint8[224, 160, 3]", (224, 160), 3, True, False),
        (CHW, "CHW float32[1, 28, 30]", (28, 30), 1, True, False),
        (Spec((7, None, 3), "float16", "HWC"), "HWC float16[7, ?, 3]", (7, None), 3, False, False),
    ],
)
def test_what_it_says(spec, text, size, channels, fixed, encoded):
    assert str(spec) == text
    assert (spec.size, spec.channels, spec.fixed, spec.encoded) == (size, channels, fixed, encoded)


def test_with_size_keeps_layout_and_channels():
    assert HWC.with_size(5, 6) == Spec((5, 6, 3), "uint8", "HWC")
    assert CHW.with_size(5, None) == Spec((1, 5, None), "float32", "CHW")


@pytest.mark.parametrize(
    ("dtype", "layout", "text"),
    [
        ("uint8", "NHWC", "layout must be one of encoded, HWC, CHW, got 'NHWC'"),
        (
            "int8",
            "HWC",
            "dtype must be one of uint8, uint16, float16, bfloat16, float32, got 'int8'",
        ),
    ],
)
def test_refuses(dtype, layout, text):
    with pytest.raises(ConfigError) as error:
        Spec((1, 1, 3), dtype, layout)
    assert str(error.value) == text


def test_is_a_value():
    assert eval(repr(HWC), {"Spec": Spec}) == HWC
    assert len({HWC, Spec((224, 160, 3), "uint8", "HWC")}) == 1
