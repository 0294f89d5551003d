"""What a run has done so far: its progress, its bad photographs, and whether there are too many of
them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic

from fastfeed.errors import TooManyFailures
from fastfeed.preprocess.engines import Outcome
from fastfeed.preprocess.model.plan import Shard
from fastfeed.preprocess.model.record import EXCLUDED, BadSample
from fastfeed.preprocess.model.report import Progress
from fastfeed.preprocess.targets.finalize import log_run
from fastfeed.preprocess.targets.job_state import Job, open_job

__all__ = ["OnProgress", "RunState", "sample_reporter", "stage_reporter", "survey_reporter"]

OnProgress = Callable[[Progress], None]


@dataclass(slots=True)
class RunState:
    """What a run has done so far; reports progress and checks `max_bad`."""

    job: Job
    part_shards: Sequence[Shard]  # shards of this part
    remaining: int  # number of these that this run still has to build
    started: float
    max_bad: float | None
    on_progress: OnProgress | None
    bytes_in: int = 0
    bytes_out: int = 0
    images: int = 0  # in shards that this run completed
    bad: Counter[str] = field(default_factory=Counter)
    stages: Counter[str] = field(default_factory=Counter)
    in_progress: dict[int, int] = field(default_factory=dict)
    errors: list[BaseException] = field(default_factory=list)
    images_before: int = 0  # photographs in shards that were complete at the start
    shards_before: int = 0

    def __post_init__(self) -> None:
        self.bad = Counter(bad.reason for bad in self.job.bad)
        self.shards_before = len(self.part_shards) - self.remaining
        self.images_before = sum(
            shard.last - shard.first
            for shard in self.part_shards
            if shard.index in self.job.records
        )

    @property
    def seconds(self) -> float:
        return monotonic() - self.started

    def handle(self, outcome: Outcome) -> None:
        """Handle an outcome of the engine. Raises errors that end the run."""
        if not outcome.summary and not outcome.error:
            self.in_progress[outcome.piece] = outcome.samples
            self.report_progress()
            return
        self.in_progress.pop(outcome.piece, None)
        if outcome.error is not None:
            if isinstance(
                outcome.error, OSError
            ):  # the target is full or gone: the other shards would fail too
                raise outcome.error
            self.errors.append(outcome.error)
            return
        summary = outcome.summary
        self.remaining -= 1
        self.images += summary["samples"]
        self.bytes_in += summary["bytes_in"]
        self.bytes_out += summary["bytes_out"]
        self.bad.update(summary["bad"])
        self.stages.update(summary["seconds"])
        self.report_progress()
        self.check_limit()

    def check_limit(self) -> None:
        """Raise TooManyFailures if too many photographs are bad, including those of earlier runs.

        Those that the recipe excludes do not count.
        """
        if self.max_bad is None:
            return
        limit = self.max_bad if self.max_bad >= 1 else self.max_bad * len(self.job.plan)
        counted = Counter({reason: n for reason, n in self.bad.items() if reason not in EXCLUDED})
        if (bad := counted.total()) > limit:
            bad_samples = _first_bad(open_job(self.job.target, self.job.plan).bad)
            raise TooManyFailures(
                f"{bad} photographs are bad, more than max_bad (--max-bad) allows ({limit:g}): "
                + ", ".join(f"{n} {why}" for why, n in counted.most_common())
                + "".join(f"\n  {bad_sample}" for bad_sample in bad_samples[:5])
                + "\nfinished shards are kept; run again with a larger limit, or repair these"
                " files and retry them",
                bad_samples,
            )

    def log(self, workers: int | None, pieces: int) -> None:
        """Log what this run did, for `stats`.

        Errors are ignored: the cause is being raised already.
        """
        with suppress(OSError):
            log_run(
                self.job.target,
                self.seconds,
                self.images,
                self.stages,
                pieces - self.remaining,
                workers=workers,
                bytes_in=self.bytes_in,
                bytes_out=self.bytes_out,
            )

    def report_progress(self, phase: str = "shards") -> None:
        """Call `on_progress`."""
        if self.on_progress is None:
            return
        images = sum(shard.last - shard.first for shard in self.part_shards)
        done = self.images_before + self.images + sum(self.in_progress.values())
        self.on_progress(
            Progress(
                phase,
                len(self.part_shards) - self.remaining,
                len(self.part_shards),
                self.shards_before,
                done,
                images,
                self.images_before,
                self.bytes_in,
                self.bytes_out,
                Counter(self.bad),
                self.seconds,
            )
        )


def _first_bad(bad: Sequence[BadSample]) -> list[BadSample]:
    return [sample for sample in bad if sample.reason not in EXCLUDED][:1000]


def stage_reporter(on_progress: OnProgress | None, started: float) -> Callable[[str], None]:
    """Reports that a stage begins: a key of STAGES."""

    def tell(stage: str) -> None:
        if on_progress is not None:
            on_progress(Progress(stage, 0, 0, 0, 0, 0, 0, seconds=monotonic() - started))

    return tell


def survey_reporter(
    on_progress: OnProgress | None, started: float
) -> Callable[[int, int, int, int], None]:
    """Reports progress of the survey: (pieces done, pieces, photographs done, photographs)."""

    def tell(done: int, pieces: int, images: int, total: int) -> None:
        if on_progress is not None:
            on_progress(
                Progress("survey", done, pieces, 0, images, total, 0, seconds=monotonic() - started)
            )

    return tell


def sample_reporter(on_progress: OnProgress | None, started: float) -> Callable[[int, int], None]:
    """Reports progress of the sample that estimates the output's size: (photographs done,
    photographs).
    """

    def tell(images: int, total: int) -> None:
        if on_progress is not None:
            on_progress(Progress("room", 0, 1, 0, images, total, 0, seconds=monotonic() - started))

    return tell
