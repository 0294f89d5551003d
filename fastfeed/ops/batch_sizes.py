"""Sizes that differ from batch to batch: a feed compiles its ops once for each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from fastfeed.arguments import checked
from fastfeed.errors import ConfigError
from fastfeed.ops.base import LARGEST_SIDE, BatchFacts, Size, check_integer, check_size

__all__ = ["BucketSize", "BySchedule", "LargestSize", "RandomSizes"]

_MOST_EPOCHS = 2**31
_MOST_MULTIPLE = 4096


@checked
@dataclass(frozen=True, slots=True)
class BucketSize:
    """The size of a batch's bucket, in place of the `size` of an op.

    For a feed whose order is a `Buckets` with sizes. Each batch is of one bucket, and its images are
    those of a feed with this size in the ops.

    Example:
        >>> source = ff.Arrays(np.zeros((4, 8, 8, 3), np.uint8))
        >>> sizes = {"wide": (2, 4), "high": (4, 2)}
        >>> order = ff.Buckets(["wide", "high"] * 2, batch=2, sizes=sizes)
        >>> feed = ff.Feed(source, [ff.Resize(ff.BucketSize())], batch=2, shuffle=order)
        >>> sorted(batch.images.shape for batch in feed)
        [(2, 2, 4, 3), (2, 4, 2, 3)]
    """

    starts: ClassVar[tuple[int, ...]] = ()
    count: ClassVar[int] = 1

    def size_at(self, batch: BatchFacts) -> Size:
        if batch.bucket is None:
            raise ConfigError(
                "BucketSize() is the size of a batch's bucket, and the order of this feed has no"
                " sizes; pass shuffle=Buckets(..., sizes=...) or Buckets.by_aspect(sizes, batch)",
                field="shuffle",
            )
        return batch.bucket


@checked
@dataclass(frozen=True, slots=True)
class RandomSizes:
    """One of several sizes for each batch, in place of the `size` of an op.

    All ranks take the same size in a step, a function of the seed, the epoch and the step. Several
    of these in a list go together: those of as many sizes take sizes of the same index.

    Args:
        sizes (Sequence[int | tuple[int, int]]): Sizes, equally likely: what the op takes, pixels.

    Raises:
        ConfigError: If `sizes` holds none, or another value than sizes.

    Example:
        >>> source = ff.Arrays(np.zeros((8, 8, 8, 3), np.uint8))
        >>> ops = [ff.RandomResizedCrop(ff.RandomSizes([4, 6]))]
        >>> [batch.images.shape for batch in ff.Feed(source, ops, batch=2)]
        [(2, 4, 4, 3), (2, 6, 6, 3), (2, 6, 6, 3), (2, 4, 4, 3)]
    """

    sizes: Sequence[Size]

    starts: ClassVar[tuple[int, ...]] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.sizes, (list, tuple)) or not self.sizes:
            raise ConfigError.of(
                "RandomSizes.sizes", "a list of sizes such as [192, 224, 256]", self.sizes
            )
        object.__setattr__(self, "sizes", tuple(_size("RandomSizes", s) for s in self.sizes))

    @property
    def count(self) -> int:
        """Number of sizes that draws choose from."""
        return len(self.sizes)

    def size_at(self, batch: BatchFacts) -> Size:
        return self.sizes[int(batch.draw * len(self.sizes))]


@checked
@dataclass(frozen=True, slots=True)
class BySchedule:
    """A size for each range of epochs, in place of the `size` of an op: progressive resizing.

    Args:
        sizes (Mapping[int, int | tuple[int, int]]): Sizes by the epoch at which each begins, pixels.
            One must begin at epoch 0.

    Raises:
        ConfigError: If no size begins at epoch 0, or `sizes` holds another value than epochs and
            sizes.

    Example:
        >>> source = ff.Arrays(np.zeros((2, 8, 8, 3), np.uint8))
        >>> feed = ff.Feed(source, [ff.RandomResizedCrop(ff.BySchedule({0: 4, 2: 6}))], batch=2)
        >>> [batch.images.shape[1] for batch in feed.batches(epochs=3)]
        [4, 4, 6]
    """

    sizes: Any  # a mapping; kept as pairs, ascending

    count: ClassVar[int] = 1

    def __post_init__(self) -> None:
        pairs = self.sizes.items() if isinstance(self.sizes, Mapping) else self.sizes
        try:
            sizes = dict(pairs)
        except (TypeError, ValueError):
            sizes = {}
        whole = all(
            isinstance(epoch, int) and not isinstance(epoch, bool) and 0 <= epoch < _MOST_EPOCHS
            for epoch in sizes
        )
        if not whole or 0 not in sizes:
            raise ConfigError.of(
                "BySchedule.sizes",
                "sizes by the first epoch of each, from epoch 0, such as {0: 160, 10: 224}",
                self.sizes,
            )
        ordered = tuple((epoch, _size("BySchedule", sizes[epoch])) for epoch in sorted(sizes))
        object.__setattr__(self, "sizes", ordered)

    def __repr__(self) -> str:
        return f"BySchedule({dict(self.sizes)})"

    @property
    def starts(self) -> tuple[int, ...]:
        """Epochs at which sizes begin."""
        return tuple(epoch for epoch, _ in self.sizes)

    def size_at(self, batch: BatchFacts) -> Size:
        return next(size for first, size in reversed(self.sizes) if first <= batch.epoch)


@checked
@dataclass(frozen=True, slots=True)
class LargestSize:
    """The smallest size that holds every image of a batch, for `Resize(size, fit="corner")`.

    Images keep the size that the ops before give them, and a border fills the rest; the field
    `valid` of the batch is True where an image is. A batch of one image has its size. `Feed` reads
    the sizes of all images from their headers, once, and keeps them in FASTFEED_CACHE. All ranks
    have the size of the global batch.

    Args:
        multiple (int): Height and width are rounded up to multiples of this, in [1, 4096] pixels.
            Default: 1.

    Raises:
        ConfigError: If `multiple` is out of range.

    Example:
        >>> source = ff.Arrays(np.zeros((2, 5, 6, 3), np.uint8))
        >>> feed = ff.Feed(source, [ff.Resize(ff.LargestSize(4), fit="corner")], batch=2)
        >>> batch = next(iter(feed))
        >>> batch.images.shape, batch["valid"][0].sum()
        ((2, 8, 8, 3), np.int64(30))
    """

    multiple: int = 1

    starts: ClassVar[tuple[int, ...]] = ()
    count: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_integer("LargestSize.multiple", self.multiple, 1, _MOST_MULTIPLE)

    def size_at(self, batch: BatchFacts) -> Size:
        height, width = batch.largest or (LARGEST_SIDE, LARGEST_SIDE)
        most = LARGEST_SIDE - LARGEST_SIDE % self.multiple
        up = self.multiple
        return min(height + -height % up, most), min(width + -width % up, most)


def _size(name: str, size: Any) -> Size:
    height, width = check_size(name, size)
    return (height, width) if isinstance(size, (tuple, list)) else height
