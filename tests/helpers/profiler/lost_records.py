"""Traces from which rows of a table were removed, as profilers do that run out of buffers."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from fastfeed.profiler.model.trace import Ops, Ranges, Trace


def without_ops(trace: Trace, lost: np.ndarray) -> Trace:
    """The same trace without these device operations (bool); the calls that launched them stay."""
    return replace(trace, ops=_kept(trace.ops, ~lost))


def without_blocks(trace: Trace, share: float, block_ns: int, seed: int = 0) -> Trace:
    """Without the device operations of this share of all blocks of time, at random."""
    block = (trace.ops.start - trace.ops.start.min()) // block_ns
    is_lost = np.random.default_rng(seed).random(int(block.max()) + 1) < share
    return without_ops(trace, is_lost[block])


def without_ranges(trace: Trace, *names: str) -> Trace:
    """Without the host ranges of these names."""
    gone = [index for index, name in enumerate(trace.names) if name in names]
    return replace(trace, ranges=_kept(trace.ranges, ~np.isin(trace.ranges.name, gone)))


def _kept(table: Ops | Ranges, rows: np.ndarray):
    return type(table)(**{one.name: getattr(table, one.name)[rows] for one in fields(table)})
