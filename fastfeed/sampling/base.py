"""The contract of orders, from positions of an epoch to samples, and the simple orders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from fastfeed.arguments import check_count, checked
from fastfeed.errors import ConfigError
from fastfeed.sampling.permute import permute

_ID_BITS = 40
MOST_SAMPLES = 1 << _ID_BITS  # larger ids would overlap the occurrence in a key


class SampleRefs(NamedTuple):
    """Samples of an order, each with the number of its occurrence in the epoch."""

    ids: np.ndarray  # int64
    # int64, same shape: no (id, occurrence) comes twice in an epoch; all 0 if no sample does
    occurrences: np.ndarray

    @property
    def keys(self) -> np.ndarray:
        """Keys for random numbers: int64.

        The id at occurrence 0, another number at every other occurrence (up to 2**24 of them).
        """
        return self.ids | self.occurrences << _ID_BITS

    @classmethod
    def once(cls, ids: np.ndarray) -> SampleRefs:
        """References to samples that occur once per epoch."""
        return cls(ids, np.zeros_like(ids))


@dataclass(frozen=True, slots=True)
class Epoch:
    """Inputs of an order in addition to a position."""

    number: int
    samples: int  # in the source
    length: int  # positions in use: without those that tail="drop" leaves out
    batch: int  # samples per step over all ranks; position p belongs to step p // batch
    seed: int


class Order(Protocol):
    """Maps positions of an epoch to samples.

    A frozen value; its `repr` is saved with a run's state. It may have `run`, which the global
    batch must be a multiple of (otherwise 1), `once`, True if no sample comes twice in an epoch
    (otherwise False), and `alike(id)`, the ids that a bad sample may be replaced by, int64, its own
    among them (otherwise those of the epoch). If batches differ in their number of samples, it has
    `counts`, the steps of an epoch by that number, and `count_at(position, seed, epoch)`, the
    number of the batch that begins at a position; `run` is then the largest, and the global batch.
    """

    open: ClassVar[bool]  # it also defines the positions that tail="drop" leaves out

    def bind(self, source: Any) -> Order:
        """Return this order with the facts that it needs from the source.

        Args:
            source (Source): Where labels, weights or shards are read.

        Returns:
            An order for that source.

        Raises:
            ConfigError: If the source does not have what the order needs.
        """
        ...

    def positions(self, samples: int) -> int:
        """Positions per epoch.

        Args:
            samples (int): Samples in the source.

        Returns:
            How many samples an epoch visits; where batches differ, `run` for each of its steps.

        Raises:
            ConfigError: If the order does not fit a source of this length.
        """
        ...

    def visits(self, positions: np.ndarray, epoch: Epoch) -> SampleRefs:
        """The samples at these positions of an epoch. Pure: no position depends on the others.

        Args:
            positions (np.ndarray): int64, any number of them.
            epoch (Epoch): The epoch, and what else an order may depend on.

        Returns:
            Sample ids, and for each which of its occurrences in the epoch this is.
        """
        ...


@dataclass(frozen=True, slots=True)
class Shuffled:
    """shuffle="full": every sample once, in pseudorandom order."""

    open: ClassVar[bool] = True
    once: ClassVar[bool] = True

    def bind(self, source: Any) -> Shuffled:
        return self

    def positions(self, samples: int) -> int:
        return samples

    def visits(self, positions: np.ndarray, epoch: Epoch) -> SampleRefs:
        return SampleRefs.once(permute(positions, epoch.samples, (epoch.seed, epoch.number, 0)))


@dataclass(frozen=True, slots=True)
class SourceOrder:
    """shuffle="none": every sample once, in the order of the source."""

    open: ClassVar[bool] = True
    once: ClassVar[bool] = True

    def bind(self, source: Any) -> SourceOrder:
        return self

    def positions(self, samples: int) -> int:
        return samples

    def visits(self, positions: np.ndarray, epoch: Epoch) -> SampleRefs:
        return SampleRefs.once(positions.copy())


def set_count(order: Any, name: str, most: int = 2**31) -> None:
    """Make a field of a frozen order an int in [1, most], unless it is None; ConfigError."""
    if (value := getattr(order, name)) is not None:
        count = check_count(f"{type(order).__name__}.{name}", value, most=most)
        object.__setattr__(order, name, count)


class Recent(dict[Any, Any]):
    """The newest values by key, which are made when they are first asked for; it pickles empty."""

    def __init__(self, size: int = 2) -> None:
        """Keep `size` values: prefetching crosses from one epoch to the next."""
        super().__init__()
        self._size = size

    def get_or_make(self, key: Any, make: Callable[[], Any]) -> Any:
        """The value of a key; thread-safe."""
        value = self.get(key)
        if value is None:
            value = make()
            for old in list(self)[: 1 - self._size]:
                self.pop(old, None)
            self[key] = value
        return value

    def __reduce__(self) -> tuple[Any, ...]:
        return Recent, (self._size,)


_MOST = 2**16


@checked
@dataclass(frozen=True, slots=True)
class Repeated:
    """Every sample several times per epoch, augmented differently each time.

    All samples come once before any repeats; or, with `together`, all occurrences of a sample are
    adjacent in a batch (Hoffer et al., "Augment Your Batch", CVPR 2020). Ops that mix samples shuffle
    the rows of a batch, and combine different samples.

    Args:
        times (int): Occurrences of each sample per epoch, in [1, 65536].
        together (bool): Put the occurrences next to each other. Default: False.
        length (int | None): Positions per epoch, at least 1: the source's length keeps the number
            of steps, with `together` of other samples in every epoch, as DeiT's `RASampler` does.
            Default: None, all occurrences of all samples.

    Raises:
        ConfigError: If a field is out of range. A `length` that is too large is refused by `Plan`.

    Example:
        >>> ff.Plan(4, 4, shuffle=ff.Repeated(2, together=True)).ids(epoch=0, step=0)
        array([0, 0, 2, 2])
    """

    open: ClassVar[bool] = True

    times: int
    together: bool = False
    length: int | None = None

    def __repr__(self) -> str:  # saved states hold this text
        more = "" if self.length is None else f", length={self.length}"
        return f"Repeated(times={self.times}, together={self.together}{more})"

    def __post_init__(self) -> None:
        set_count(self, "times", _MOST)
        set_count(self, "length", MOST_SAMPLES)
        if not isinstance(self.together, bool):
            raise ConfigError.of("Repeated.together", "True or False", self.together)

    def bind(self, source: Any) -> Repeated:
        return self

    def positions(self, samples: int) -> int:
        most = samples * self.times
        if self.length is not None and self.length > most:
            raise ConfigError(
                f"Repeated.length must be at most {most}, {self.times} times {samples} samples, got"
                f" {self.length}",
                field="length",
            )
        return most if self.length is None else self.length

    def visits(self, positions: np.ndarray, epoch: Epoch) -> SampleRefs:
        if self.together:
            numbers, occurrences = np.divmod(positions, self.times)
            return SampleRefs(
                permute(numbers, epoch.samples, (epoch.seed, epoch.number, 0)), occurrences
            )
        occurrences, numbers = np.divmod(positions, epoch.samples)
        return SampleRefs(
            permute(numbers, epoch.samples, (epoch.seed, epoch.number, occurrences)), occurrences
        )
