"""Progress of a running job, the report at its end, and numbers as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic

from fastfeed.faults import format_reasons
from fastfeed.preprocess.model.record import BadSample, Counts
from fastfeed.printable import format_size, printable

# phases without numbers, reported once, before they begin
STAGES = {
    "source": "opening the source",
    "resume": "reading the records of finished shards",
    "compare": "comparing images, for duplicates or the split",
    "finish": "verifying shards",
}


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a job, passed to `on_progress` several times a second.

    Args:
        phase (str): "room" (a sample, to estimate the output's size), "survey" (duplicates and
            sizes), "shards", or "source", "resume", "compare", "finish", which have no numbers and
            are reported once, before they begin.
        shards_done (int): Complete shards, including those of earlier runs.
        shards (int): Shards of this part.
        shards_before (int): Shards that were complete when this run began.
        images_done (int): Images in complete shards and in those in progress, including bad
            ones.
        images (int): Images of this part.
        images_before (int): Images in shards that were complete when this run began.
        bytes_in (int): Bytes read by this run, for complete shards. Default: 0.
        bytes_out (int): Bytes of images written by this run, in complete shards. Default: 0.
        bad (Counter[str]): Bad images by reason, of all complete shards. Default: Counter().
        seconds (float): Since this run began. Default: 0.0.
        dropped (int): Images that `Limits.where` or the function in `Metadata.extras` left out, in
            complete shards. Default: 0.

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
    dropped: int = 0


OnProgress = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class Reporter:
    """Reports what a run is doing to `on_progress`."""

    on_progress: OnProgress | None = None
    started: float = field(default_factory=monotonic)

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return monotonic() - self.started

    def tell(self, progress: Progress) -> None:
        """Pass this progress on to `on_progress`."""
        if self.on_progress is not None:
            self.on_progress(progress)

    def stage(self, name: str) -> None:
        """Report that a stage begins: a key of STAGES."""
        self.tell(Progress(name, 0, 0, 0, 0, 0, 0, seconds=self.seconds))

    def survey(self, done: int, pieces: int, images: int, total: int) -> None:
        """Report that pieces and images of the survey are done."""
        self.tell(Progress("survey", done, pieces, 0, images, total, 0, seconds=self.seconds))

    def sample(self, images: int, total: int) -> None:
        """Report that images of the sample are done that estimates the output's size."""
        self.tell(Progress("room", 0, 1, 0, images, total, 0, seconds=self.seconds))


@dataclass(frozen=True, slots=True)
class Report:
    """Result of a run, and the state of the job.

    Args:
        target (str): The folder or URL of the shards.
        shards (int): Shards of the job.
        shards_done (int): Complete shards.
        shards_now (int): Shards that this run completed.
        tally (Counts): Numbers of samples, bytes and pixels, over all complete shards.
        bad (tuple[BadSample, ...]): Bad images in all complete shards.
        left_out (dict[str, int]): Images that the plan leaves out, such as duplicates, by
            reason.
        bytes (int): Bytes of all shard files.
        seconds (float): Seconds that this run took.
        stages (dict[str, float]): Seconds by stage, of all workers of this run together. Default:
            {}.
        classes (tuple[str, ...]): Names of classes in the order of their labels. Default: ().
        bad_list (str): Path below the target of the list of bad images; "" until the job is
            complete. Default: "".
        duplicates (str): Path below the target of the page of duplicates; "" without duplicates.
            Default: "".
        notes (tuple[str, ...]): Damaged or excluded parts of the source; () if the run had nothing
            to read. Default: ().
        selection (tuple[str, ...]): What the split and the duplicates came to, in sentences.
            Default: ().
        dropped (dict[str, int]): Images that `Limits.where` or the function in `Metadata.extras`
            left out, by reason, in all complete shards; they are not among the bad ones. Default:
            {}.

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
    dropped: dict[str, int] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """True if all shards are done."""
        return self.shards_done == self.shards

    @property
    def reasons(self) -> Counter[str]:
        """Number of bad images by reason."""
        return Counter(bad.reason for bad in self.bad)

    def __str__(self) -> str:
        good = self.tally.samples
        lines = [
            f"{printable(self.target, None)}: {self.shards_done} of {self.shards} shards, {good} images,"
            f" {format_size(self.bytes)} from {format_size(self.tally.bytes_in)}"
        ]
        if self.shards_now:
            shards = "1 shard" if self.shards_now == 1 else f"{self.shards_now} shards"
            lines.append(f"  {shards} in this run, in {self.seconds:.1f} s")
        if self.bad:
            lines.append(f"  {len(self.bad)} bad: {format_reasons(self.reasons)}")
        if self.dropped:
            lines.append(f"  dropped {dropped_text(self.dropped)}")
        if self.left_out:
            lines.append(f"  left out: {format_counts(self.left_out)}")
        lines += [f"  {sentence}" for sentence in self.selection]
        return "\n".join(lines)


def dropped_text(counts: Mapping[str, int]) -> str:
    """`12: 8 where score > 0.5, 4 blurred`, the most frequent reasons first."""
    return printable(f"{sum(counts.values()):,}: {format_reasons(counts, 5)}", None)


def format_counts(counts: Mapping[str, int]) -> str:
    """`3 duplicate_exact, 1 duplicate_near`, by name."""
    return ", ".join(f"{n:,} {name}" for name, n in sorted(counts.items()))


def format_duration(seconds: float) -> str:
    """`42 s`, `3:05 min`, `1:02:03 h`, `3 d 4 h`."""
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    if total < 3600:
        return f"{total // 60}:{total % 60:02} min"
    if total < 172_800:
        return f"{total // 3600}:{total // 60 % 60:02}:{total % 60:02} h"
    return f"{total // 86_400} d {total // 3600 % 24} h"
