"""What a job will write and how long it will take, from a sample of its photographs that is really made."""

from __future__ import annotations

import errno
import hashlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from fastfeed.decode.base import Bad
from fastfeed.errors import TargetError
from fastfeed.preprocess.plan import make_plan
from fastfeed.preprocess.recipe import Recipe
from fastfeed.preprocess.record import Record, ShardFile
from fastfeed.preprocess.reports.progress import format_size
from fastfeed.preprocess.task import TaskContext

if TYPE_CHECKING:
    from fastfeed.preprocess.engines import Engine
    from fastfeed.preprocess.inputs.inputs import Input
    from fastfeed.preprocess.shard import ShardTask

__all__ = ["SAMPLE_SIZE", "Estimate", "check_space", "estimate", "sample_positions", "surely_fits"]

SAMPLE_SIZE = 128  # photographs
_PIECE = 16  # of them at once
_LONGEST_S = 30.0  # then what is done must do
_SPREAD = 2.0  # standard errors: 95 %
_LONG = 3.0  # times its short side a photograph is long, on the average, at most
_BESIDE = 4096  # bytes of a sample that are not its image's, at most


@dataclass(frozen=True, slots=True)
class Estimate:
    """Of `images` photographs, from those that were made."""

    images: int
    sampled: int
    bad: Counter[str]  # of the sampled ones, by reason
    bytes_in: float  # of one photograph that is good
    bytes_out: float  # of one in the shards, with its share of all that surrounds it
    spread: float  # bytes, of bytes_out: as much more or less may be the mean of all, in 95 of 100 cases
    stages: dict[str, float] = field(default_factory=dict)  # seconds of one worker for one photograph
    shards: int = 0
    free: int | None = None  # bytes that the target has room for; None: nobody says so

    @property
    def good(self) -> float:
        """Photographs that will be in the shards."""
        return self.images * (1 - self.bad.total() / self.sampled) if self.sampled else 0.0

    @property
    def output(self) -> float:
        """Bytes of all shards."""
        return self.good * self.bytes_out

    @property
    def least(self) -> float:
        """Bytes of all shards, at least."""
        return self.good * max(self.bytes_out - self.spread, 0.0)

    @property
    def most(self) -> float:
        """Bytes of all shards, at most."""
        return self.good * (self.bytes_out + self.spread)

    def seconds(self, workers: int) -> float:
        """For so many workers, each with a core of its own."""
        return self.images * sum(self.stages.values()) / max(min(workers, self.shards or workers), 1)

    def document(self, workers: int) -> dict[str, Any]:
        """For programs."""
        return {
            "images": self.images,
            "shards": self.shards,
            "sampled": self.sampled,
            "bad": dict(sorted(self.bad.items())),
            "bytes": round(self.output),
            "bytes_least": round(self.least),
            "bytes_most": round(self.most),
            "bytes_in": round(self.bytes_in * self.good),
            "workers": workers,
            "seconds": round(self.seconds(workers), 1),
            "stages": {name: round(took, 6) for name, took in self.stages.items()},
            "free": self.free,
        }


def sample_positions(count: int, wanted: int) -> np.ndarray:
    """Positions in [0, count), spread evenly and without a period, in such an order that any beginning is spread, too.

    int64, shape (min(count, wanted),). The same for the same numbers.
    """
    if count <= wanted:
        strata = np.arange(count)
    else:
        edges = np.arange(wanted + 1) * count // wanted
        strata = edges[:-1] + (np.random.default_rng(0).random(wanted) * np.diff(edges)).astype(np.int64)
    turns = (np.arange(len(strata)) * 0.6180339887498949) % 1.0  # multiples of the golden ratio fill [0, 1) evenly
    return strata[np.argsort(np.argsort(turns, kind="stable"), kind="stable")].astype(np.int64)


