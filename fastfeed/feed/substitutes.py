"""Which samples may replace a bad one: drawn by (seed, epoch, sample), so any rank or thread picks
the same ones.
"""

from __future__ import annotations

import numpy as np

from fastfeed.sampling.rng import SLOT_SUBSTITUTE, uniform

__all__ = ["substitutes"]


def substitutes(seed: int, epoch: int, key: int, attempts: int, length: int) -> np.ndarray:
    """Positions in the epoch's order of the samples that may replace a bad one, in the order tried:
    int64, (attempts,).

    Positions, so that a substitute is drawn as all samples are: by class, by weight, from its share
    of a mixture.
    """
    u = uniform(seed, epoch, np.array([key]), SLOT_SUBSTITUTE, attempts)[0]
    return np.minimum((u * length).astype(np.int64), length - 1)
