"""A feed's configuration and its checks: no thread is started and no file opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fastfeed.arguments import check_count
from fastfeed.backends.options import check_pixels, choose
from fastfeed.decode.memory_limit import check_memory
from fastfeed.distributed.cores import cores_for
from fastfeed.distributed.world import World
from fastfeed.errors import ConfigError
from fastfeed.faults import FaultPolicy, Outage, fault_policies
from fastfeed.feed.batch_sizes import check_sizes
from fastfeed.feed.faults.quarantine import Quarantine
from fastfeed.ops.base import Op
from fastfeed.ops.per_image import fuse_images
from fastfeed.ops.program.by_size import fuse_sizes
from fastfeed.ops.program.compile import Program, fuse, with_transforms
from fastfeed.ops.source_crop import parts
from fastfeed.runtime.guards import check_workers
from fastfeed.sampling import Buckets, ClassBatches, Repeated, Weighted, bind
from fastfeed.sampling.plan import Plan
from fastfeed.sampling.rng import PER_SLOT
from fastfeed.sources.base import (
    Optionals,
    Source,
    check_source,
    has_boxes_or_masks,
    has_same_geometry,
    image_sources,
)
from fastfeed.sources.headers import read_headers

# loaded on demand
BACKENDS = {name: f"fastfeed.backends.{name}.backend" for name in ("cpu", "dali", "nvjpeg")}

OpList = Sequence[Op | Callable[[np.ndarray, np.ndarray], np.ndarray]]

MOST_THREADS = 1 << 16  # threads, and batches ahead
_LABELS_AT_ONCE = 1 << 20  # checked in one call


@dataclass(frozen=True, slots=True)
class FeedConfig:
    """All that batches depend on; it pickles, so that a helper process can make the same ones."""

    source: Source
    program: Program
    plan: Plan
    backend: str  # key of BACKENDS
    decode: Any  # as `Feed` takes it
    threads: int
    prefetch: int  # batches ahead of the one in use
    policy: FaultPolicy
    outage: Outage
    memory: int | None  # bytes that decoding may hold at once in this process; None: unchanged
    quarantine: str | os.PathLike[str] | None
    side_process: bool
    name: str
    weigh: bool  # by the source's weights, where it has any

    @property
    def buffers(self) -> int:
        """Batches whose memory is reused."""
        return self.prefetch + 2

    def open_quarantine(self, tells: bool = True) -> Quarantine:
        """Bad samples that are known; tells: False for one whose owner writes to no log."""
        return Quarantine(
            self.quarantine,
            policy=self.policy,
            length=len(self.source),
            rank=self.plan.world.rank,
            uri=self.source.uri,
            tells=tells,
        )

    @classmethod
    def make(
        cls,
        source: Source,
        ops: OpList | Mapping[str, OpList],
        *,
        batch: int | None = None,
        global_batch: int | None = None,
        seed: int = 0,
        world: World | None = None,
        shuffle: Any = "full",
        tail: Any = "drop",
        threads: int | None = None,
        prefetch: int = 2,
        decode: Any = "auto",
        backend: str | None = None,
        on_bad: Any = "substitute",
        on_error: Any = None,
        outage: float | Outage = Outage(),  # noqa: B008
        memory: int | None = None,
        quarantine: str | os.PathLike[str] | None = None,
        side_process: bool = False,
        name: str = "",
        to_original: bool = False,
    ) -> FeedConfig:
        """Check the arguments of `Feed`; ConfigError if one is invalid or two conflict."""
        check_source(source, "source", several=True)
        check_workers(explicit_world=world is not None)
        world = world if world is not None else World.detect()
        if not isinstance(world, World):
            raise ConfigError.of("world", "a World such as World(rank=0, size=2) or None", world)
        threads = cores_for(world) if threads is None else threads
        check_count("threads", threads, 1, MOST_THREADS)
        check_count("prefetch", prefetch, 0, MOST_THREADS)
        check_memory(memory)
        chosen, decode = choose(decode, backend, BACKENDS)
        if not isinstance(side_process, bool):
            raise ConfigError.of("side_process", "True or False", side_process)
        sizes = shuffle.bucket_sizes if isinstance(shuffle, Buckets) else ()
        name_of_first, image = next(iter(image_sources(source).items()))
        program = fuse_sizes(
            ops,
            partial(_program, source, to_original),
            sizes,
            (name_of_first, image.spec),
            partial(_image_sizes, source),
        )
        check_pixels(program, chosen)
        if program.image and chosen != "cpu":
            raise ConfigError(
                f'Together needs the cpu backend, got {chosen!r}; pass decode="cpu", or leave'
                " decode and backend out"
            )
        plan = Plan.make(
            len(source),
            batch=batch,
            global_batch=global_batch,
            seed=seed,
            world=world,
            shuffle=bind(_with_image_sizes(shuffle, source), source),
            tail=tail,
            mixed=program.mix.op.group if program.mix is not None else False,
        )
        _check_fit(program, plan, source)
        check_sizes(program, plan, chosen)
        if program.maps_images and chosen != "cpu":
            raise ConfigError(
                f'backend="{chosen}" keeps images on the GPU, where a Map cannot take them; use'
                ' backend="cpu", or a Map of other fields'
            )
        policy, outage = fault_policies(on_bad, on_error, outage)
        # samples drawn in proportion to their weight must not be weighted again in the loss
        weigh = not (isinstance(shuffle, Weighted) and shuffle.weights is None)
        return cls(
            source,
            program,
            plan,
            chosen,
            decode,
            threads,
            prefetch,
            policy,
            outage,
            memory,
            quarantine,
            side_process,
            name,
            weigh,
        )


def _with_image_sizes(shuffle: Any, source: Source) -> Any:
    """The order with the sizes of all images, if it groups by them and has none yet."""
    if not isinstance(shuffle, Buckets) or not shuffle.needs_image_sizes:
        return shuffle
    return shuffle.of_images(_image_sizes(source))


def _image_sizes(source: Source) -> np.ndarray:
    """(height, width) of all images as ops get them, of a sample's first one: int64 (n, 2)."""
    image = next(iter(image_sources(source).values()))
    sizes = read_headers(image).sizes.astype(np.int64)
    boxes = Optionals(image).boxes(np.arange(len(image)))
    return sizes if boxes is None else parts(boxes, sizes)[1]


