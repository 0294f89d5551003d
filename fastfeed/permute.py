"""A permutation of [0, n) that is computed, not stored.

A Feistel network over Z_a x Z_b with a*b barely above n (a, b near sqrt(n)): each round adds a hash of one half to
the other half, which is undone by subtracting it, so the network is a bijection for any hash. Values that land in [n,
a*b) walk on through the network until they fall inside ("cycle walking", Black and Rogaway 2002); since a*b - n < a,
few do.
"""

from __future__ import annotations

import math

import numpy as np

__all__ = ["permute"]

_ROUNDS = 8
_M1, _M2, _M3 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def permute(values: np.ndarray, n: int, key: tuple[int, ...], inverse: bool = False) -> np.ndarray:
    """Where each of `values` (int64 in [0, n)) goes under the permutation named by `key`: int64, same shape."""
    values = np.asarray(values, np.int64)
    if n <= 1:
        return values.copy()
    a = math.isqrt(n - 1) + 1
    b = -(-n // a)
    keys = _round_keys(key)
    out = _network(values, a, b, keys, inverse)
    outside = np.flatnonzero(out >= n)
    while len(outside):
        out[outside] = _network(out[outside], a, b, keys, inverse)
        outside = outside[out[outside] >= n]
    return out


def _network(values: np.ndarray, a: int, b: int, keys: list[np.uint64], inverse: bool) -> np.ndarray:
    left, right = np.divmod(values, b)  # left in [0, a), right in [0, b)
    for i in range(_ROUNDS - 1, -1, -1) if inverse else range(_ROUNDS):
        sign = -1 if inverse else 1
        if i % 2 == 0:
            left = (left + sign * _hash(right, keys[i], a)) % a
        else:
            right = (right + sign * _hash(left, keys[i], b)) % b
    return left * b + right


def _hash(values: np.ndarray, key: np.uint64, modulus: int) -> np.ndarray:
    """SplitMix64's finaliser (Steele, Lea, Flood 2014) of value and round key, reduced to [0, modulus)."""
    x = values.astype(np.uint64) * _M1 + key
    x ^= x >> np.uint64(30)
    x *= _M2
    x ^= x >> np.uint64(27)
    x *= _M3
    x ^= x >> np.uint64(31)
    return (x % np.uint64(modulus)).astype(np.int64)


def _round_keys(key: tuple[int, ...]) -> list[np.uint64]:
    state = 0
    for part in key:
        state = _mix((state ^ (int(part) & 0xFFFFFFFFFFFFFFFF)) + 0x9E3779B97F4A7C15)
    keys = []
    for _ in range(_ROUNDS):
        state = (state + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        keys.append(np.uint64(_mix(state)))
    return keys


def _mix(x: int) -> int:
    x &= 0xFFFFFFFFFFFFFFFF
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return x ^ (x >> 31)
