"""Progress of a running job, and the report at its end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from fastfeed.preprocess.model.record import BadSample, Counts

__all__ = ["STAGES", "Progress", "Report"]

# phases without numbers, reported once, before they begin
STAGES = {
    "source": "opening the source",
    "resume": "reading the records of finished shards",
    "compare": "comparing photographs, for duplicates or the split",
    "finish": "verifying shards",
}


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is; passed to `on_progress` several times a second.

    Args:
        phase (str): "room" (a sample, to estimate the output's size), "survey" (duplicates and
            sizes), "shards", or "source", "resume", "compare", "finish", which have no numbers and
            are reported once, before they begin.
        shards_done (int): Complete shards, including those of earlier runs.
        shards (int): Shards of this part.
        shards_before (int): Shards that were complete when this run began.
        images_done (int): Photographs in complete shards and in those in progress, including bad
            ones.
        images (int): Photographs of this part.
        images_before (int): Photographs in shards that were complete when this run began.
        bytes_in (int): Bytes read by this run, for complete shards. Default: 0.
        bytes_out (int): Bytes of images written by this run, in complete shards. Default: 0.
        bad (Counter[str]): Bad photographs by reason, of all complete shards. Default: Counter().
        seconds (float): Since this run began. Default: 0.0.

    Example:
        >>> from fastfeed.preprocess import Recipe, Scaling, run
        >>> phases = set()
        >>> def note(progress):
        ...     phases.add(progress.phase)
        >>> report = run("photos", "small", Recipe(Scaling(16)), on_progress=note)
        >>> "shards" in phases
        True
    """

    phase: str
    shards_done: int
    shards: int
    shards_before: int
    images_done: int
    images: int
    images_before: int
    bytes_in: int = 0
    bytes_out: int = 0
    bad: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Report:
    """What a run did, and the state of the job: what `run` returns.

    Args:
        target (str): The folder or URL of the shards.
        shards (int): Shards of the job.
        shards_done (int): Complete shards.
        shards_now (int): Shards that this run completed.
        tally (Counts): Numbers of samples, bytes and pixels, over all complete shards.
        bad (tuple[BadSample, ...]): Bad photographs in all complete shards.
        left_out (dict[str, int]): Photographs that the plan leaves out, such as duplicates, by
            reason.
        bytes (int): Bytes of all shard files.
        seconds (float): Seconds that this run took.
        stages (dict[str, float]): Seconds by stage, of all workers of this run together. Default:
            {}.
        classes (tuple[str, ...]): Names of classes in the order of their labels. Default: ().
        bad_list (str): Path below the target of the list of bad photographs; "" until the job is
            complete. Default: "".
        duplicates (str): Path below the target of the page of duplicates; "" if there are none.
            Default: "".
        notes (tuple[str, ...]): Damaged or excluded parts of the source; () if the run had nothing
            to read. Default: ().
        selection (tuple[str, ...]): What the split and the duplicates came to, in sentences.
            Default: ().

    Example:
        >>> from fastfeed.preprocess import Recipe, Scaling, run
        >>> report = run("photos", "reported", Recipe(Scaling(16)))
        >>> report.complete, report.shards, report.tally.samples, report.classes
        (True, 1, 6, ('cat', 'dog'))
    """

    target: str
    shards: int
    shards_done: int
    shards_now: int
    tally: Counts
    bad: tuple[BadSample, ...]
    left_out: dict[str, int]
    bytes: int
    seconds: float
    stages: dict[str, float] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    bad_list: str = ""
    duplicates: str = ""
    notes: tuple[str, ...] = ()
    selection: tuple[str, ...] = ()

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
            f"{self.target}: {self.shards_done} of {self.shards} shards, {good} images,"
            f" {self.bytes / 1e6:.1f} MB from {self.tally.bytes_in / 1e6:.1f} MB"
        ]
        if self.shards_now:
            shards = "1 shard" if self.shards_now == 1 else f"{self.shards_now} shards"
            lines.append(f"  {shards} in this run, in {self.seconds:.1f} s")
        if self.bad:
            lines.append(
                f"  {len(self.bad)} bad: "
                + ", ".join(f"{n} {why}" for why, n in self.reasons.most_common())
            )
        if self.left_out:
            lines.append(
                "  left out: " + ", ".join(f"{n} {why}" for why, n in sorted(self.left_out.items()))
            )
        lines += [f"  {sentence}" for sentence in self.selection]
        return "\n".join(lines)
