"""CustomOrder: an order as a function of the epoch and its positions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from fastfeed.arguments import checked
from fastfeed.errors import ConfigError
from fastfeed.printable import function_name, printable
from fastfeed.sampling.base import MOST_SAMPLES, Epoch, Recent, SampleRefs, set_count
from fastfeed.sampling.orders.columns import hash_numbers


@checked
@dataclass(frozen=True, slots=True, repr=False)
class CustomOrder:
    """An order of your own: a function of the epoch and its positions.

    It is called once per epoch with all positions, and must return the same ids whenever it is
    called, on every rank: draw from `np.random.default_rng((seed, epoch))`, not from a global
    generator. That every sample comes once is checked in every epoch. Saved states hold the
    function's name and a hash of epoch 0. Keeps 4 bytes per sample for each of up to two epochs,
    with `resampling` 8 per position.

    Args:
        function (Callable): Called with the epoch (int, from 0) and the positions, int64 (length,)
            ascending from 0; returns sample ids, integers (length,).
        resampling (bool): Samples may come several times in an epoch, or not at all; one that comes
            several times is augmented differently each time. False: each comes once. Default:
            False.
        length (int | None): Positions per epoch, at least 1, for `resampling`. Default: None, as
            many as the source has samples.
        digest (str): Hash of epoch 0, set by `bind`; not for callers. Default: "".

    Raises:
        ConfigError: If `function` is not callable or `length` does not fit. Ids that are out of
            range or, without `resampling`, come twice are refused by `Feed` for epoch 0, and when
            the first batch of a later epoch is made.

    Example:
        >>> def odd_first(epoch, positions):
        ...     half = len(positions) // 2
        ...     return np.where(positions < half, 2 * positions + 1, 2 * (positions - half))
        >>> ff.Plan(6, 3, shuffle=ff.CustomOrder(odd_first)).ids(epoch=0, step=0)
        array([1, 3, 5])
    """

    open: ClassVar[bool] = True

    function: Callable[[int, np.ndarray], Any]
    resampling: bool = False
    length: int | None = None
    digest: str = ""
    _recent: Recent = field(default_factory=Recent, init=False, compare=False)

    def __repr__(self) -> str:  # saved states hold this text
        more = ", resampling=True" if self.resampling else ""
        more += "" if self.length is None else f", length={self.length}"
        more += f", <epoch 0: {self.digest}>" if self.digest else ""
        return f"CustomOrder({function_name(self.function)}{more})"

    def __post_init__(self) -> None:
        if not callable(self.function) or isinstance(self.function, type):
            raise ConfigError.of(
                "CustomOrder.function", "a function (epoch, positions) -> ids", self.function
            )
        if not isinstance(self.resampling, bool):
            raise ConfigError.of("CustomOrder.resampling", "True or False", self.resampling)
        if self.length is not None and not self.resampling:
            raise ConfigError(
                f"CustomOrder.length needs resampling=True, got {self.length!r}: without it every"
                " sample comes once",
                field="length",
            )
        set_count(self, "length", MOST_SAMPLES)

    @property
    def once(self) -> bool:
        """True if no sample comes twice in an epoch."""
        return not self.resampling

    def bind(self, source: Any) -> CustomOrder:
        samples = len(source)
        ids, again = (self._ids(0, samples) for _ in range(2))
        if not np.array_equal(ids, again):
            raise ConfigError(
                f"{self}: called again for epoch 0, the function returned other ids; draw from"
                " np.random.default_rng((seed, epoch)), and keep no state"
            )
        return replace(self, digest=hash_numbers(ids))

    def positions(self, samples: int) -> int:
        return samples if self.length is None else self.length

    def visits(self, positions: np.ndarray, epoch: Epoch) -> SampleRefs:
        key = epoch.number, epoch.samples
        refs: SampleRefs = self._recent.get_or_make(
            key, lambda: _compact(self._ids(*key), epoch.samples, self.resampling)
        )
        ids = refs.ids[positions].astype(np.int64)
        if not self.resampling:
            return SampleRefs.once(ids)
        return SampleRefs(ids, refs.occurrences[positions].astype(np.int64))

    def _ids(self, epoch: int, samples: int) -> np.ndarray:
        """Checked ids of all positions: integers (length,)."""
        length = self.positions(samples)
        returned = self.function(epoch, np.arange(length))
        ids = np.asarray(returned)
        if ids.shape != (length,) or ids.dtype.kind not in "iu":
            raise ConfigError(
                f"{self}: for epoch {epoch} the function must return {length} integers, one per"
                f" position, got {printable(_kind(returned, ids))}"
            )
        outside = np.flatnonzero((ids < 0) | (ids >= samples))
        if len(outside):
            raise ConfigError(
                f"{self}: for epoch {epoch} ids must be in [0, {samples}), got"
                f" {ids[outside[0]]} at position {outside[0]}"
            )
        if not self.resampling:
            seen = np.zeros(samples, bool)
            seen[ids] = True
            if not seen.all():
                raise ConfigError(
                    f"{self}: for epoch {epoch} every sample must come once, got"
                    f" {samples - np.count_nonzero(seen)} of {samples} missing, the first of them"
                    f" sample {int(seen.argmin())}; pass resampling=True if samples may come"
                    " several times or not at all"
                )
        return ids


def _kind(returned: Any, ids: np.ndarray) -> str:
    if isinstance(returned, (np.ndarray, list, tuple)):
        return f"{ids.dtype}{list(ids.shape)}"
    return type(returned).__name__


def _compact(ids: np.ndarray, samples: int, resampling: bool) -> SampleRefs:
    """Ids in the smallest type that holds them, and their occurrences, if they have any."""
    small = ids.astype(np.min_scalar_type(samples - 1))
    if not resampling:
        return SampleRefs(small, small[:0])
    order = np.argsort(small, kind="stable")
    ordered = small[order]
    firsts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    places = np.arange(len(ids))
    occurrences = np.empty(len(ids), np.uint32)
    occurrences[order] = places - np.repeat(firsts, np.diff(np.append(firsts, len(ids))))
    return SampleRefs(small, occurrences)
