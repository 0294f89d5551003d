"""Random numbers as a pure function of (seed, epoch, sample id, op slot).

The generator is Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1,
2, 3", SC11), vectorized over samples. The 128-bit counter holds the sample id (64 bits), the epoch
(32), the slot (16) and the block (16); the 64-bit key is the seed, so no two draws share a counter.
"""

from __future__ import annotations

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.runtime.extension import extension

PER_SLOT = 2 << 16  # numbers per sample: two per block; more would overlap the next slot
SLOT_SUBSTITUTE = 0xFFFF  # op slots count up from 0; the fault policy draws from the last one
SLOT_MAP = 0xFFFE  # slots of functions on fields count down from it
SLOT_BATCH = 0xF000  # of the size of a batch, by its step

_MUL0 = np.uint64(0xD2511F53)
_MUL1 = np.uint64(0xCD9E8D57)
_WEYL0 = 0x9E3779B9
_WEYL1 = 0xBB67AE85
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT32 = np.uint64(32)
_ROUNDS = 10


def philox(counter: np.ndarray, key: int) -> np.ndarray:
    """Philox4x32-10 of `counter` (uint64 (4, n), words < 2**32) under a 64-bit key."""
    c0, c1, c2, c3 = (counter[i] for i in range(4))
    k0 = key & 0xFFFFFFFF
    k1 = (key >> 32) & 0xFFFFFFFF
    for _ in range(_ROUNDS):
        p0 = c0 * _MUL0
        p1 = c2 * _MUL1
        c0 = (p1 >> _SHIFT32) ^ c1 ^ np.uint64(k0)
        c1 = p1 & _LOW
        c2 = (p0 >> _SHIFT32) ^ c3 ^ np.uint64(k1)
        c3 = p0 & _LOW
        k0 = (k0 + _WEYL0) & 0xFFFFFFFF
        k1 = (k1 + _WEYL1) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3])


def uniform(seed: int, epoch: int, ids: np.ndarray, slot: int, n: int) -> np.ndarray:
    """`n` numbers in [0, 1) for each id: float64, shape (len(ids), n), 53 random bits each.

    The first k columns do not depend on n, and a row depends on its own id only.
    """
    check_seed(seed)
    check_epoch(epoch)
    if not 0 <= slot <= SLOT_SUBSTITUTE:
        raise ConfigError.of("slot", f"in [0, {SLOT_SUBSTITUTE}]", slot)
    return drawn(int(seed), epoch, np.ascontiguousarray(ids, np.int64), slot, n)


def drawn(seed: int, epoch: int, ids: np.ndarray, slot: int, n: int) -> np.ndarray:
    """`uniform` for arguments that have been checked; ids: int64, contiguous."""
    native = extension()
    if native is not None and 0 < n <= PER_SLOT:
        out = np.empty((len(ids), n))
        native.uniform(seed, epoch, ids, slot, out)
        return out
    return _uniform(seed, epoch, ids, slot, n)


def _uniform(seed: int, epoch: int, ids: np.ndarray, slot: int, n: int) -> np.ndarray:
    """Draw numbers in NumPy; native code follows this definition."""
    ids = ids.astype(np.uint64)
    blocks = (n + 1) // 2  # one block of 4 x 32 bits makes two numbers
    counter = np.empty((4, len(ids), blocks), np.uint64)
    counter[0] = (ids & _LOW)[:, None]
    counter[1] = (ids >> _SHIFT32)[:, None]
    counter[2] = np.uint64(epoch)
    counter[3] = np.uint64(slot << 16) + np.arange(blocks, dtype=np.uint64)
    words = philox(counter.reshape(4, -1), seed).reshape(4, len(ids), blocks)
    pairs = np.empty((len(ids), blocks, 2), np.float64)
    for i in range(2):
        high = words[2 * i] >> np.uint64(5)
        low = words[2 * i + 1] >> np.uint64(6)
        pairs[:, :, i] = (
            high.astype(np.float64) * 67108864.0 + low.astype(np.float64)
        ) / 9007199254740992.0
    return pairs.reshape(len(ids), 2 * blocks)[:, :n]


def check_seed(seed: int) -> None:
    """ConfigError for a seed that is not an integer in [0, 2**64)."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**64:
        raise ConfigError.of("seed", "an integer in [0, 2**64)", seed)


def check_epoch(epoch: int) -> None:
    """ConfigError for an epoch that is not an integer in [0, 2**32)."""
    if (
        isinstance(epoch, bool)
        or not isinstance(epoch, (int, np.integer))
        or not 0 <= epoch < 2**32
    ):
        raise ConfigError.of("epoch", "an integer in [0, 2**32)", epoch)
