"""Batches in the structure that a trainer takes: fields in tuples, lists and dicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.feed.batch.annotations import annotator
from fastfeed.feed.fields import Field, Yields, image_names, view_names
from fastfeed.feed.session import FeedSession
from fastfeed.printable import printable
from fastfeed.runtime.batch import Batch, field_values
from fastfeed.runtime.placement import Placement, wait_until_written
from fastfeed.sampling.plan import Plan
from fastfeed.sources.base import has_labels
from fastfeed.spec import LabelSpec

Where = Literal["auto", "host", "device"]


@dataclass(frozen=True, slots=True, eq=False)
class BatchTuples:
    """The fields of a batch that a trainer takes, as a flat tuple; `nested` gives their structure.

    By default (images, labels), with weights if they may differ from one. A source with annotations
    yields (images, {"boxes": ..., "labels": ..., "masks": ...}), without those that it lacks, the
    form that detectors are trained on. With views of several sizes, the images are a tuple of
    arrays; those of a `Together` are a dict.

    Padding is cut off if no weights mask it: trainers divide a batch's loss by its length, not by
    the weights. No batch is ever empty. Whether there are weights by default does not depend on the
    number of ranks. Holds no reference to the feed, so that the feed's threads end when its last
    user releases it.
    """

    fields: tuple[Field, ...]  # each once
    images: tuple[int, ...]  # positions of images and views among them
    structure: Yields
    last: int  # the step whose padding is cut off, -1 for none
    length: int  # of that step's batch, on this rank
    loose: bool  # whether batches of any rank differ in length
    # factors of the weights by label, float32; 1 for other labels and for no label
    factors: np.ndarray | None

    @classmethod
    def of(
        cls,
        session: FeedSession,
        yields: Yields | None = None,
        *,
        padded: bool = False,
        weighted: bool = False,
        factors: np.ndarray | None = None,
        lists: bool = True,
    ) -> BatchTuples:
        """Tuples of this session's batches, as one framework needs them.

        Args:
            session: The feed's session.
            yields: Names of fields; None for the default.
            padded: Never cut off padding, even on a single rank, since the framework compiles
                every shape.
            weighted: Batches must have one shape on all ranks: add weights by default wherever one
                may end in padding.
            factors: Factors of the weights by label, float32; None for no factors.
            lists: Lists in `yields` stay lists; otherwise they become tuples.
        """
        plan = session.plan
        if yields is None:
            has_weights = session.weighted or factors is not None
            yields = _default(session, has_weights or (weighted and plan.tail == "pad"))
        names = list(dict.fromkeys(names_in(yields)))
        fields = [_field(session, name) for name in names]
        fills = plan.left > 0
        if "weight" not in names:
            kept = fills and (padded or (weighted and plan.world.size > 1))
            _check_no_weights(session, kept, factors)
        if factors is not None:
            _check_labels(session, names)
        cut = fills and not padded and (plan.world.size == 1 or "weight" not in names)
        if cut:
            _check_share(plan)
        real = plan.rows_of(plan.left)
        images = {*image_names(session.program), *view_names(session.program)}
        return cls(
            tuple(fields),
            tuple(position for position, name in enumerate(names) if name in images),
            filled(yields, {name: name for name in names}, lists),
            plan.steps - 1 if cut and real < plan.batch else -1,
            real,
            cut or bool(plan.counts),
            factors,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the fields, in the order of the flat tuple."""
        return tuple(field.name for field in self.fields)

    def __call__(self, batch: Batch) -> tuple[Any, ...]:
        arrays = [_contiguous(array) for array in field_values(batch, self.names)]
        for position, field in enumerate(self.fields):
            if position not in self.images:
                arrays[position] = _as_declared(arrays[position], field)
            if field.name == "weight" and self.factors is not None:
                arrays[position] = arrays[position] * _factors(self.factors, batch.labels)
        if batch.step == self.last:
            arrays = [array[: self.length] for array in arrays]
        return tuple(arrays)

    def nested(self, flat: Sequence[Any]) -> Any:
        """The structure that trainers take, from the flat tuple."""
        return filled(self.structure, dict(zip(self.names, flat, strict=True)))

    def on_images(self, convert: Callable[[Any], Any], flat: Sequence[Any]) -> list[Any]:
        """The flat tuple with images and views converted."""
        return [convert(x) if i in self.images else x for i, x in enumerate(flat)]


def refusal(field: Field, reason: str) -> ConfigError:
    """The error for a field that a framework cannot take."""
    return ConfigError(
        f"yields cannot hold the field {printable(repr(field.name), 80)} here: {reason}; leave it"
        " out, or make another field of it with ff.Map"
    )


def _default(session: FeedSession, weighted: bool) -> tuple[Any, ...]:
    """(images, labels), with targets of objects in place of labels, and weights if needed."""
    names = image_names(session.program)
    images = {name: name for name in names} if session.program.image else tuple(names)
    objects = annotator(session.source, session.program).specs
    targets = {name.removeprefix("box_"): name for name in objects if name != "box_counts"}
    item: tuple[Any, ...] = (images if len(images) > 1 else "image", targets or "label")
    return (*item, "weight") if weighted else item


