"""The sizes and rows of each batch, where these differ."""

from __future__ import annotations

import math

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.ops.base import BatchFacts, Size
from fastfeed.ops.batch_sizes import BucketSize
from fastfeed.ops.program.by_size import sizes_at
from fastfeed.ops.program.program import Program
from fastfeed.sampling import Buckets
from fastfeed.sampling.plan import Plan
from fastfeed.sampling.rng import SLOT_BATCH, uniform


def batch_sizes(program: Program, plan: Plan, epoch: int, step: int) -> tuple[Size, ...]:
    """The sizes of one batch, the same on all ranks: keys of the program's `by_size`."""
    assert program.by_size is not None
    draw = uniform(plan.seed, epoch, np.array([step]), SLOT_BATCH, 1)[0, 0]
    order = plan.shuffle
    bucket = None
    if isinstance(order, Buckets) and order.sizes:
        bucket = order.size_at(step * plan.global_batch, plan.seed, epoch)
    largest = None
    if program.by_size.image_sizes is not None:
        first = step * plan.global_batch
        last = first + plan.count(step, epoch)
        ids = plan.at(epoch, np.arange(first, last, dtype=np.int64)).ids
        height, width = program.by_size.image_sizes[ids].max(axis=0).tolist()
        largest = (height, width)
    batch = BatchFacts(epoch, float(draw), bucket, largest)
    return sizes_at(program.by_size.choices, batch)


def rows_by_size(program: Program, plan: Plan) -> list[int]:
    """Rows of a batch on this rank, for each of `program.sized`."""
    order = plan.shuffle
    if not plan.counts or program.by_size is None or not isinstance(order, Buckets):
        return [plan.batch] * len(program.sized)
    place = program.by_size.choices.index(BucketSize())
    return [plan.rows_of(order.images_of(sizes[place])) for sizes in program.by_size.programs]


def most_rows(program: Program, plan: Plan) -> int:
    """Rows of the largest size that take the memory of any batch."""
    rows = zip(rows_by_size(program, plan), program.sized, strict=True)
    return -(-max(n * math.prod(each.shape) for n, each in rows) // math.prod(program.shape))


def check_sizes(program: Program, plan: Plan, backend: str) -> None:
    """ConfigError if batches of these sizes cannot be made."""
    choices = program.by_size.choices if program.by_size is not None else ()
    if plan.counts and BucketSize() not in choices:
        raise ConfigError(
            f"{plan.shuffle} has more images in batches of small sizes, and no op takes the size;"
            " write BucketSize() in place of an op's size, or leave max_pixels out",
            field="shuffle",
        )
    if program.by_size is None:
        return
    if backend != "cpu":
        raise ConfigError(
            f"{program.by_size.choices[0]!r} needs the cpu backend, got {backend!r}, which compiles"
            ' one size; pass decode="cpu", or a size'
        )
    order = plan.shuffle
    if BucketSize() in choices and isinstance(order, Buckets) and plan.global_batch != order.run:
        raise ConfigError(
            f"BucketSize() needs all samples of a step in one bucket, got {plan.global_batch}"
            f" samples per step and Buckets(batch={order.run}); pass global_batch={order.run}",
            field="batch",
        )
