"""Buckets: batches of samples that are alike."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np

from fastfeed.arguments import checked
from fastfeed.errors import ConfigError
from fastfeed.printable import printable
from fastfeed.sampling.base import Epoch, SampleRefs, set_count
from fastfeed.sampling.orders.classes import Classes
from fastfeed.sampling.orders.columns import hash_numbers, read_column
from fastfeed.sampling.permute import permute

_AT_ONCE = 1 << 16  # images whose size is looked up in one call
_SAME = 1e-9  # logarithms of one aspect ratio differ less
_MOST_PIXELS = 2**62
_RUNS = 2**32  # in keys, in the place of a bucket, which is smaller


@dataclass(frozen=True, slots=True)
class Grouping:
    """Samples by the value of a column."""

    samples: Classes = field(compare=False)
    values: np.ndarray = field(compare=False)  # of each bucket
    digest: str

    def __repr__(self) -> str:  # saved states hold this text
        return f"<{len(self.samples.ids)} samples in {len(self.values)} buckets, {self.digest}>"

    @classmethod
    def of(cls, values: Any) -> Grouping:
        """Build from one value per sample."""
        array = np.asarray(values)
        if array.dtype == object and all(isinstance(value, str) for value in array.flat):
            array = array.astype(str)
        if array.ndim != 1 or not len(array) or array.dtype.kind not in "iubU":
            raise ConfigError(
                "Buckets.by must be the name of a column or one value per sample, integers or texts,"
                f" got {array.dtype}{list(array.shape)}; group other numbers by np.digitize(numbers,"
                " bins)",
                field="by",
            )
        found, codes = np.unique(array, return_inverse=True)
        return cls(Classes.of(codes), found, hash_numbers(codes))


@dataclass(frozen=True, slots=True)
class Aspects:
    """Samples by the size whose aspect ratio is nearest to that of their image."""

    # (height, width) of all images, int64 (n, 2), or the names of two columns; None: read headers
    images: Any = None

    def group(self, images: np.ndarray, sizes: Sequence[tuple[int, int]]) -> Grouping:
        """Buckets of images by the index of their size."""
        nearest = nearest_aspects(images, sizes)
        counts = np.bincount(nearest[nearest >= 0], minlength=len(sizes))
        if unused := [sizes[k] for k in np.flatnonzero(counts == 0).tolist()]:
            raise ConfigError(
                f"no image is nearest to the aspect ratio of {_listed(unused)}; leave"
                f" {'it' if len(unused) == 1 else 'these'} out of sizes",
                field="sizes",
            )
        nearest[nearest < 0] = counts.argmax()  # damaged: others of this bucket replace them
        return Grouping.of(nearest)


@checked
@dataclass(frozen=True, slots=True)
class Buckets:
    """Batches whose samples all have one value of a column: a length of text, a shape, a task.

    Every run of `batch` positions is of one bucket, the samples with one value. Runs come in random
    order, a bucket's samples in another random order in every epoch. The global batch is one run,
    so that all ranks have the same bucket in a step, or several. Reads from anywhere in storage;
    keeps 4 bytes per sample in memory.

    With `max_pixels` a batch has as many images as its size allows: all batches have about as many
    pixels, and those of small images have more images than those of large ones.

    Args:
        by (str | Sequence | np.ndarray): A column of the source, or one value per sample: integers
            or texts.
        batch (int): Positions of a run, at least 1: samples of a batch over all ranks, and with
            `max_pixels` the most of them that a batch has, which is then the feed's global batch.
        leftovers (str): Samples of a bucket that do not fill a run: "drop" leaves them out of this
            epoch, others in every epoch; "fill" adds samples of the bucket that have come before in
            the epoch, augmented differently. Default: "drop".
        sizes (Mapping | None): Size of the images of each bucket, by its value: the side of a
            square or (height, width), pixels, which ops take as `BucketSize()`. Default: None, all
            batches have one size.
        max_pixels (int | None): Most pixels of a batch over all ranks, height x width x images, for
            `sizes`. Default: None, every batch has `batch` images.
        multiple (int): Under `max_pixels`, numbers of images are multiples of this. Default: 1.

    Raises:
        ConfigError: If an argument is out of range, `by` holds other values, `sizes` are not those
            of these values, or `max_pixels` leaves a size without images or allows no size `batch`
            of them. A column that the source does not have, a bucket that would never fill a run,
            and a global batch that is not a multiple of `batch` are refused by `Feed`.

    Example:
        >>> source = ff.Arrays(np.zeros((8, 1, 1, 3), np.uint8), np.arange(8))
        >>> order = ff.Buckets(["long", "short"] * 4, batch=2)
        >>> feed = ff.Feed(source, [], batch=2, shuffle=order)
        >>> [batch.ids.tolist() for batch in feed]
        [[0, 4], [2, 6], [1, 5], [3, 7]]
    """

    open: ClassVar[bool] = True

    by: Any
    batch: int
    leftovers: Literal["drop", "fill"] = "drop"
    sizes: Any = None  # a mapping; kept as pairs of a value and a size
    max_pixels: int | None = None
    multiple: int = 1
    # int64: samples of a batch by bucket; by size while `by` is not bound
    _batches: np.ndarray = field(init=False, repr=False, compare=False)

    def __repr__(self) -> str:  # saved states hold this text
        more = "" if self.sizes is None else f", sizes={dict(self.sizes)}"
        if self.max_pixels is not None:
            more += f", max_pixels={self.max_pixels}, multiple={self.multiple}"
        return f"Buckets(by={self.by!r}, batch={self.batch}, leftovers={self.leftovers!r}{more})"

    def __post_init__(self) -> None:
        set_count(self, "batch")
        if self.leftovers not in ("drop", "fill"):
            raise ConfigError.of("Buckets.leftovers", '"drop" or "fill"', self.leftovers)
        if self.sizes is not None:
            object.__setattr__(self, "sizes", _checked_sizes(self.sizes))
        if not isinstance(self.by, (str, Grouping, Aspects)):
            object.__setattr__(self, "by", Grouping.of(self.by))
        if isinstance(self.by, Grouping):
            self._check_values()
        sizes = dict(self.sizes or ())
        values = self.by.values.tolist() if isinstance(self.by, Grouping) else list(sizes)
        self._check_pixels()
        batches = [self.batch if not sizes else self.images_of(sizes[value]) for value in values]
        object.__setattr__(self, "_batches", np.array(batches, np.int64))

    @classmethod
    @checked
    def by_aspect(
        cls,
        sizes: Sequence[Any],
        batch: int,
        leftovers: Literal["drop", "fill"] = "drop",
        images: Any = None,
        max_pixels: int | None = None,
        multiple: int = 1,
    ) -> Buckets:
        """Buckets of aspect ratios: each image goes to the size whose width / height is nearest.

        Ratios are compared by their logarithm. Of sizes with one ratio an image takes the largest
        that does not enlarge it, or else the smallest.

        Args:
            sizes (Sequence[int | tuple[int, int]]): Sizes of batches: the side of a square or
                (height, width), pixels, which ops take as `BucketSize()`.
            batch (int): Positions of a run, as for `Buckets`.
            leftovers (str): As for `Buckets`. Default: "drop".
            images (Sequence | np.ndarray | None): (height, width) of every image as displayed, (n,
                2), or the names of two columns that hold them. Default: None, `Feed` reads the
                headers of all images once and keeps their sizes in FASTFEED_CACHE.
            max_pixels (int | None): As for `Buckets`. Default: None.
            multiple (int): As for `Buckets`. Default: 1.

        Returns:
            The order.

        Raises:
            ConfigError: If an argument is out of range. A size that no image is nearest to is
                refused as soon as the images are known, at the latest by `Feed`.

        Example:
            >>> images = [(600, 800), (800, 600), (700, 800), (900, 600)]
            >>> order = ff.Buckets.by_aspect([(96, 128), (128, 96)], batch=2, images=images)
            >>> feed = ff.Feed(
            ...     ff.Arrays(np.zeros((4, 8, 8, 3), np.uint8)),
            ...     [ff.Resize(ff.BucketSize())],
            ...     batch=2,
            ...     shuffle=order,
            ... )
            >>> [(batch.ids.tolist(), batch.images.shape[1:3]) for batch in feed]
            [([2, 0], (96, 128)), ([3, 1], (128, 96))]
        """
        if not isinstance(sizes, (list, tuple)) or not sizes:
            raise ConfigError.of("sizes", "a list of sizes such as [(832, 1216), 1024]", sizes)
        if len({_pair(size) for size in sizes}) < len(sizes):
            raise ConfigError(f"sizes must differ, got {_listed(sizes)}", field="sizes")
        order = cls(Aspects(), batch, leftovers, dict(enumerate(sizes)), max_pixels, multiple)
        if images is None:
            return order
        if isinstance(images, (list, tuple)) and all(isinstance(name, str) for name in images):
            if len(images) != 2:
                raise ConfigError.of("images", "two names of columns, height and width", images)
            return replace(order, by=Aspects(tuple(images)))
        return order.of_images(images)

    @property
    def bucket_sizes(self) -> tuple[tuple[int, int], ...]:
        """(height, width) of the buckets, pixels; () if they have none."""
        return tuple(size for _, size in self.sizes or ())

    @property
    def needs_image_sizes(self) -> bool:
        """True if the sizes of all images have to be read from their headers."""
        return isinstance(self.by, Aspects) and self.by.images is None

    def of_images(self, images: Any) -> Buckets:
        """This order of aspect ratios for images of these sizes.

        Args:
            images (np.ndarray): (height, width) of every image, (n, 2); 0 where it is not known.

        Returns:
            The order.

        Raises:
            ConfigError: If `images` is something else, or a size has no images.

        Example:
            >>> order = ff.Buckets.by_aspect([(96, 128), (128, 96)], batch=1)
            >>> order.of_images([(600, 800), (800, 600)]).positions(samples=2)
            2
        """
        pairs = np.asarray(images)
        if pairs.ndim != 2 or pairs.shape[1:] != (2,) or pairs.dtype.kind not in "iu":
            raise ConfigError(
                "images must be (height, width) of every image, integers (n, 2), got"
                f" {pairs.dtype}{list(pairs.shape)}",
                field="images",
            )
        grouping = Aspects().group(pairs.astype(np.int64), self.bucket_sizes)
        return replace(self, by=grouping)

    def size_at(self, position: int, seed: int, epoch: int) -> tuple[int, int]:
        """The size of the bucket at a position of an epoch.

        Args:
            position (int): Position in the epoch.
            seed (int): Seed of the plan.
            epoch (int): Counts from 0.

        Returns:
            (height, width), pixels.

        Example:
            >>> order = ff.Buckets(["wide", "high"], 1, sizes={"wide": (2, 4), "high": (4, 2)})
            >>> [order.size_at(position, seed=0, epoch=0) for position in (0, 1)]
            [(4, 2), (2, 4)]
        """
        bucket = self._place(np.array([position]), seed, epoch)[0]
        return dict(self.sizes)[self.by.values[bucket[0]].item()]

    def images_of(self, size: int | tuple[int, int]) -> int:
        """Images of a batch of one size, over all ranks.

        Args:
            size (int | tuple[int, int]): One of the buckets' sizes, pixels.

        Returns:
            `batch`, or fewer under `max_pixels`.

        Example:
            >>> order = ff.Buckets.by_aspect([64, 128], 32, max_pixels=32 * 64 * 64)
            >>> order.images_of(64), order.images_of(128)
            (32, 8)
        """
        if self.max_pixels is None:
            return self.batch
        images = min(self.max_pixels // math.prod(_pair(size)), self.batch)
        return images - images % self.multiple

    @property
    def counts(self) -> dict[int, int]:
        """Steps of an epoch by the number of their samples; {} if all have `batch`."""
        found, kinds = np.unique(self._batches, return_inverse=True)
        if len(found) == 1:
            return {}
        steps = np.zeros(len(found), np.int64)
        np.add.at(steps, kinds, self._runs())
        return dict(zip(found.tolist(), steps.tolist(), strict=True))

    def count_at(self, position: int, seed: int, epoch: int) -> int:
        """Samples of the batch that begins at a position of an epoch.

        Args:
            position (int): Position in the epoch, a multiple of `batch`.
            seed (int): Seed of the plan.
            epoch (int): Counts from 0.

        Returns:
            Samples over all ranks: those at the positions from this one on.

        Example:
            >>> sizes = {"small": 1, "large": 2}
            >>> order = ff.Buckets(["small"] * 4 + ["large"], 4, sizes=sizes, max_pixels=4)
            >>> [order.count_at(position, seed=0, epoch=0) for position in (0, 4)]
            [1, 4]
        """
        bucket = self._place(np.array([position]), seed, epoch)[0]
        return int(self._batches[bucket[0]])

    @property
    def run(self) -> int:
        """Positions that belong together; the global batch must be a multiple of this."""
        return self.batch

    @property
    def once(self) -> bool:
        """True if no sample comes twice in an epoch."""
        return self.leftovers == "drop"

    def bind(self, source: Any) -> Buckets:
        if isinstance(self.by, Aspects) and self.by.images is not None:
            columns = [read_column(source, name, "images") for name in self.by.images]
            return self.of_images(np.stack(columns, axis=1))
        if not isinstance(self.by, str):
            return self
        return replace(self, by=Grouping.of(read_column(source, self.by, "Buckets.by")))

    def positions(self, samples: int) -> int:
        if not isinstance(self.by, Grouping):
            what = "a column" if isinstance(self.by, str) else "the sizes of images"
            raise ConfigError(
                f"Buckets(by={self.by!r}) takes {what} of a source and is not bound to one;"
                " create a Feed with it, or call its bind(source)"
            )
        grouped = self.by.samples
        if len(grouped.ids) != samples:
            raise ConfigError(
                f"Buckets.by must be one value per sample: {samples}, got {len(grouped.ids)}",
                field="by",
            )
        runs = self._runs()
        empty = np.flatnonzero(runs == 0)
        if len(empty):
            more = f" and {len(empty) - 1} more such buckets" if len(empty) > 1 else ""
            value = self.by.values[empty[0]].item()
            which = (
                f"the value {value!r}"
                if self.sizes is None
                else f"the size {dict(self.sizes)[value]}"
            )
            kinds = "values" if self.sizes is None else "sizes"
            what = "batch" if self.max_pixels is None else "max_pixels"
            raise ConfigError(
                f"Buckets(batch={self._batches[empty[0]]}) needs as many samples in every bucket,"
                f" got {grouped.sizes[empty[0]]} with {printable(which)}{more}; pass"
                f' leftovers="fill", a smaller {what}, or fewer {kinds}',
                field="by",
            )
        return int(runs.sum()) * self.batch

    def visits(self, positions: np.ndarray, epoch: Epoch) -> SampleRefs:
        grouped = self.by.samples
        bucket, place = self._place(positions, epoch.seed, epoch.number)
        size = grouped.sizes[bucket]
        # a last run that is filled continues with the first samples, which are in other runs
        occurrences, index = np.divmod(place, size)
        index = permute(index, size, (epoch.seed, epoch.number, bucket))
        return SampleRefs(grouped.ids_at(bucket, index), occurrences)

    def alike(self, id: int) -> np.ndarray:
        return self.by.samples.alike(id)

    def _place(self, positions: np.ndarray, seed: int, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Buckets at positions of an epoch, and the place of each position in its bucket."""
        runs = self._runs()
        ends = np.cumsum(runs)
        run, row = np.divmod(positions, self.batch)
        run = permute(run, int(ends[-1]), (seed, epoch, _RUNS))
        bucket = np.searchsorted(ends, run, side="right")
        return bucket, (run - ends[bucket] + runs[bucket]) * self._batches[bucket] + row

    def _check_values(self) -> None:
        """Raise ConfigError if a value of a sample has no size."""
        known = None if self.sizes is None else {value for value, _ in self.sizes}
        values = self.by.values.tolist()
        if known is None:
            return
        if missing := [value for value in values if value not in known]:
            raise ConfigError(
                f"Buckets.sizes has no size for {_listed(missing)}, which `by` holds; add one",
                field="sizes",
            )
        if unused := [value for value in known if value not in values]:
            raise ConfigError(
                f"Buckets.sizes has a size for {_listed(unused)}, which no sample is of; leave"
                " it out",
                field="sizes",
            )

    def _check_pixels(self) -> None:
        """Raise ConfigError unless every size has images, and the smallest has `batch` of them."""
        set_count(self, "multiple")
        set_count(self, "max_pixels", _MOST_PIXELS)
        multiple = self.multiple
        pixels = self.max_pixels
        if pixels is None:
            if multiple > 1:
                raise ConfigError(
                    f"Buckets.multiple={multiple} is for numbers of images that follow from"
                    " max_pixels; pass max_pixels, or leave multiple out",
                    field="multiple",
                )
            return
        if self.sizes is None:
            raise ConfigError(
                "Buckets.max_pixels needs the sizes of images; pass sizes={value: size}, or use"
                " Buckets.by_aspect(sizes, batch)",
                field="max_pixels",
            )
        most = max(self.images_of(size) for size in self.bucket_sizes)
        largest = max(self.bucket_sizes, key=math.prod)
        if not self.images_of(largest):
            least = multiple * math.prod(largest)
            raise ConfigError(
                f"Buckets.max_pixels must be at least {least}, {multiple} x {largest[0]} x"
                f" {largest[1]}, got {pixels}; raise it, or leave the size {largest} out",
                field="max_pixels",
            )
        if most < self.batch:
            raise ConfigError(
                f"Buckets.batch must be the most images that a batch has, got {self.batch}, and"
                f" max_pixels={pixels} allows {most} of the smallest size; pass batch={most}",
                field="batch",
            )

    def _runs(self) -> np.ndarray:
        """Runs of each bucket in an epoch: int64."""
        sizes = self.by.samples.sizes
        batches = self._batches
        return sizes // batches if self.leftovers == "drop" else -(-sizes // batches)


