"""Repeated: every sample several times per epoch, with different augmentation each time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fastfeed.arguments import checked
from fastfeed.errors import ConfigError
from fastfeed.sampling.base import Epoch, Visits, check_count
from fastfeed.sampling.permute import permute

__all__ = ["Repeated"]

_MOST = 2**16


@checked
@dataclass(frozen=True, slots=True)
class Repeated:
    """Every sample several times per epoch, augmented differently each time.

    All samples come once before any repeats; or, with `together`, all occurrences of a sample are
    adjacent in a batch (Hoffer et al., "Augment Your Batch", CVPR 2020).

    Args:
        times (int): Occurrences of each sample per epoch, in [1, 65536].
        together (bool): Put the occurrences next to each other. Default: False.

    Raises:
        ConfigError: If a field is out of range.

    Example:
        >>> ff.Plan(4, 4, shuffle=ff.Repeated(2, together=True)).ids(epoch=0, step=0)
        array([0, 0, 2, 2])
    """

    open: ClassVar[bool] = True

    times: int
    together: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "times", check_count("Repeated.times", self.times, _MOST))
        if not isinstance(self.together, bool):
            raise ConfigError(f"Repeated.together must be True or False, got {self.together!r}")

    def bind(self, source: Any) -> Repeated:
        return self

    def positions(self, samples: int) -> int:
        return samples * self.times

    def visits(self, positions: np.ndarray, epoch: Epoch) -> Visits:
        if self.together:
            numbers, occurrences = np.divmod(positions, self.times)
            return Visits(
                permute(numbers, epoch.samples, (epoch.seed, epoch.number, 0)), occurrences
            )
        occurrences, numbers = np.divmod(positions, epoch.samples)
        return Visits(
            permute(numbers, epoch.samples, (epoch.seed, epoch.number, occurrences)), occurrences
        )
