"""How far a job is, and what came of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from fastfeed.preprocess.record import BadSample, Counts

__all__ = ["Progress", "Report"]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is; said several times a second."""

    phase: str  # "room" (a sample, to see how much there will be), "survey" (duplicates and sizes), "shards"
    shards_done: int  # complete, those of earlier runs, too
    shards: int  # of this part
    shards_before: int  # complete when this run began
    images_done: int  # in them, and in those under way, with the bad ones
    images: int
    images_before: int
    bytes_in: int = 0  # of this run, of complete shards
    bytes_out: int = 0
    bad: Counter[str] = field(default_factory=Counter)  # by reason, of all complete shards
    seconds: float = 0.0  # since this run began


@dataclass(frozen=True, slots=True)
class Report:
    """What a run did, and where the job stands."""

    target: str
    shards: int  # of the whole job
    shards_done: int
    shards_now: int  # done by this run
    tally: Counts  # of all that are done
    bad: tuple[BadSample, ...]  # of all shards that are done
    left_out: dict[str, int]  # by the plan: duplicates
    bytes: int  # of all shard files
    seconds: float  # of this run
    stages: dict[str, float] = field(default_factory=dict)  # seconds of all workers together, of this run
    classes: tuple[str, ...] = ()  # names by label
    notes: tuple[str, ...] = ()  # what of the source is damaged or was left out; () where nothing was left to be read

    @property
    def complete(self) -> bool:
        """Nothing is left to do."""
        return self.shards_done == self.shards

    @property
    def reasons(self) -> Counter[str]:
        """Bad photographs by reason."""
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
