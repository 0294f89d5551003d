"""How well an order mixes what lies together in storage, and how many shards a rank has open for
that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastfeed.sampling.plan import Plan

# of an epoch without a sample of a shard: it was closed, and is opened again for the next one
_CLOSED = 0.05


@dataclass(frozen=True)
class Mixing:
    correlation: (
        float  # of a sample's place in storage with its place in the epoch: 0 for a full shuffle
    )
    per_batch: float  # shards in a global batch, on average


def mixing(plan: Plan, bounds: np.ndarray, epoch: int = 0) -> Mixing:
    """Over an epoch of a plan, whose source has shards with these bounds."""
    ids, shards = _epoch(plan, bounds, epoch)
    return Mixing(
        correlation=float(np.corrcoef(np.arange(len(ids)), ids)[0, 1]),
        per_batch=float(np.mean([len(np.unique(batch)) for batch in shards])),
    )


def opened(
    plan: Plan, bounds: np.ndarray, rank: int, size: int, epoch: int = 0
) -> tuple[np.ndarray, int]:
    """Shards that one rank has open at each step (from the first sample it reads of one to the
    last), and how many it reads in all.
    """
    rows = _epoch(plan, bounds, epoch)[1][
        :, plan.global_batch * rank // size : plan.global_batch * (rank + 1) // size
    ]
    steps = np.repeat(np.arange(len(rows)), rows.shape[1])
    change = np.zeros(len(rows) + 1, np.int64)
    for shard in np.unique(rows):
        when = np.unique(steps[rows.ravel() == shard])
        breaks = np.flatnonzero(np.diff(when) > _CLOSED * len(rows))
        np.add.at(change, when[np.append(0, breaks + 1)], 1)
        np.add.at(change, when[np.append(breaks, -1)] + 1, -1)
    return np.cumsum(change)[:-1], len(np.unique(rows))


def _epoch(plan: Plan, bounds: np.ndarray, epoch: int) -> tuple[np.ndarray, np.ndarray]:
    """Ids of all whole batches, and the shard of each, by batch."""
    ids = plan.at(epoch, np.arange(plan.length // plan.global_batch * plan.global_batch)).ids
    return ids, (np.searchsorted(bounds, ids, side="right") - 1).reshape(-1, plan.global_batch)
