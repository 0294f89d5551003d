"""Simulation of what each rank of a cluster reads in an epoch, from the plan alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fastfeed.distributed.world import World
from fastfeed.errors import ConfigError
from fastfeed.sampling.plan import Plan
from fastfeed.sources.base import Sharded, Source

_PAIRS = 1 << 31  # a byte each
_SAMPLES = 4_000_000  # simulated per epoch; of longer epochs, evenly spread steps are
# columns of time, rows of units in a trace
_PICTURE = 1000
_ROWS = 120


@dataclass(frozen=True, slots=True, eq=False)
class Simulation:
    """Reads of every rank in one epoch.

    If only some steps are simulated, totals are scaled to the epoch.
    """

    plan: Plan
    source: Source
    steps: np.ndarray  # int64: those simulated
    samples: np.ndarray  # int64 (ranks,): in the epoch, padding included
    bytes: np.ndarray  # float64 (ranks,): in the epoch; 0 if the source does not know sizes
    units: int  # units of storage: shards, row groups
    units_read: np.ndarray  # int64 (ranks,): units that a rank reads from, in the simulated steps
    per_step: np.ndarray  # int64 (simulated steps, ranks): units read from in one step
    in_batch: np.ndarray  # int64 (simulated steps,): units that a global batch comes from
    # int64 (nodes,): units that the ranks of one machine read from, in the simulated steps
    node_units_read: np.ndarray
    most_read: np.ndarray  # int32 (ranks, columns): the unit that a rank reads most from, over time
    # of some ranks: bool (rows, columns), the units that it reads from, over time
    traces: dict[int, np.ndarray]
    unit_bytes: float  # mean
    # float64 (simulated steps, ranks): bytes read in one step; 0 where sizes are not known
    step_bytes: np.ndarray
    # int64 (groups, columns): samples from each group over time; no rows without groups
    mix: np.ndarray

    @property
    def is_complete(self) -> bool:
        """All steps of the epoch were simulated."""
        return len(self.steps) == self.plan.steps

    @property
    def imbalance(self) -> float:
        """Excess of the busiest rank over the mean, a fraction; of bytes if they are known."""
        read = self.bytes if self.bytes.any() else self.samples
        return float(read.max() / read.mean() - 1) if read.mean() else 0.0


def simulate(
    source: Source,
    plan: Plan,
    epoch: int = 0,
    ranks_per_node: int = 8,
    *,
    sizes: np.ndarray | None = None,
    groups: np.ndarray | None = None,
) -> Simulation:
    """Simulate an epoch on all `plan.world.size` ranks.

    Args:
        source: Where samples come from.
        plan: The plan of any rank.
        epoch: The epoch to simulate.
        ranks_per_node: Ranks of one machine.
        sizes: Bytes of each sample, float64 (samples,), of a source that does not know them.
        groups: The group of each sample, int64 (samples,), to count by.

    Raises:
        ConfigError: If ranks_per_node is below 1, or there are too many pairs of rank and shard.
    """
    size = plan.world.size
    if ranks_per_node < 1:
        raise ConfigError.of("ranks_per_node", ">= 1", ranks_per_node)
    alone = replace(plan, world=World())
    ranks = [replace(plan, world=World(rank, size)) for rank in range(size)]
    edges = plan.global_batch * np.arange(size + 1) // size
    rank_of = np.repeat(np.arange(size), np.diff(edges))
    bounds = source.bounds if isinstance(source, Sharded) else np.array([0, len(source)])
    units = len(bounds) - 1
    if size * units > _PAIRS:
        raise ConfigError(
            f"plan follows at most {_PAIRS:,} pairs of rank and shard, got {size} ranks and"
            f" {units:,} shards; pass a smaller world, or part of the shards"
        )
    most = max(1, _SAMPLES // plan.global_batch)
    steps = np.unique(np.linspace(0, plan.steps - 1, min(plan.steps, most), dtype=int))
    columns = min(len(steps), _PICTURE)
    column_of = np.arange(len(steps)) * columns // len(steps)

    touches = np.zeros((size, units), bool)
    rows = min(units, _ROWS)
    traces = {rank: np.zeros((rows, columns), bool) for rank in sorted({0, size // 2, size - 1})}
    per_step = np.empty((len(steps), size), np.int64)
    in_batch = np.empty(len(steps), np.int64)
    most_read = np.zeros((size, columns), np.int32)
    step_bytes = np.zeros((len(steps), size))
    kinds = 0 if groups is None else int(groups.max()) + 1
    mix = np.zeros((kinds, columns), np.int64)
    for i, step in enumerate(steps.tolist()):
        ids = alone.ids(epoch, step) if step < plan.steps - 1 else _together(ranks, epoch, step)
        unit = np.searchsorted(bounds, ids, side="right") - 1
        if groups is not None:
            mix[:, column_of[i]] += np.bincount(groups[ids], minlength=kinds)
        if sizes is not None or isinstance(source, Sharded):
            read = source.sizes(ids) if sizes is None else sizes[ids]  # type: ignore[attr-defined]
            step_bytes[i] = np.bincount(rank_of, read, minlength=size)
        both, counts = np.unique(rank_of * units + unit, return_counts=True)
        per_step[i] = np.bincount(both // units, minlength=size)
        in_batch[i] = len(np.unique(unit))
        # by rank, the most read unit last; ties by hash: the last in storage would bias the colors
        # of the picture
        order = np.lexsort((both * 2_654_435_761 % (1 << 32), counts, both // units))
        last = np.flatnonzero(np.diff(np.append(both[order] // units, size)) > 0)
        most_read[both[order][last] // units, column_of[i]] = both[order][last] % units
        touches[both // units, both % units] = True
        for rank, trace in traces.items():
            trace[both[both // units == rank] % units * rows // units, column_of[i]] = True
    by_node = np.logical_or.reduceat(touches, np.arange(0, size, ranks_per_node), axis=0)
    scale = plan.steps / len(steps)
    weight = step_bytes.sum(axis=0)
    return Simulation(
        plan=plan,
        source=source,
        steps=steps,
        samples=np.diff(edges) * plan.steps,
        bytes=weight * scale,
        units=units,
        units_read=touches.sum(axis=1),
        per_step=per_step,
        in_batch=in_batch,
        node_units_read=by_node.sum(axis=1),
        most_read=most_read,
        traces=traces,
        unit_bytes=float(weight.sum() * scale / max(units, 1)),
        step_bytes=step_bytes,
        mix=mix,
    )


def _together(ranks: list[Plan], epoch: int, step: int) -> np.ndarray:
    """Ids of all ranks in order, each with its share of an incomplete last batch and padding."""
    return np.concatenate([rank.ids(epoch, step) for rank in ranks])
