"""Estimates the output size and run time of a job by processing a sample of its images."""

from __future__ import annotations

import errno
import hashlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fastfeed.decode.base import DecodeFailure
from fastfeed.errors import TargetError
from fastfeed.preprocess.engines import Engine, collect_summaries
from fastfeed.preprocess.inputs.inputs import Input, check_images
from fastfeed.preprocess.inputs.readahead import known_sizes
from fastfeed.preprocess.model.condition import parse_condition, unknown_name
from fastfeed.preprocess.model.plan import JobPlan, ordered
from fastfeed.preprocess.model.recipe import Recipe
from fastfeed.preprocess.model.record import ShardFile, ShardRecord
from fastfeed.preprocess.model.task import TaskContext
from fastfeed.printable import format_size
from fastfeed.sources.base import Source

if TYPE_CHECKING:
    from fastfeed.preprocess.shard.build import ShardTask
    from fastfeed.preprocess.targets.target import Target

SAMPLE_SIZE = 128  # images
_PIECE_SIZE = 16  # images per piece, which are one point of a fit
_MAX_S = 30.0  # then the finished pieces are used
_STANDARD_ERRORS = 2.0  # standard errors: 95 %
_MAX_MEAN_ASPECT = 3.0  # upper bound of the mean of long side / short side
_METADATA_BYTES = 4096  # upper bound per sample, without the image
_RATE = 1 << 16  # of the rate's unit


@dataclass(frozen=True, slots=True)
class JobEstimate:
    """Estimate for `images` images, from those that were processed."""

    images: int
    sampled: int
    bad: Counter[str]  # sampled ones, by reason
    bytes_in: float  # per good image
    bytes_out: float  # per sample in the shards, including its share of overhead
    spread: float  # half of the 95 % confidence interval of bytes_out
    stages: dict[str, float] = field(default_factory=dict)  # seconds per image of one worker
    shards: int = 0
    free: int | None = None  # free bytes in the target; None: unknown

    @property
    def good(self) -> float:
        """Expected images in the shards."""
        return self.images * (1 - self.bad.total() / self.sampled) if self.sampled else 0.0

    @property
    def output(self) -> float:
        """Expected bytes of all shards."""
        return self.good * self.bytes_out

    @property
    def low(self) -> float:
        """Lower bound of the bytes of all shards, at 95 % confidence."""
        return self.good * max(self.bytes_out - self.spread, 0.0)

    @property
    def high(self) -> float:
        """Upper bound of the bytes of all shards, at 95 % confidence."""
        return self.good * (self.bytes_out + self.spread)

    def seconds(self, workers: int) -> float:
        """Expected run time with this many workers, each with its own core."""
        parallel = max(min(workers, self.shards or workers), 1)
        return self.images * sum(self.stages.values()) / parallel

    def document(self, workers: int) -> dict[str, Any]:
        """The estimate as values for JSON."""
        return {
            "images": self.images,
            "shards": self.shards,
            "sampled": self.sampled,
            "bad": dict(sorted(self.bad.items())),
            "bytes": round(self.output),
            "bytes_least": round(self.low),
            "bytes_most": round(self.high),
            "bytes_in": round(self.bytes_in * self.good),
            "workers": workers,
            "seconds": round(self.seconds(workers), 1),
            "stages": {name: round(took, 6) for name, took in self.stages.items()},
            "free": self.free,
        }


def sample_positions(count: int, size: int) -> np.ndarray:
    """Positions in [0, count): any prefix is spread evenly; int64, deterministic."""
    if count <= size:
        strata = np.arange(count)
    else:
        edges = np.arange(size + 1) * count // size
        offsets = np.random.default_rng(0).random(size) * np.diff(edges)
        strata = edges[:-1] + offsets.astype(np.int64)
    # multiples of the golden ratio fill [0, 1) evenly
    order = (np.arange(len(strata)) * 0.6180339887498949) % 1.0
    return strata[np.argsort(np.argsort(order, kind="stable"), kind="stable")].astype(np.int64)