def nearest_aspects(images: np.ndarray, sizes: Sequence[tuple[int, int]]) -> np.ndarray:
    """Index of the size for each image, int64 (n,); -1 for an image of unknown size.

    images: int64 (n, 2), height and width.
    """
    wanted = np.array(sizes, np.float64)
    areas = wanted.prod(axis=1)
    ratios = np.log(wanted[:, 1] / wanted[:, 0])
    nearest = np.full(len(images), -1, np.int64)
    for first in range(0, len(images), _AT_ONCE):
        part = np.maximum(images[first : first + _AT_ONCE], 1)
        away = np.abs(np.log(part[:, 1] / part[:, 0])[:, None] - ratios)
        enlarged = (wanted > part[:, None]).any(axis=2)
        rank = np.where(enlarged, areas.max() + areas, -areas)
        rank[away > away.min(axis=1, keepdims=True) + _SAME] = np.inf
        nearest[first : first + _AT_ONCE] = rank.argmin(axis=1)
    nearest[(images <= 0).any(axis=1)] = -1
    return nearest


def _checked_sizes(sizes: Any) -> tuple[tuple[Any, Any], ...]:
    pairs = sizes.items() if isinstance(sizes, Mapping) else sizes
    if not isinstance(sizes, (Mapping, tuple)) or not pairs:
        raise ConfigError.of(
            "Buckets.sizes", "sizes by value, such as {'wide': (832, 1216)}", sizes
        )
    return tuple((value, _pair(size)) for value, size in pairs)


def _pair(size: Any) -> tuple[int, int]:
    """(height, width) of a size."""
    pair = tuple(size) if isinstance(size, (tuple, list)) else (size, size)
    whole = [isinstance(side, int) and not isinstance(side, bool) and side > 0 for side in pair]
    if len(pair) != 2 or not all(whole):
        raise ConfigError.of("Buckets.sizes", "sides or (height, width) in pixels", size)
    return pair


def _listed(values: Sequence[Any]) -> str:
    return printable(", ".join(map(repr, values)), 200)
