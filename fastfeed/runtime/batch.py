"""The batches that a feed yields."""

from __future__ import annotations

import re
from collections.abc import KeysView, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.faults import Failure
from fastfeed.printable import printable

_RESERVED = re.compile(
    "(image|view)_[0-9]+|image|label|weight|id|boxes|box_labels|box_counts|keypoints|"
    "instance_masks|masks|polygons|polygon_rings"
)


def column_field(name: str) -> str:
    """Field name of a column: its own, or `column:NAME` where a field of ours has that name."""
    return f"column:{name}" if _RESERVED.fullmatch(name) else name


class UnknownField(ConfigError, KeyError):
    """A field that the batches of a feed do not have. Also a KeyError."""

    __str__ = Exception.__str__  # a KeyError shows its text in quotes

    def __init__(self, name: object, names: Any, what: str = "a batch") -> None:
        super().__init__(
            f"{what} has no field {printable(repr(name), 80)}; the fields are {', '.join(names)}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Boxes:
    """Boxes of the objects in n images, padded; the first `counts` of each are real.

    Indexing with rows gives the boxes of these images.

    Args:
        boxes (np.ndarray): float32 (n, boxes, 4): left, top, right, bottom in pixels of the image;
            0 for padding.
        labels (np.ndarray): int64 (n, boxes); -1 for padding.
        counts (np.ndarray): int64 (n,).
        keypoints (np.ndarray | None): float32 (n, boxes, keypoints, 3): x, y and visibility of the
            points of each object; 0 for padding. Default: None, of sources without keypoints.
        instance_masks (np.ndarray | None): uint8 (n, boxes, height, width): 1 in the pixels of each
            object, 0 in others and for padding. Default: None, of sources without them.
        polygons (np.ndarray | None): float32 (n, points, 2): x, y of the polygons of all objects of
            an image, in pixels; 0 for padding. Default: None, of sources without them.
        polygon_rings (np.ndarray | None): int64 (n, rings, 3): the object (its place among the
            boxes), and the first and the end of its points, half-open, of each ring; (-1, 0, 0) for
            padding. Default: None, of sources without polygons.

    Example:
        >>> images = ff.Arrays(np.zeros((2, 8, 8, 3), np.uint8))
        >>> source = ff.Objects(images, boxes=[[[0, 0, 4, 2]], []], labels=[[1], []])
        >>> batch = next(iter(ff.Feed(source, [ff.RandomFlip(p=1.0)], batch=2, shuffle=False)))
        >>> batch.objects.boxes[0], batch.objects.labels.ravel(), batch.objects.counts
        (array([[4., 0., 8., 2.]], dtype=float32), array([ 1, -1]), array([1, 0]))
    """

    boxes: np.ndarray
    labels: np.ndarray
    counts: np.ndarray
    keypoints: np.ndarray | None = None
    instance_masks: np.ndarray | None = None
    polygons: np.ndarray | None = None
    polygon_rings: np.ndarray | None = None

    @classmethod
    def none(
        cls,
        n: int,
        boxes: int,
        keypoints: int = 0,
        mask_size: tuple[int, int] | None = None,
        polygons: tuple[int, int] | None = None,
    ) -> Boxes:
        """Padding only.

        Args:
            n (int): Images.
            boxes (int): Room for boxes in each image.
            keypoints (int): Points of each object, 0 for none. Default: 0.
            mask_size (tuple[int, int] | None): (height, width) of the mask of each object, pixels.
                Default: None, no masks of objects.
            polygons (tuple[int, int] | None): Room for rings and for points of polygons in each
                image. Default: None, no polygons.

        Returns:
            Boxes whose counts are 0.

        Example:
            >>> ff.Boxes.none(2, boxes=5).boxes.shape
            (2, 5, 4)
        """
        rings, points = polygons or (0, 0)
        return cls(
            np.zeros((n, boxes, 4), np.float32),
            np.full((n, boxes), -1, np.int64),
            np.zeros(n, np.int64),
            np.zeros((n, boxes, keypoints, 3), np.float32) if keypoints else None,
            None if mask_size is None else np.zeros((n, boxes, *mask_size), np.uint8),
            None if polygons is None else np.zeros((n, points, 2), np.float32),
            None if polygons is None else np.tile(np.array([-1, 0, 0], np.int64), (n, rings, 1)),
        )

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, rows: Any) -> Boxes:
        arrays = {name: getattr(self, name) for name in Boxes.__slots__}
        return Boxes(**{name: own[rows] for name, own in arrays.items() if own is not None})


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One step's samples of one rank: n = the batch per rank, the same for every step.

    Also a mapping of its fields, those of `Feed.fields`: `batch["image"]`, `"masks" in batch`,
    `batch.keys()`, `dict(batch)`. They are `image`, `label`, `weight`, `id`; `boxes`, `box_labels`,
    `box_counts`, `keypoints`, `instance_masks`, `polygons`, `polygon_rings` and `masks` where the
    source has them; `image_1` and so on, images of further sizes of views; `view_0` and so on,
    single views of all sizes, (n, ...); the images of a `Together` by their names; and every column
    by its name, or as `column:NAME` where its name is one of these. The length of a batch is n.

    Args:
        images (np.ndarray): (n, ...) in the shape and dtype that the ops end with.
        labels (np.ndarray): int64 (n,), -1 for none; float32 (n, classes) where an op makes them
            soft. Targets of another `label_kind` of the source: float32 (n, ...), or objects (n,)
            for texts.
        weights (np.ndarray): float32 (n,): 0 for padding and masked samples, else 1, or the
            source's weight.
        ids (np.ndarray): Sample ids, int64 (n,); of a substitute, its own.
        epoch (int): Counts from 0.
        step (int): Within the epoch, counts from 0.
        columns (Mapping[str, np.ndarray]): Other values that the source carries, by name. Default:
            {}, none.
        views (tuple[np.ndarray, ...]): Per size of views, (n, views, ...), or per image of a
            `Together`; `images` is the first. Default: ().
        objects (Boxes | None): Of sources with boxes or keypoints. Default: None.
        masks (np.ndarray | None): uint8 (n, height, width): class of each pixel, 255 where unknown.
            Default: None.
        fields (dict[str, Any]): Further fields by name. Default: {}, none.
        image_names (tuple[str, ...]): Names of the images of a `Together`, those in `views`.
            Default: ().
        bad (dict[int, Failure]): Failures by row, of a `Transform`; a feed has put other samples
            into these rows, or counts them in `Feed.stats`. Default: {}, none.

    Raises:
        ConfigError: If a field is requested that this batch does not have; also a KeyError.

    Example:
        >>> source = ff.Arrays(np.zeros((8, 4, 4, 3), np.uint8), np.arange(8))
        >>> batch = next(iter(ff.Feed(source, [], batch=4, shuffle=False)))
        >>> batch
        Batch(epoch 0, step 0: uint8[4, 4, 4, 3])
        >>> batch.labels, batch.weights
        (array([0, 1, 2, 3]), array([1., 1., 1., 1.], dtype=float32))
        >>> list(batch.keys()), batch["image"] is batch.images
        (['image', 'label', 'weight', 'id'], True)
    """

    images: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    ids: np.ndarray
    epoch: int
    step: int
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)
    views: tuple[np.ndarray, ...] = ()
    objects: Boxes | None = None
    masks: np.ndarray | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    image_names: tuple[str, ...] = ()
    bad: dict[int, Failure] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    def keys(self) -> KeysView[str]:
        """Names of the fields.

        Returns:
            The names, in the order of `Feed.fields`.
        """
        return self._places().keys()

    def __contains__(self, name: object) -> bool:
        return name in self._places()

    def __getitem__(self, name: str) -> Any:
        return field_values(self, (name,))[0]

    def _places(self) -> dict[str, tuple[Any, int | None]]:
        """The array that holds each field, and the view within it for a single view."""
        sizes = ["image", *(f"image_{size}" for size in range(1, len(self.views)))]
        names = self.image_names or sizes
        whole: dict[str, Any] = dict(zip(names, self.views or (self.images,), strict=True))
        whole |= {"label": self.labels, "weight": self.weights, "id": self.ids}
        if self.objects is not None:
            whole["boxes"] = self.objects.boxes
            whole["box_labels"] = self.objects.labels
            whole["box_counts"] = self.objects.counts
            for name in ("keypoints", "instance_masks", "polygons", "polygon_rings"):
                if (array := getattr(self.objects, name)) is not None:
                    whole[name] = array
        if self.masks is not None:
            whole["masks"] = self.masks
        sizes = () if self.image_names else self.views
        single = [(views, view) for views in sizes for view in range(views.shape[1])]
        others = {column_field(name): array for name, array in self.columns.items()}
        places: dict[str, tuple[Any, int | None]] = {name: (whole[name], None) for name in whole}
        places |= {f"view_{number}": place for number, place in enumerate(single)}
        places.setdefault("image", (self.images, None))
        return places | {name: (array, None) for name, array in (others | self.fields).items()}

    def __iter__(self) -> NoReturn:
        raise ConfigError(
            "a Batch is not a tuple; take batch.images, batch.labels from it, or iterate"
            " feed.to_torch(), feed.to_jax() or feed.to_tfdata(), which yield (images, labels)"
        )

    def __repr__(self) -> str:
        shape = ", ".join(map(str, self.images.shape))
        return f"Batch(epoch {self.epoch}, step {self.step}: {self.images.dtype}[{shape}])"


def field_values(batch: Batch, names: Sequence[str]) -> list[Any]:
    """Values of several fields of a batch. UnknownField."""
    places = batch._places()
    values = []
    for name in names:
        if name not in places:
            raise UnknownField(name, places)
        array, view = places[name]
        values.append(array if view is None else array[:, view])
    return values
