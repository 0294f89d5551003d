"""One fixed table of standard normal numbers for all samples, computed when it is first needed.

Like the film-grain tables of AV1 (section 7.18.3 of its specification): noise is looked up, not
generated, so it costs little and is the same on every backend. Computing it takes 0.2 s, once per
process. Statistically:

- It has 2**21 numbers within +-4.9. A 224x224 RGB image reads 150528 of them, 7 %, in a row from
  anywhere, each once; an image of more than 2**21 bytes sees its noise again from there on.
- Noise of two samples is the same numbers at another shift. Those of two 224x224 RGB images overlap
  in one of seven pairs, at other places of the image: the same place has the same number once in
  2**21 pairs.
- The mean of a pixel over ever more samples does not tend to 0 but to the table's, 1.4e-4 standard
  deviations.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from fastfeed.sampling.rng import philox

__all__ = ["GRAY_MEAN", "GRAY_STD", "LENGTH", "STEPS", "gray", "normal", "read_wrapped", "steps"]

LENGTH = 1 << 21
# per 1: so coarse that the last bit of a logarithm changes nothing, and fine enough for sigma 255
STEPS = 4096
# levels; 57.5 is the mean of ImageNet's three standard deviations
GRAY_MEAN = 127.5
GRAY_STD = 57.5
_KEY = 0x6661737466656564  # "fastfeed"
# one table is made from another
_lock = threading.RLock()
_tables = dict[str, np.ndarray]()


def normal() -> np.ndarray:
    """The table: float32 (LENGTH,), read-only, mean 0 and standard deviation 1."""
    return _cached("normal", lambda: (steps() / np.float32(STEPS)).astype(np.float32))


def steps() -> np.ndarray:
    """The table of noise in units of 1 / STEPS: int16 (LENGTH,), read-only."""
    return _cached("steps", _steps)


def gray() -> np.ndarray:
    """127.5 + 57.5 times the table, clipped: uint8 (LENGTH,), read-only.

    Used by `RandomErasing(fill="noise")`.
    """
    return _cached(
        "gray", lambda: np.clip(np.rint(GRAY_MEAN + GRAY_STD * normal()), 0, 255).astype(np.uint8)
    )


def read_wrapped(table: np.ndarray, offset: int, n: int) -> np.ndarray:
    """n entries from `offset` on; after the last comes the first. A view where possible."""
    offset %= len(table)
    if offset + n <= len(table):
        return table[offset : offset + n]
    out = np.empty(n, table.dtype)
    filled = 0
    while filled < n:
        piece = table[offset : offset + n - filled]
        out[filled : filled + len(piece)] = piece
        filled = filled + len(piece)
        offset = 0
    return out


def _cached(name: str, make: Callable[[], np.ndarray]) -> np.ndarray:
    if name not in _tables:
        with _lock:
            if name not in _tables:
                table = make()
                table.setflags(write=False)
                _tables[name] = table
    return _tables[name]


def _steps() -> np.ndarray:
    """Box and Muller: "A Note on the Generation of Random Normal Deviates" (1958), from Philox."""
    counter = np.zeros((4, LENGTH // 4), np.uint64)
    counter[0] = np.arange(LENGTH // 4)
    a, b, c, d = (philox(counter, _KEY).astype(np.float64) + 0.5) / 2**32
    radius = np.sqrt(-2 * np.log(np.stack([a, c])))
    angle = 2 * np.pi * np.stack([b, d])
    both = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)]).ravel()
    return np.rint(both * STEPS).astype(np.int16)  # within +-6.7: 32 random bits
