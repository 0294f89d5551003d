"""How many steps a proof takes: rounds of one block per mode, each block some steps to settle and some that count."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MIN_ROUNDS", "Design", "choose", "settling_steps"]

MIN_ROUNDS = 4  # below that an interval of 95 % is wider than what it is about
_MAX_ROUNDS = 20
_MIN_STEPS = 5
_MAX_STEPS = 500


@dataclass(frozen=True, slots=True)
class Design:
    """A proof of `rounds` rounds, even, each with one block per mode."""

    rounds: int
    warmup: int  # first steps of each block, which do not count: queues fill, or run empty
    steps: int  # that count, in each block

    @property
    def block(self) -> int:
        """Steps of a block."""
        return self.warmup + self.steps


def settling_steps(prefetch: int) -> int:
    """Steps until no batch is left that was made under the mode before."""
    return prefetch + 3


def choose(seconds: float, step_s: float, modes: int, prefetch: int, longest: int | None = None) -> Design:
    """The design that fits into a time.

    Args:
        seconds: For all of it. Where that is too little for the smallest design, the smallest is taken.
        step_s: Of a step with real input, the slowest mode.
        modes: How many take turns.
        prefetch: Batches that the feed works ahead.
        longest: Steps that an iteration of the trainer lasts; None: as many as are needed.
    """
    warmup = settling_steps(prefetch)
    per_mode = seconds / max(step_s, 1e-6) / modes  # steps
    rounds = int(per_mode / (warmup + 4 * warmup))  # then four fifths of the time count
    rounds = max(MIN_ROUNDS, min(_MAX_ROUNDS, rounds - rounds % 2))
    steps = max(_MIN_STEPS, min(_MAX_STEPS, int(per_mode / rounds) - warmup))
    if longest is not None:
        steps = max(_MIN_STEPS, min(steps, longest - 1 - warmup))
    return Design(rounds, warmup, steps)
