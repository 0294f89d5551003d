"""Sizes of a proof: rounds of one block per mode, and the steps of a block."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from fastfeed.proof.measure.statistics import t_quantile

MIN_ROUNDS = 4  # below that an interval of 95 % is wider than what it is about
_MAX_ROUNDS = 20  # rather longer blocks than more of them,
_MANY_ROUNDS = 200  # unless blocks cannot be longer
_MIN_STEPS = 5
_MAX_STEPS = 500


@dataclass(frozen=True, slots=True)
class BlockSizes:
    """A proof of `rounds` rounds, each with one block per mode."""

    rounds: int
    warmup: int  # first steps of each block, which do not count: queues fill, or run empty
    steps: int  # that count, in each block

    @property
    def block(self) -> int:
        """Steps of a block, with its warmup."""
        return self.warmup + self.steps


def settling_steps(prefetch: int) -> int:
    """Steps until no batch is left that was made under the mode before."""
    return prefetch + 3


def choose(
    seconds: float, step_s: float, modes: int, prefetch: int, longest: int | None = None
) -> BlockSizes:
    """Sizes that fit into a time.

    Args:
        seconds: For all of it. Where that is too little for the smallest, the smallest are
            taken.
        step_s: Of a step with real input, the slowest mode.
        modes: How many take turns.
        prefetch: Batches that the feed works ahead.
        longest: Steps that a block may have; None: as many as fit. Shorter blocks make more rounds.
    """
    warmup = settling_steps(prefetch)
    per_mode = seconds / max(step_s, 1e-6) / modes  # steps
    most = _MAX_STEPS if longest is None else max(_MIN_STEPS, min(_MAX_STEPS, longest - warmup))
    candidates = [
        BlockSizes(rounds, warmup, max(_MIN_STEPS, min(most, int(per_mode / rounds) - warmup)))
        for rounds in range(MIN_ROUNDS, _MAX_ROUNDS + 1)
    ]
    fitting = [sizes for sizes in candidates if sizes.rounds * sizes.block <= per_mode]
    chosen = min(fitting or candidates[:1], key=_width)
    if chosen.steps == most:
        chosen = replace(chosen, rounds=max(chosen.rounds, _limited(per_mode / chosen.block)))
    return chosen


def shortened(sizes: BlockSizes, longest: int) -> BlockSizes | None:
    """Shorten blocks to at most `longest` steps and add rounds; None if that is too short."""
    steps = min(sizes.steps, longest - sizes.warmup)
    if steps < _MIN_STEPS:
        return None
    return replace(sizes, steps=steps, rounds=_limited(sizes.rounds * sizes.steps / steps))


def least_block(prefetch: int) -> int:
    """Steps of the smallest block."""
    return settling_steps(prefetch) + _MIN_STEPS


def _width(sizes: BlockSizes) -> float:
    """Relative width of an interval over independent steps; few rounds or much settling widen it."""
    return t_quantile(sizes.rounds - 1) / math.sqrt(sizes.rounds * sizes.steps)


def _limited(rounds: float) -> int:
    return max(MIN_ROUNDS, min(_MANY_ROUNDS, int(rounds)))
