"""The list of ops for evaluation and serving that goes with a list for training."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from fastfeed.arguments import checked
from fastfeed.errors import ConfigError
from fastfeed.ops.base import (
    BatchFacts,
    Size,
    SizeChoice,
    check_size,
    height_width,
    op_filters,
)
from fastfeed.ops.batch_sizes import BySchedule, RandomSizes
from fastfeed.ops.compose import Maybe, OneOf, Sequential
from fastfeed.ops.crops import CenterCrop, RandomCrop
from fastfeed.ops.function import Function, as_op
from fastfeed.ops.geometry import RandomResizedCrop, Resize
from fastfeed.ops.labels import LabelSmoothing
from fastfeed.ops.map import Map
from fastfeed.ops.object_crops import IoUCrop, ZoomOut
from fastfeed.ops.program.by_size import size_choices, with_sizes
from fastfeed.ops.views import MultiCrop
from fastfeed.spec import Spec

__all__ = ["evaluation"]

_PROBE = Spec((4096, 4096, 3), "uint8", "HWC")


@checked
def evaluation(ops: Sequence[Any]) -> list[Any]:
    """Ops for evaluation and serving that go with ops for training: none of them draws.

    `RandomResizedCrop(s)` becomes `Resize(round(s * 256 / 224))` and `CenterCrop(s)` (of a size
    that is no square, s is the short side), `RandomCrop` `CenterCrop`, which pads if that does; of
    a `OneOf` remains what all its ops become. Of several filters the first stays, of `BySchedule`
    the last size, and of `RandomSizes` the largest. Other ops that draw are left out (flips,
    colors, policies, erasing, noise), as are those that mix samples and `LabelSmoothing`; ops that
    do the same to every sample stay.

    Args:
        ops (Sequence[Op | Callable]): The list for training.

    Returns:
        A list of ops, whose images have the same spec as those of `ops`.

    Raises:
        ConfigError: If a `Function` or `Map` takes random numbers, an op has `BucketSize` or
            `LargestSize`, images become several crops of random place, or a random op without a
            rule decides their size.

    Example:
        >>> ff.evaluation([ff.RandomResizedCrop(224), ff.RandomFlip(), ff.Normalize.imagenet()])
        [Resize(size=256, filter='bilinear'), CenterCrop(size=224), Normalize(mean=(0.485, ...
    """
    if not isinstance(ops, Sequence) or isinstance(ops, str):
        raise ConfigError.of("ops", "a list of ops such as [RandomResizedCrop(224)]", ops)
    listed = [as_op(op) for op in ops]
    listed = with_sizes(listed, {choice: _one_size(choice) for choice in size_choices(listed)})
    return [kept for op in listed for kept in _evaluated(op)]


def _one_size(choice: SizeChoice) -> Size:
    if isinstance(choice, BySchedule):
        return choice.size_at(BatchFacts(epoch=choice.starts[-1]))
    if isinstance(choice, RandomSizes):
        return max(choice.sizes, key=lambda size: math.prod(height_width(size)))
    raise ConfigError(
        f"{choice!r} depends on the batches of a feed, so its size in evaluation is unknown; write"
        " a size in its place, such as 224, in the list that is evaluated",
        field="ops",
    )


def _evaluated(op: Any) -> list[Any]:
    rule = _RULES.get(type(op))
    if rule is not None and (known := rule(op)) is not None:
        return known
    kind = getattr(op, "kind", None)
    if kind is None or isinstance(op, type):
        raise ConfigError.of("ops", "ops such as Resize(224)", op)
    if kind == "mix":
        return []
    if not op.draws:
        return [op]
    if kind in ("geometry", "change") and op.out(_PROBE) != _PROBE:
        raise ConfigError(
            f"{op!r} is random and decides the size of images, so its list for evaluation is"
            " unknown; write that list by hand, with Resize and CenterCrop in its place",
            field="ops",
        )
    return []


def _resized_crop(op: RandomResizedCrop) -> list[Any]:
    side = min(check_size("RandomResizedCrop", op.size))
    return [Resize(round(side * 256 / 224), filter=op_filters(op)[0]), CenterCrop(op.size)]


def _random_crop(op: RandomCrop) -> list[Any]:
    if not op.pad_if_needed:
        return [CenterCrop(op.size)]
    return [CenterCrop(op.size, op.mode, op.fill, op.pad_if_needed)]


def _sequence(op: Sequential) -> list[Any]:
    return evaluation(op.ops) if op.draws else [op]


def _maybe(op: Maybe) -> list[Any]:
    return _evaluated(op.op) if op.p == 1 else []


def _evaluated_choice(op: OneOf) -> list[Any] | None:
    if op.kind == "change":
        return []  # its ops keep the size
    first, *others = [_evaluated(each) for each in op.ops]
    return first if all(other == first for other in others) else None


def _function(op: Function | Map) -> list[Any]:
    if op.draws:
        raise ConfigError(
            f"{op!r} takes random numbers, so what it does in evaluation is unknown; leave it out"
            " of the list that is evaluated, or give it draws=0 if it needs none",
            field="ops",
        )
    return [op]


def _multi_crop(op: MultiCrop) -> list[Any]:
    raise ConfigError(
        f"MultiCrop makes {sum(view.count for view in op.views)} random crops of each image, so its"
        " list for evaluation is unknown; write that list by hand, such as [Resize(256),"
        " CenterCrop(224)]",
        field="ops",
    )


_RULES: dict[type, Callable[[Any], list[Any] | None]] = {
    RandomResizedCrop: _resized_crop,
    Resize: lambda op: [replace(op, filter=op_filters(op)[0])],
    RandomCrop: _random_crop,
    Sequential: _sequence,
    Maybe: _maybe,
    OneOf: _evaluated_choice,
    Function: _function,
    Map: _function,
    MultiCrop: _multi_crop,
    LabelSmoothing: lambda op: [],
    IoUCrop: lambda op: [],
    ZoomOut: lambda op: [],
}