def estimate(
    input: Input,
    recipe: Recipe,
    engine: Engine,
    *,
    ids: np.ndarray | None = None,
    sample: int = SAMPLE_SIZE,
    free: int | None = None,
    on_sample: Callable[[int, int], None] | None = None,
    longest_s: float = _LONGEST_S,
    at_once: int = _PIECE,
) -> Estimate:
    """Make `sample` of these photographs (None: of all), pack them, and throw that away. Writes nothing.

    Errors are those of the source. After `longest_s` it is content with fewer.
    """
    chosen = np.arange(len(input.source)) if ids is None else ids
    looked = chosen[sample_positions(len(chosen), sample)]
    plan = make_plan(
        replace(recipe, packing=replace(recipe.packing, samples=at_once)),
        source=input.text, fingerprint="", length=len(input.source), classes=tuple(input.source.classes),
        groups=[("", looked)], left_out={}, made_with={},
    )  # fmt: skip
    from fastfeed.preprocess.shard import ShardTask

    pieces, begun = range(len(plan.shards)), monotonic()
    found: list[dict[str, Any]] = []
    under_way: dict[int, int] = {}
    outcomes = engine.run(_Trial(ShardTask(input, _Nowhere(), plan)), pieces)
    try:
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
            under_way[outcome.piece] = outcome.samples
            if outcome.summary:
                found.append(outcome.summary)
                del under_way[outcome.piece]
            if on_sample is not None:
                done = sum(one["samples"] for one in found) + sum(under_way.values())
                on_sample(done, len(looked))
            if found and monotonic() - begun > longest_s:
                break
    finally:
        outcomes.close()  # type: ignore[attr-defined]  # an Iterator that is a generator
    shards = -(-len(chosen) // recipe.packing.samples)
    return _of(found, len(chosen), shards, free)


def check_space(found: Estimate, target: str) -> None:
    """TargetError where the target surely has too little room."""
    if found.free is not None and found.least > found.free:
        raise TargetError(
            f"{target} has {format_size(found.free)} free, the shards need {format_size(found.output)} "
            f"(estimated from {found.sampled} photographs); make room, choose another target, or a smaller size",
            errno.ENOSPC,
        )


def surely_fits(images: int, recipe: Recipe, free: int) -> bool:
    """So many bytes are enough, whatever the photographs hold. False: it takes an estimate to know."""
    scaling, lossless = recipe.scaling, recipe.encoding.image in ("png", "raw") or recipe.encoding.quality > 95
    sides = [(side, side) if isinstance(side, int) else side for side in (scaling.size, *scaling.buckets) if side]
    if scaling.mode == "none" or not sides:
        return False
    if scaling.mode == "buckets":
        sides = sides[1:] if scaling.size else sides
    pixels = max(height * width for height, width in sides) * (_LONG if scaling.mode == "short" else 1)
    return free >= images * (pixels * (3.2 if lossless else 1.5) + _BESIDE)


def _of(found: Sequence[Mapping[str, Any]], images: int, shards: int, free: int | None) -> Estimate:
    count = sum(one["samples"] for one in found)
    bad, stages = Counter[str](), Counter[str]()
    for one in found:
        bad.update(one["bad"])
        stages.update(one["seconds"])
    sizes = np.array([size for one in found for size in one["sizes"]], float)
    good = count - bad.total()
    share = math.sqrt(max(1 - count / images, 0.0)) if images else 0.0  # of a sample of all, nothing is uncertain
    each = np.append(sizes, np.zeros(bad.total()))  # how many are bad is uncertain, too
    error = float(each.std(ddof=1)) / math.sqrt(len(each)) / (good / count) if good and len(each) > 1 else 0.0
    return Estimate(
        images=images,
        sampled=count,
        bad=bad,
        bytes_in=sum(one["bytes_in"] for one in found) / good if good else 0.0,
        bytes_out=float(sizes.mean()) if len(sizes) else 0.0,
        spread=_SPREAD * error * share,
        stages={name: stages[name] / count for name in sorted(stages) if name != "commit"} if count else {},
        shards=shards,
        free=free,
    )


@dataclass(frozen=True, slots=True)
class _Trial:
    """A ShardTask that also tells how large each sample is."""

    task: ShardTask

    def run(self, piece: int, watch: TaskContext, poison: Mapping[int, Bad]) -> dict[str, Any]:
        summary = self.task.run(piece, watch, poison)
        target = self.task.target
        assert isinstance(target, _Nowhere)
        return {**summary, "sizes": _sizes(target.last.pop())}

    def alone(self, sample: int, watch: TaskContext) -> None:
        self.task.alone(sample, watch)


def _sizes(record: Record) -> list[float]:
    """Bytes of each sample, without what a file has at its beginning and end: a whole shard has that once, too."""
    if not record.ids:
        return []
    beside = sum(part.bytes for part in record.files[1:]) / len(record.ids)
    if len(record.offsets) < 2:
        return [record.bytes / len(record.ids)] * len(record.ids)
    return [float(size) + beside for size in np.diff(record.offsets)]


class _Nowhere:
    """A target that counts."""

    text = "nowhere"

    def __init__(self) -> None:
        self.last: list[Record] = []

    def read(self, name: str) -> bytes | None:
        return None

    def write(self, name: str, content: bytes) -> None:
        raise AssertionError(f"{name} is written, into nothing")

    def files(self) -> dict[str, int]:
        return {}

    def remove(self, name: str) -> None:
        pass

    def attempt(self) -> _Attempt:
        return _Attempt(self)

    def sweep(self, everything: bool = False) -> int:
        return 0

    def free_bytes(self) -> int | None:
        return None


class _Attempt:
    def __init__(self, target: _Nowhere) -> None:
        self._target = target
        self._files: dict[str, _Counted] = {}

    def create(self, name: str) -> _Counted:
        return self._files.setdefault(name, _Counted())

    def commit(self, record: Callable[[Sequence[ShardFile]], tuple[str, bytes]]) -> None:
        name, content = record(
            [ShardFile(name, file.bytes, file.digest.hexdigest()) for name, file in self._files.items()]
        )
        self._target.last.append(Record.load(content, name))

    def abandon(self) -> None:
        self._files.clear()


class _Counted:
    """Hashes what it is given, for that takes time as well."""

    def __init__(self) -> None:
        self.bytes, self.digest = 0, hashlib.sha256()

    def write(self, data: Any, /) -> int:
        self.digest.update(data)
        self.bytes += (count := memoryview(data).nbytes)
        return count

    def close(self) -> None:
        pass