def _program(source: Source, to_original: bool, ops: Any) -> Program:
    """Compile ops, all of one size."""
    return with_transforms(_fused(ops, source), to_original)


def _fused(ops: Any, source: Source) -> Program:
    options: dict[str, Any] = {
        "classes": len(source.classes),
        "objects": has_boxes_or_masks(source),
        "label": Optionals(source).label_spec,
    }
    images = image_sources(source)
    if len(images) == 1:
        return fuse(ops, source.spec, **options)
    specs = {name: image.spec for name, image in images.items()}
    return fuse_images(ops, specs, has_same_geometry(source), **options)


def _check_fit(program: Program, plan: Plan, source: Source) -> None:
    """Raise ConfigError for settings that would fail during a run, or train on nonsense."""
    for branch in (program, *program.others):
        check_draws(branch)
    if program.mix is not None:
        _check_partners(program.mix.op, plan)
    if program.targets is not None:
        _check_labels(program, source)


def check_draws(program: Program) -> None:
    """An op that draws more than its slot has would get the numbers of the next op."""
    for step in program.drawing:
        if step.views * step.op.draws > PER_SLOT:
            each = f" for each of {step.views} views" if step.views > 1 else ""
            raise ConfigError(
                f"{type(step.op).__name__} may draw {PER_SLOT} random numbers per sample, got"
                f" {step.op.draws}{each}; give the functions in it fewer draws: one number can seed"
                " a generator",
                field="ops",
            )


def _check_partners(op: Any, plan: Plan) -> None:
    name = type(op).__name__
    if plan.global_batch < 2 * plan.world.size:
        raise ConfigError(
            f"{name} mixes neighbors of a batch and needs batch >= 2, "
            f"got {plan.global_batch / plan.world.size:g} per rank; raise batch, or leave it out",
            field="batch",
        )
    order = plan.shuffle
    if isinstance(order, Repeated) and order.together:
        least = order.times * op.group
        if plan.global_batch < least:
            raise ConfigError(
                f"{name} would mix samples with themselves: under {order} it needs a global batch"
                f" of at least {least}, got {plan.global_batch}; raise batch, or write"
                " together=False",
                field="batch",
            )

    if isinstance(order, ClassBatches):
        raise ConfigError(
            f"{name} mixes any {op.group} samples of a global batch and would undo {order}, which"
            f" puts samples of a class next to each other; leave {name} out, or pass another order",
            field="shuffle",
        )
    counts = plan.counts or {plan.global_batch: plan.steps}
    parts = any(count % op.group for count in counts)
    if isinstance(order, Buckets) and (plan.global_batch != order.run or parts):
        raise ConfigError(
            f"{name} mixes any {op.group} samples of a global batch and would mix buckets of"
            f" {order}, got {', '.join(map(str, counts))} samples per step; make Buckets.batch"
            f" {'and multiple multiples' if plan.counts else 'a multiple'} of {op.group} and"
            f" global_batch equal to it, or leave {name} out",
            field="shuffle",
        )


def _check_labels(program: Program, source: Source) -> None:
    """Soft labels need classes: single samples may have none, not all of them."""
    assert program.targets is not None
    classes = program.targets.classes
    largest = -1
    for first in range(0, len(source), _LABELS_AT_ONCE):
        labels = source.label(np.arange(first, min(first + _LABELS_AT_ONCE, len(source))))
        largest = max(largest, int(labels.max(initial=-1)))
        if labels.min(initial=-1) < -1:
            i = int(labels.argmin())
            raise ConfigError(
                f"labels must be in [0, {classes}) to become soft, or -1 for none, got"
                f" {labels[i]} for {source.uri(first + i)}; number the classes from 0"
            )
        if largest >= classes:
            i = first + int(labels.argmax())
            raise ConfigError(
                f"labels must be in [0, {classes}) to become soft, got {largest} for"
                f" {source.uri(i)}; write OneHot({largest + 1}), or the number of classes there are"
            )
    if largest < 0 and len(source):
        raise ConfigError(
            f"{source!r} has no labels, but the ops make soft labels; use a labeled source, or"
            " leave these ops out"
        )
