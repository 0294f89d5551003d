"""Features of a tf.train.Example as Python values."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from helpers.records import feature, field, varint

from fastfeed.sources.tfrecord.example import to_python

CASES: list[tuple[bytes, Any]] = [
    (feature("ä".encode()), "ä"),
    (feature([b"a", b"", b"c"]), ["a", "", "c"]),
    (feature(-1), -1),
    (feature([2**62, 5]), [2**62, 5]),
    (feature([1, 2], packed=False), [1, 2]),
    (feature(0.5), 0.5),
    (feature([0.5, 0.25]), [0.5, 0.25]),
    (field(2, varint(1 << 3 | 5) + b"\x00\x00\x00\x3f"), 0.5),
    (field(3, b""), None),
    (b"", None),
    (field(1, field(1, b"a")) + field(3, field(1, b"\x07")), 7),
    (field(1, field(1, b"a")) + field(1, field(1, b"b")), ["a", "b"]),
    (field(9, b"?") + field(1, field(9, b"?") + field(1, b"a")), "a"),
]


@pytest.mark.parametrize(("data", "value"), CASES)
def test_values(data: bytes, value: Any) -> None:
    got = to_python(data)
    assert (got.tolist() if isinstance(got, (np.ndarray, np.generic)) else got) == value


@pytest.mark.parametrize(
    ("data", "dtype", "shape"),
    [
        (feature(7), np.int64, ()),
        (feature([7, 8]), np.int64, (2,)),
        (feature(0.1), np.float32, ()),
        (feature([0.1, 0.2]), np.float32, (2,)),
    ],
)
def test_numbers_are_typed_as_the_format_has_them(
    data: bytes, dtype: Any, shape: tuple[int, ...]
) -> None:
    got = to_python(data)
    assert (got.dtype, got.shape) == (dtype, shape)


def test_bytes_that_stay_bytes() -> None:
    assert to_python(feature(b"\xff\xfe"), text=False) == b"\xff\xfe"
    assert to_python(feature([b"\xff", b"a"]), text=False) == [b"\xff", b"a"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (feature(b"\xff"), "can't decode"),
        (field(2, field(1, b"abc")), "3 bytes of wire type 2"),
        (field(1, varint(1 << 3) + b"\x01"), "1 bytes of wire type 0"),
        (field(1, field(1, b"abc"))[:-1], "the field at 0 goes beyond its message"),
        (b"\x0b", "wire type 3"),
        (b"\xff" * 12, "a number of more than ten bytes"),
        (field(3, field(1, b"\xff")), "it ends too early"),
    ],
)
def test_damage(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        to_python(data)


def test_any_damage_is_a_value_error() -> None:
    rng = random.Random(2)
    for data, _ in CASES:
        for _ in range(200):
            damaged = bytearray(data)
            for _ in range(rng.randrange(1, 3) if data else 0):
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            try:
                to_python(bytes(damaged[: rng.randrange(len(damaged) + 1)]))
            except ValueError:
                continue
