"""A permutation of [0, n) that is computed, not stored.

A Feistel network over Z_a x Z_b with a*b barely above n (a, b near sqrt(n)): each round adds a hash
of one half to the other half, which is undone by subtracting it, so the network is a bijection for
any hash. Values that land in [n, a*b) pass through the network again until they fall inside ("cycle
walking", Black and Rogaway 2002); since a*b - n < a, few do.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from fastfeed.runtime.extension import extension

_ROUNDS = 8
_WORD = 0xFFFFFFFFFFFFFFFF
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_STEPS = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)
_LAST = np.uint64(31)
_COUNTERS = np.arange(1, _ROUNDS + 1, dtype=np.uint64)[:, None] * _GOLDEN

Key = tuple["int | np.ndarray", ...]
Side = np.uint64 | np.ndarray


def permute(values: np.ndarray, n: int | np.ndarray, key: Key, inverse: bool = False) -> np.ndarray:
    """Permuted `values` (int64 in [0, n)) under the permutation of `key`: int64, same shape.

    n (below 2**52) and the parts of the key may be arrays of the shape of `values`: each value then
    has its own permutation, the same as in a separate call.
    """
    values = np.asarray(values, np.int64)
    if not values.size:
        return values.copy()
    sides = _sides(n)
    keys = _round_keys(key)
    native = extension()
    if native is None:
        return _permute(values, n, sides, keys, inverse)
    flat = np.ascontiguousarray(values.reshape(-1))
    permuted = np.empty_like(flat)
    numbers = [np.asarray(number, np.uint64).reshape(-1) for number in (n, *sides)]
    native.permute(flat, *numbers, np.ascontiguousarray(keys), inverse, permuted)
    return permuted.reshape(values.shape)


def _permute(
    values: np.ndarray,
    n: int | np.ndarray,
    sides: tuple[Side, Side],
    keys: np.ndarray,
    inverse: bool,
) -> np.ndarray:
    """Permute values in NumPy; native code follows this definition."""
    size = n.reshape(-1).astype(np.uint64) if isinstance(n, np.ndarray) else np.uint64(n)
    out = _network(values.reshape(-1).astype(np.uint64), *sides, keys, inverse)
    outside = np.flatnonzero(out >= size)
    while len(outside):
        a, b, row_keys, limit = (_of_rows(operand, outside) for operand in (*sides, keys, size))
        again = _network(out[outside], a, b, row_keys, inverse)
        out[outside] = again
        outside = outside[again >= limit]
    return out.astype(np.int64).reshape(values.shape)


def _sides(n: int | np.ndarray) -> tuple[Side, Side]:
    """The square's sides: a = ceil(sqrt(n)), b = ceil(n / a)."""
    if isinstance(n, np.ndarray):
        n = n.reshape(-1).astype(np.int64)
        # exact: doubles hold n, and their root is rounded correctly
        a = np.sqrt(n - 1).astype(np.int64) + 1
        return a.astype(np.uint64), (-(-n // a)).astype(np.uint64)
    n = int(n)
    side = math.isqrt(n - 1) + 1
    return np.uint64(side), np.uint64(-(-n // side))


def _of_rows(operand: Any, rows: np.ndarray) -> Any:
    """The entries for these values, if every value has its own; the last axis counts values."""
    return (
        operand[..., rows] if isinstance(operand, np.ndarray) and operand.shape[-1] > 1 else operand
    )


def _network(values: np.ndarray, a: Side, b: Side, keys: np.ndarray, inverse: bool) -> np.ndarray:
    left = values // b  # in [0, a)
    right = values - left * b  # in [0, b)
    x = np.empty_like(values)
    spare = np.empty_like(values)
    for i in range(_ROUNDS - 1, -1, -1) if inverse else range(_ROUNDS):
        target, source, modulus = (left, right, a) if i % 2 == 0 else (right, left, b)
        np.multiply(source, _GOLDEN, out=x)
        x += keys[i]
        _mix(x, spare)
        if isinstance(modulus, np.ndarray):
            x %= modulus
        else:  # by the quotient: NumPy divides by a scalar several times as fast
            np.floor_divide(x, modulus, out=spare)
            spare *= modulus
            x -= spare
        if inverse:
            np.subtract(modulus, x, out=x)
        target += x
        np.subtract(target, modulus, out=spare)  # below the modulus it wraps to a huge number
        np.minimum(target, spare, out=target)
    left *= b
    left += right
    return left


def _mix(x: np.ndarray, spare: np.ndarray) -> None:
    """SplitMix64's finalizer (Steele, Lea, Flood 2014), in place."""
    for shift, factor in _STEPS:
        np.right_shift(x, shift, out=spare)
        x ^= spare
        x *= factor
    np.right_shift(x, _LAST, out=spare)
    x ^= spare


def _round_keys(key: Key) -> np.ndarray:
    """One key per round: uint64 (rounds, 1), or (rounds, len(values)) for keys with arrays."""
    if any(isinstance(part, np.ndarray) for part in key):
        return _derive(key)
    return _cached_keys(tuple(int(part) & _WORD for part in key))  # type: ignore[arg-type]


@lru_cache(maxsize=64)
def _cached_keys(key: tuple[int, ...]) -> np.ndarray:
    return _derive(key)


def _derive(key: Key) -> np.ndarray:
    state = np.zeros(1, np.uint64)
    for part in key:
        state = state ^ (
            part.reshape(-1).astype(np.uint64) if isinstance(part, np.ndarray) else np.uint64(part)
        )
        state += _GOLDEN
        _mix(state, np.empty_like(state))
    keys = state + _COUNTERS
    _mix(keys, np.empty_like(keys))
    return keys