def names_in(structure: Any) -> Iterator[str]:
    """Names at the leaves of a structure."""
    if isinstance(structure, str):
        yield structure
        return
    parts = structure.values() if isinstance(structure, Mapping) else structure
    if not isinstance(structure, (tuple, list, Mapping)) or not parts:
        raise ConfigError(
            "yields must be a field's name, or a tuple, list or dict of names, got"
            f' {printable(repr(structure), 80)}; for example yields=("image", "label")'
        )
    for part in parts:
        yield from names_in(part)


def filled(structure: Any, values: Mapping[str, Any], lists: bool = True) -> Any:
    """The structure with values in place of names."""
    if isinstance(structure, str):
        return values[structure]
    if isinstance(structure, Mapping):
        return {key: filled(part, values, lists) for key, part in structure.items()}
    parts = [filled(part, values, lists) for part in structure]
    if hasattr(structure, "_fields"):
        return type(structure)(*parts)
    return parts if lists and isinstance(structure, list) else tuple(parts)


def _field(session: FeedSession, name: str) -> Field:
    """The field of this name, if trainers can take it."""
    field = session.field(name)
    if None in field.shape and not field.is_array:
        raise refusal(field, f"its {field.dtype} values differ in shape between samples")
    if field.dtype == "object":
        raise refusal(field, "its values are Python objects other than texts")
    return field


def _check_no_weights(session: FeedSession, padded: bool, factors: np.ndarray | None) -> None:
    """Refuse `yields` without weights if padding or bad samples would count."""
    name = 'name "weight" in yields'
    if factors is not None:
        raise ConfigError(
            f'class_weight is part of the field "weight"; {name}', field="class_weight"
        )
    if session.config.policy.action == "mask":
        raise ConfigError(
            'on_bad="mask" makes a bad sample black, with weight 0, and yields has no weights, so'
            f' that it would count; {name}, or use on_bad="substitute"'
        )
    if padded:
        raise ConfigError(
            'tail="pad" fills the last batch with samples of weight 0, and yields has no weights,'
            f' so that they would count; {name}, or use tail="drop"',
            field="tail",
        )


def _check_labels(session: FeedSession, names: Sequence[str]) -> None:
    """Refuse class weights for batches without class labels."""
    if "label" not in names:
        raise ConfigError(
            'class_weight is by the field "label" of an image, and this feed yields'
            f" {', '.join(names)}; leave it out, and weigh classes in the loss",
            field="class_weight",
        )
    if session.program.targets is None:
        label: Any = session.field("label")  # a Map may have replaced it
        LabelSpec(label.shape, label.dtype).require_class("class_weight", "leave it out")
        replaced = any("label" in op.out_names for op in session.program.maps)
        if not replaced and not has_labels(session.source):
            raise ConfigError(
                f"class_weight needs a source with labels, got {session.source!r}, whose samples"
                " have none; leave it out",
                field="class_weight",
            )


def _check_share(plan: Plan) -> None:
    """Refuse a last batch that would be empty on some ranks: the mean of its losses is NaN."""
    size = plan.world.size
    if plan.left < size:
        raise ConfigError(
            f'tail="pad" leaves {plan.left} of {plan.length} samples to the last batch of {size}'
            ' ranks, which would be empty on some, and the mean of its losses NaN; use tail="drop",'
            ' another batch size, or on_bad="mask", which gives every rank a full batch and'
            " weights, 0 for padding: divide by their sum over all ranks",
            field="tail",
        )


def _contiguous(array: Any) -> Any:
    """The array; a copy of a single view on a GPU, since frameworks refuse strided memory there."""
    if getattr(array, "__cuda_array_interface__", {}).get("strides") is None:
        return array
    copied = array.copy()
    wait_until_written(copied)
    return copied


def _as_declared(array: Any, field: Field) -> Any:
    """The array in the dtype and shape of its field.

    Columns that are read with each sample have those of the samples of a batch, which may differ.
    """
    dtype = np.dtype(field.dtype if field.is_array else object)
    fits = field.fits(array.shape[1:])
    if array.dtype == dtype and fits:
        return array
    if fits and np.can_cast(array.dtype, dtype, "safe"):
        return array.astype(dtype)
    raise ConfigError(
        f"the field {printable(repr(field.name), 80)} has to be {field.dtype} of shape"
        f" {field.shape} in every batch, got {array.dtype} of shape {array.shape[1:]}, of values"
        " that are missing or differ; complete the data, or leave the field out of yields"
    )


def _factors(factors: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Factor of each label; for a soft label the mean over its classes, weighted by share."""
    if labels.ndim == 2:
        count = min(len(factors), labels.shape[1])
        # no matrix product: the order in which it sums up may depend on the number of rows
        return 1 + (labels[:, :count] * (factors[:count] - 1)).sum(axis=1)
    return np.append(factors, np.float32(1))[np.minimum(labels, len(factors))]


def on_device(session: FeedSession, placement: Placement, convert: Where) -> bool:
    """True if the device converts.

    "auto": if it is an accelerator, since bytes are a quarter of the floats.
    """
    if convert not in ("auto", "host", "device"):
        raise ConfigError.of("convert", "one of auto, host, device", convert)
    return session.converts and (
        placement.accelerator if convert == "auto" else convert == "device"
    )