def estimate(
    input: Input,
    recipe: Recipe,
    engine: Engine,
    *,
    ids: np.ndarray | None = None,
    sample: int = SAMPLE_SIZE,
    free: int | None = None,
    on_sample: Callable[[int, int], None] | None = None,
    longest_s: float = _MAX_S,
    at_once: int = _PIECE_SIZE,
) -> JobEstimate:
    """Process and pack `sample` of these images (None: of all), and discard the result.

    The function in `Metadata.extras` is not called, so a condition on what it returns keeps all.
    Raises errors of the source. After `longest_s` the estimate uses the finished ones.
    """
    check_images(input, recipe)
    recipe = _without_function(recipe, input)
    candidates = np.arange(len(input.source)) if ids is None else ids
    sample_ids = candidates[sample_positions(len(candidates), sample)]
    summaries = processed(
        input, recipe, engine, sample_ids, at_once, on_sample=on_sample, longest_s=longest_s
    )
    images = len(candidates)
    packing = recipe.packing
    estimated = _summarize(summaries, images, -(-images // packing.samples), free)
    if packing.shard_bytes:
        shards = math.ceil(estimated.output / int(packing.shard_bytes))
        estimated = replace(estimated, shards=shards)
    return estimated


def processed(
    input: Input,
    recipe: Recipe,
    engine: Engine,
    ids: np.ndarray,
    at_once: int,
    *,
    on_sample: Callable[[int, int], None] | None = None,
    longest_s: float = math.inf,
) -> list[dict[str, Any]]:
    """Process these images in pieces, and discard the result: a summary of each piece.

    "ids" are the good ones, "sizes" their bytes in a shard, "bytes_out" those of all files.
    """
    order, groups = ordered([("", ids)], f"{len(input.source)} images in {input.text}")
    plan = JobPlan(
        recipe=replace(recipe, packing=replace(recipe.packing, samples=at_once, shard_bytes=0)),
        source=input.text,
        fingerprint="",
        length=len(input.source),
        classes=tuple(input.source.classes),
        order=order,
        groups=groups,
        images=input.images,
    )
    from fastfeed.preprocess.shard.build import ShardTask

    task = _SizedTask(ShardTask(input, cast("Target", _NullTarget()), plan))

    def listen(_: int, samples: int) -> None:
        if on_sample is not None:
            on_sample(samples, len(ids))

    return collect_summaries(engine, task, range(len(plan.shards)), listen, longest_s)


def _without_function(recipe: Recipe, input: Input) -> Recipe:
    limits = recipe.limits
    where = recipe.limits.where
    if not recipe.metadata.extras:
        return recipe
    if where and unknown_name(parse_condition(where), {*input.columns}):
        limits = replace(limits, where="")
    return replace(recipe, limits=limits, metadata=replace(recipe.metadata, extras=""))


def check_space(estimated: JobEstimate, target: str) -> None:
    """TargetError if the target certainly has too little free space."""
    if estimated.free is not None and estimated.low > estimated.free:
        raise TargetError(
            f"{target} has {format_size(estimated.free)} free, the shards need"
            f" {format_size(estimated.output)} (estimated from {estimated.sampled} images);"
            " free some space, or choose another target or size",
            errno.ENOSPC,
        )


def surely_fits(images: int, recipe: Recipe, free: int) -> bool:
    """True if the free space suffices for any images; else an estimate is needed."""
    scaling = recipe.scaling
    lossless = recipe.encoding.image in ("png", "raw") or recipe.encoding.quality > 95
    sides = [
        (side, side) if isinstance(side, int) else side
        for side in (scaling.size, *scaling.buckets)
        if side
    ]
    if scaling.mode == "none" or not sides:
        return False
    if scaling.mode == "buckets":
        sides = sides[1:] if scaling.size else sides
    pixels = max(height * width for height, width in sides) * (
        _MAX_MEAN_ASPECT if scaling.mode == "short" else 1
    )
    return free >= images * (pixels * (3.2 if lossless else 1.5) + _METADATA_BYTES)


def _summarize(
    summaries: Sequence[Mapping[str, Any]], images: int, shards: int, free: int | None
) -> JobEstimate:
    count = sum(summary["samples"] for summary in summaries)
    bad = Counter[str]()
    stages = Counter[str]()
    for summary in summaries:
        bad.update(summary["bad"])
        stages.update(summary["seconds"])
    sizes = np.array([size for summary in summaries for size in summary["sizes"]], float)
    good = count - bad.total()
    # a complete sample has no uncertainty
    correction = math.sqrt(max(1 - count / images, 0.0)) if images else 0.0
    # the number of bad ones is uncertain as well
    every = np.append(sizes, np.zeros(bad.total()))
    error = 0.0
    if good and len(every) > 1:
        error = float(every.std(ddof=1)) / math.sqrt(len(every)) / (good / count)
    return JobEstimate(
        images=images,
        sampled=count,
        bad=bad,
        bytes_in=sum(summary["bytes_in"] for summary in summaries) / good if good else 0.0,
        bytes_out=float(sizes.mean()) if len(sizes) else 0.0,
        spread=_STANDARD_ERRORS * error * correction,
        stages={name: stages[name] / count for name in sorted(stages) if name != "commit"},
        shards=shards,
        free=free,
    )


@dataclass(frozen=True, slots=True)
class _SizedTask:
    """A ShardTask that also reports the size of each sample."""

    task: ShardTask

    def run(
        self, piece: int, context: TaskContext, poison: Mapping[int, DecodeFailure]
    ) -> dict[str, Any]:
        summary = self.task.run(piece, context, poison)
        target: Any = self.task.target
        record = target.last.pop()
        return {**summary, "sizes": _sizes(record), "ids": list(record.ids)}

    def alone(self, sample: int, context: TaskContext) -> None:
        self.task.alone(sample, context)


def _sizes(record: ShardRecord) -> list[float]:
    """Bytes of each sample, without the file's header and footer, which occur once per shard."""
    if not record.ids:
        return []
    index_bytes = sum(part.bytes for part in record.files[1:]) / len(record.ids)
    if len(record.offsets) < 2:
        return [record.bytes / len(record.ids)] * len(record.ids)
    return [float(size) + index_bytes for size in np.diff(record.offsets)]


class _NullTarget:
    """A target, and the attempt at each of its shards, that counts and hashes what is written."""

    text = "nowhere"

    def __init__(self) -> None:
        self.last: list[ShardRecord] = []
        self._files: dict[str, _CountingFile] = {}

    def read(self, name: str) -> bytes | None:
        return None

    def attempt(self) -> _NullTarget:
        attempt = _NullTarget()
        attempt.last = self.last
        return attempt

    def create(self, name: str) -> _CountingFile:
        return self._files.setdefault(name, _CountingFile())

    def commit(
        self, record: Callable[[Sequence[ShardFile]], tuple[str, bytes]], replaces: bool = False
    ) -> None:
        files = self._files.items()
        written = [ShardFile(name, file.bytes, file.digest.hexdigest()) for name, file in files]
        name, content = record(written)
        self.last.append(ShardRecord.load(content, name))

    def abandon(self) -> None:
        self._files.clear()


class _CountingFile:
    """Counts and hashes bytes, as hashing takes time in a real run."""

    def __init__(self) -> None:
        self.bytes = 0
        self.digest = hashlib.sha256()

    def write(self, data: Any, /) -> int:
        self.digest.update(data)
        self.bytes += (count := memoryview(data).nbytes)
        return count

    def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True, eq=False)
class ExpectedSizes:
    """Expected bytes of each image of a source in the shards of a recipe."""

    recipe: Recipe
    rates: tuple[int, ...]  # bytes per image, and per 2^16 bytes of its file
    sizes: np.ndarray  # int64, shape (images,): bytes of each file, 0 if unknown

    def cuts(self, order: np.ndarray, groups: Sequence[tuple[str, int]]) -> tuple[int, ...]:
        """Images of each shard of at most the recipe's bytes, as expected, and at least one."""
        fixed, rate = self.rates
        limit = int(self.recipe.packing.shard_bytes)
        ends = np.cumsum(fixed + (rate * self.sizes[order] >> 16))
        cuts: list[int] = []
        start = before = 0
        for _, count in groups:
            last = start + count
            while start < last:
                end = int(np.searchsorted(ends, before + limit, "right"))
                end = min(max(end, start + 1), last)
                cuts.append(end - start)
                start = end
                before = int(ends[end - 1])
        return tuple(cuts)


def expected_sizes(input: Input, recipe: Recipe, engine: Engine) -> ExpectedSizes | None:
    """Expected sizes from a sample that is processed; None if the recipe counts images."""
    if not recipe.packing.shard_bytes:
        return None
    sizes = source_bytes(input.source)
    sample = sample_positions(len(sizes), SAMPLE_SIZE)
    sample = sample[np.argsort(sizes[sample], kind="stable")]
    points = [
        (len(ids), int(sizes[ids].sum()), summary["bytes_out"])
        for summary in processed(input, recipe, engine, sample, _PIECE_SIZE)
        if (ids := summary["ids"])
    ]
    return ExpectedSizes(recipe, _fitted(points), sizes)


def source_bytes(source: Source) -> np.ndarray:
    """Bytes of each file: int64, shape (len(source),); 0 if unknown."""
    if callable(sizes := getattr(source, "file_sizes", None)):
        return np.maximum(np.asarray(sizes(0, len(source)), np.int64), 0)
    return np.array(known_sizes(source, range(len(source))), np.int64)


def _fitted(points: Sequence[tuple[int, int, int]]) -> tuple[int, int]:
    """Rates of the line closest to points of (images, bytes of their files, bytes in shards)."""
    if not points:
        return 1, 0
    n_n = sum(n * n for n, _, _ in points)
    n_x = sum(n * x for n, x, _ in points)
    x_x = sum(x * x for _, x, _ in points)
    n_y = sum(n * y for n, _, y in points)
    x_y = sum(x * y for _, x, y in points)
    determinant = n_n * x_x - n_x * n_x
    fixed = Fraction(n_y, n_n)
    rate = Fraction(0)
    if determinant and n_n * x_y > n_x * n_y:
        fixed = Fraction(x_x * n_y - n_x * x_y, determinant)
        rate = Fraction(n_n * x_y - n_x * n_y, determinant)
        if fixed < 0:
            fixed = Fraction(0)
            rate = Fraction(x_y, x_x)
    return max(round(fixed), 1), round(rate * _RATE)
