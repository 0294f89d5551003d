"""Progress of a running job, and the report at its end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from fastfeed.preprocess.record import BadSample, Counts

__all__ = ["Progress", "Report"]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is; passed to `on_progress` several times a second."""

    phase: str  # "room" (a sample, to estimate the output's size), "survey" (duplicates and sizes), "shards"
    shards_done: int  # complete, including those of earlier runs
    shards: int  # of this part
    shards_before: int  # complete when this run began
    images_done: int  # in complete shards and in those in progress, including bad ones
    images: int
    images_before: int
    bytes_in: int = 0  # of this run, of complete shards
    bytes_out: int = 0
    bad: Counter[str] = field(default_factory=Counter)  # by reason, of all complete shards
    seconds: float = 0.0  # since this run began


@dataclass(frozen=True, slots=True)
class Report:
    """What a run did, and the state of the job."""

    target: str
    shards: int  # of the job
    shards_done: int
    shards_now: int  # completed by this run
    tally: Counts  # over all completed shards
    bad: tuple[BadSample, ...]  # in all completed shards
    left_out: dict[str, int]  # by the plan, by reason: duplicates
    bytes: int  # of all shard files
    seconds: float  # of this run
    stages: dict[str, float] = field(default_factory=dict)  # seconds of all workers together, of this run
    classes: tuple[str, ...] = ()  # names by label
    notes: tuple[str, ...] = ()  # damaged or excluded parts of the source; () if the run had nothing to read

    @property
    def complete(self) -> bool:
        """Whether all shards are done."""
        return self.shards_done == self.shards

    @property
    def reasons(self) -> Counter[str]:
        """Number of bad photographs by reason."""
        return Counter(bad.reason for bad in self.bad)

    def __str__(self) -> str:
        good = self.tally.samples
        lines = [
            f"{self.target}: {self.shards_done} of {self.shards} shards, {good} images, {self.bytes / 1e6:.1f} MB"
            f" from {self.tally.bytes_in / 1e6:.1f} MB"
        ]
        if self.shards_now:
            shards = "1 shard" if self.shards_now == 1 else f"{self.shards_now} shards"
            lines.append(f"  {shards} by this run, in {self.seconds:.1f} s")
        if self.bad:
            lines.append(f"  {len(self.bad)} bad: " + ", ".join(f"{n} {why}" for why, n in self.reasons.most_common()))
        if self.left_out:
            lines.append("  left out: " + ", ".join(f"{n} {why}" for why, n in sorted(self.left_out.items())))
        return "\n".join(lines)
