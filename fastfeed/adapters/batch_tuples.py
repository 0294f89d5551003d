"""Batches as the tuples that trainers take: (images, labels[, weights])."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.feed.batch.annotations import annotator
from fastfeed.feed.session import FeedSession
from fastfeed.runtime.batch import Batch
from fastfeed.sampling.plan import Plan


def image_specs(session: FeedSession) -> list[tuple[tuple[int, ...], str]]:
    """Shape and dtype of one sample's images; one entry per size of its views."""
    return [
        (program.shape, program.spec.dtype)
        for program in (session.program, *session.program.others)
    ]


def label_spec(session: FeedSession) -> tuple[tuple[int, ...], str]:
    """Shape and dtype of one label: a class number, a share of every class, or another target."""
    return session.program.label


def target_specs(session: FeedSession) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of one sample's targets by name.

    For a source with annotations, "boxes" and "labels" of objects, and "masks"; otherwise the
    label, unnamed.
    """
    specs = annotator(session.source, session.program).specs
    named = {name.removeprefix("box_"): spec for name, spec in specs.items()}
    named.pop("counts", None)
    return named or {"": label_spec(session)}


@dataclass(frozen=True, slots=True, eq=False)
class BatchTuples:
    """(images, labels) of a batch, with weights if they may differ from one, as a flat tuple.

    A source with annotations yields (images, boxes, labels, masks), without those that it lacks;
    `nested` turns this into (images, {"boxes": ..., "labels": ..., "masks": ...}), the form that
    detectors are trained on. With views of several sizes, the images are a tuple of arrays.

    Padding is cut off if no weights mask it: trainers divide a batch's loss by its length, not by
    the weights. No batch is ever empty. Whether there are weights does not depend on the number of
    ranks. Holds no reference to the feed, so that the feed's threads end when its last user
    releases it.
    """

    weighted: bool
    last: int  # the step whose padding is cut off, -1 for none
    length: int  # of that step's batch, on this rank
    loose: bool = False  # whether batches of any rank are cut
    # of the weights, by label; 1 for labels beyond, and for none; float32
    factors: np.ndarray | None = None
    names: tuple[str, ...] = ("",)  # of targets, as `target_specs`
    sizes: int = 1  # arrays of images

    @classmethod
    def of(
        cls,
        session: FeedSession,
        padded: bool = False,
        weighted: bool = False,
        factors: np.ndarray | None = None,
    ) -> BatchTuples:
        """Tuples of this session's batches, as one framework needs them.

        Args:
            session: The feed's session.
            padded: Never cut off padding, even on a single rank, since the framework compiles
                every shape.
            weighted: Add weights wherever a batch may end in padding, so that batches have one
                shape on all ranks.
            factors: Factors of the weights by label, float32; None for no factors.
        """
        plan = session.plan
        weighted = session.weighted or factors is not None or (weighted and plan.tail == "pad")
        loose = plan.tail == "pad" and plan.length % plan.global_batch != 0 and not padded
        loose = loose and (plan.world.size == 1 or not weighted)
        last = plan.steps - 1
        real = int(plan.weights(last).sum())
        names, sizes = tuple(target_specs(session)), len(image_specs(session))
        if factors is not None and names != ("",):
            raise ConfigError(
                f"class_weight is by the label of an image, and this feed gives {', '.join(names)}"
                " of objects; leave it out, and weigh classes in the loss"
            )
        if factors is not None and session.program.targets is None:
            session.program.label.require_class("class_weight", "leave it out")
        if loose:
            _check_share(plan)
        return cls(
            weighted,
            last if loose and real < plan.batch else -1,
            real,
            loose,
            factors,
            names,
            sizes,
        )

    def __call__(self, batch: Batch) -> tuple[Any, ...]:
        weights = batch.weights
        if self.factors is not None:
            weights = weights * _factors(self.factors, batch.labels)
        images = batch.views if self.sizes > 1 else (batch.images,)
        arrays = (
            *images,
            *(_target(batch, name) for name in self.names),
            *([weights] if self.weighted else []),
        )
        return (
            tuple(array[: self.length] for array in arrays) if batch.step == self.last else arrays
        )

    def nested(self, flat: Sequence[Any]) -> tuple[Any, ...]:
        """The nested tuple that trainers take, from the flat one."""
        images, rest = tuple(flat[: self.sizes]), flat[self.sizes :]
        if self.names != ("",):
            rest = [dict(zip(self.names, rest, strict=False)), *rest[len(self.names) :]]
        return images if self.sizes > 1 else images[0], *rest


def _check_share(plan: Plan) -> None:
    """Refuse a last batch that would be empty on some ranks: the mean of its losses is NaN."""
    left = plan.length % plan.global_batch
    size = plan.world.size
    if left < size:
        raise ConfigError(
            f'tail="pad" leaves {left} of {plan.length} samples to the last batch of {size} ranks,'
            ' which would be empty on some, and the mean of its losses NaN; use tail="drop",'
            ' another batch size, or on_bad="mask", which gives every rank a full batch and'
            " weights, 0 for padding"
        )


def _target(batch: Batch, name: str) -> np.ndarray:
    if not name:
        return batch.labels
    target = batch.masks if name == "masks" else getattr(batch.objects, name)
    assert target is not None
    return target


def _factors(factors: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Factor of each label; for a soft label the mean over its classes, weighted by share."""
    if labels.ndim == 2:
        count = min(len(factors), labels.shape[1])
        # no matrix product: the order in which it sums up may depend on the number of rows
        return 1 + (labels[:, :count] * (factors[:count] - 1)).sum(axis=1)
    return np.append(factors, np.float32(1))[np.minimum(labels, len(factors))]
