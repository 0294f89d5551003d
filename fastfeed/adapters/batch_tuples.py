"""Batches as the tuples that trainers take: (images, labels[, weights])."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.feed.annotations import annotator
from fastfeed.feed.feed import Feed
from fastfeed.runtime.batch import Batch

__all__ = ["BatchTuples", "image_specs", "label_spec", "target_specs"]


def image_specs(feed: Feed) -> list[tuple[tuple[int, ...], str]]:
    """Shape and dtype of one sample's images; one entry per size of its views."""
    return [(program.shape, program.spec.dtype) for program in (feed.program, *feed.program.others)]


def label_spec(feed: Feed) -> tuple[tuple[int, ...], str]:
    """Shape and dtype of one label: an integer, or a share of every class."""
    soft = feed.program.targets
    return ((), "int64") if soft is None else ((soft.classes,), "float32")


def target_specs(feed: Feed) -> dict[str, tuple[tuple[int, ...], str]]:
    """What is learned from each sample, by name: shape and dtype.

    Of a source that says where things are, "boxes" and "labels" of objects, and "masks"; else its label, unnamed.
    """
    return dict(annotator(feed.source, feed.program).specs) or {"": label_spec(feed)}


@dataclass(frozen=True, slots=True, eq=False)
class BatchTuples:
    """(images, labels) of a batch, with weights where they may differ from one, as flat as devices take them.

    Of a source that says where things are: (images, boxes, labels, masks), or what there is of these; `nested` makes
    (images, {"boxes": ..., "labels": ..., "masks": ...}) of it, as detectors are trained on. Images of several sizes of
    views are a tuple of arrays.

    Padding that no other rank needs is cut off: trainers divide a batch's loss by its length, not by the weights.
    Holds no reference to the feed, so that the feed's threads end when its last user releases it.
    """

    weighted: bool
    last: int  # the step whose padding is cut off, -1 for none
    length: int  # of that step's batch
    factors: np.ndarray | None = None  # of the weights, by label; 1 for labels beyond, and for none; float32
    names: tuple[str, ...] = ("",)  # of targets, as `target_specs`
    sizes: int = 1  # arrays of images

    @classmethod
    def of(cls, feed: Feed, padded: bool = False, factors: np.ndarray | None = None) -> BatchTuples:
        """`padded`: keep padding, with weight 0, for frameworks that compile again for every shape."""
        plan, cut = feed.plan, feed.partial and not padded
        weighted = feed.weighted or factors is not None or (padded and feed.partial)
        names, sizes = tuple(target_specs(feed)), len(image_specs(feed))
        if factors is not None and names != ("",):
            raise ConfigError(
                f"class_weight is by the label of an image, and this feed gives {', '.join(names)} of objects; "
                "leave it out, and weigh classes in the loss"
            )
        return cls(weighted, plan.steps - 1 if cut else -1, plan.length % plan.batch, factors, names, sizes)

    def __call__(self, batch: Batch) -> tuple[Any, ...]:
        weights = batch.weights
        if self.factors is not None:
            weights = weights * _factors(self.factors, batch.labels)
        images = batch.views if self.sizes > 1 else (batch.images,)
        arrays = (*images, *(_target(batch, name) for name in self.names), *([weights] if self.weighted else []))
        return tuple(array[: self.length] for array in arrays) if batch.step == self.last else arrays

    def nested(self, flat: Sequence[Any]) -> tuple[Any, ...]:
        """The nested tuple that trainers take, from the flat one."""
        images, rest = tuple(flat[: self.sizes]), flat[self.sizes :]
        if self.names != ("",):
            rest = [dict(zip(self.names, rest, strict=False)), *rest[len(self.names) :]]
        return images if self.sizes > 1 else images[0], *rest


def _target(batch: Batch, name: str) -> np.ndarray:
    if not name:
        return batch.labels
    target = batch.masks if name == "masks" else getattr(batch.objects, name)
    assert target is not None
    return target


def _factors(factors: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The factor of each label; a soft label has the mean of its classes' factors, weighted by share."""
    if labels.ndim == 2:
        count = min(len(factors), labels.shape[1])
        # no matrix product: the order in which it sums up may depend on the number of rows
        return 1 + (labels[:, :count] * (factors[:count] - 1)).sum(axis=1)
    return np.append(factors, np.float32(1))[np.minimum(labels, len(factors))]
