"""Expected bytes of images in shards, by which a plan cuts shards of equal size.

They are known only after encoding, which would have to be done twice. Instead a sample is processed
once, when the plan is made, and a line fitted: bytes of a sample = fixed + rate x bytes of its file.
Images that are scaled have mostly the first part, files that are copied only the second. All of it
is integer arithmetic over a fixed sample, so that every machine makes the same plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from fastfeed.preprocess.engines import Engine
from fastfeed.preprocess.inputs.inputs import Input
from fastfeed.preprocess.inputs.readahead import known_sizes
from fastfeed.preprocess.model.recipe import Recipe
from fastfeed.preprocess.planning.estimate import processed, sample_positions
from fastfeed.sources.base import Source

_SAMPLE = 128  # images
_PIECE = 16  # of similar size, which make one point of the fit
_RATE = 1 << 16  # of the rate's unit


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
    sample = sample_positions(len(sizes), _SAMPLE)
    sample = sample[np.argsort(sizes[sample], kind="stable")]
    points = [
        (len(ids), int(sizes[ids].sum()), summary["bytes_out"])
        for summary in processed(input, recipe, engine, sample, _PIECE)
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
