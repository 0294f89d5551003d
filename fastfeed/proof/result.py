"""The result of a proof, which prints itself."""

from __future__ import annotations

from dataclasses import dataclass

from fastfeed.proof.report.page import page
from fastfeed.proof.report.text import plain
from fastfeed.proof.step_costs import StepCosts


@dataclass(frozen=True, slots=True)
class Proof(StepCosts):
    """Measurements of `ff.prove` and `fastfeed prove`: the parts of a step, each with its interval.

    Times are per step, in nanoseconds, with 95 % intervals.

    Args:
        steps (dict[str, Estimate]): Step time by kind of input: "resident", "cached", "busy",
            "warm", "cold"; of a loader that is no Feed "resident", "cached", "real".
        parts (dict[str, Estimate]): "copy", "contention", "preparation", "fetch", or "copy" and
            "loading"; they add up to `input` exactly.
        input (Estimate): Step time with real input minus that with a resident batch: what an
            infinitely fast feed would save.
        feed (dict[str, Any]): The feed that was measured: name, source, batch, threads, prefetch,
            side_process, rank, world.
        rounds (int): Rounds of blocks; the intervals are over these.
        block_steps (int): Steps of each block that count.
        own_wait (float | None): Share of the time that the feed itself counted as waiting, in
            blocks of real input.
        cores (dict[str, float]): Processors that the trainer's process used, by kind of input.
        stage_ms (dict[str, float]): Thread time per image, milliseconds, with real input.
        whatif (tuple[WhatIf, ...]): What changes would gain. Default: ().
        notes (tuple[str, ...]): What could not be measured, a sentence each. Default: ().

    Example:
        >>> feed = ff.Feed(ff.Arrays(np.zeros((64, 8, 8, 3), np.uint8)), [], batch=8)
        >>> proof = ff.prove(lambda batch: None, feed, seconds=1)
        >>> sorted(proof.parts), proof.as_dict()["fastfeed_prove"], proof.html()[:15]
        (['contention', 'copy', 'preparation'], 1, '<!doctype html>')
    """

    def html(self) -> str:
        """The report as one HTML page that loads nothing from elsewhere.

        Returns:
            The page, to be written as UTF-8.
        """
        return page(self)

    def __str__(self) -> str:
        return plain(self)
