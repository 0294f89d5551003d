"""Conditions on columns and on sizes of images, which choose samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.printable import printable
from fastfeed.sources.base import Source
from fastfeed.sources.headers import Headers

# from the shorter and the longer sides of images, pixels, to bool
SizeLimit = Callable[[np.ndarray, np.ndarray], np.ndarray]


class SampleFilter:
    """Samples that all conditions so far keep, and how many each left out."""

    def __init__(self, length: int) -> None:
        self.mask = np.ones(length, bool)
        self._lost: list[str] = []

    @property
    def note(self) -> str:
        """Samples that each condition left out, in words; empty if none was."""
        lost = np.count_nonzero(~self.mask)
        return f"left out {lost:,} of {len(self.mask):,}: {'; '.join(self._lost)}" if lost else ""

    def _keep(self, holds: np.ndarray, name: str) -> None:
        lost = int(np.count_nonzero(self.mask & ~holds))
        if lost:
            self._lost.append(f"{lost:,} by {name}")
        self.mask &= holds

    def by_columns(self, condition: Callable[[Any], Any], columns: dict[str, np.ndarray]) -> None:
        """Keep samples for which a function of whole columns is True."""
        advice = "compare whole columns, and join by & and |, each comparison in parentheses"
        try:
            holds = np.asarray(condition(columns))
        except ValueError as error:
            if "truth value" not in str(error):  # of `and`, `or`, `not` or `if` on an array
                raise
            raise ConfigError(
                f"where: condition asks a whole column for one truth value; {advice}",
                field="condition",
            ) from error
        length = len(self.mask)
        if holds.shape != (length,) or holds.dtype != bool:
            raise ConfigError(
                f"where: condition must return bool ({length},), one per sample, got"
                f" {holds.dtype}{list(holds.shape)}; {advice}",
                field="condition",
            )
        self._keep(holds, "condition")

    def by_headers(
        self,
        source: Source,
        headers: Headers,
        limits: Mapping[str, SizeLimit],
        per_sample: Callable[[Any, Any], Any] | None,
        columns: Mapping[str, np.ndarray],
    ) -> None:
        """Keep images within all limits, then those for which `per_sample` is True."""
        sizes = headers.sizes
        self._keep(sizes[:, 0] > 0, f"unreadable headers, such as {headers.first_failure}")
        for name, holds in limits.items():
            self._keep(holds(sizes.min(axis=1), sizes.max(axis=1)), name)
        if per_sample is None:
            return
        kept = np.zeros(len(self.mask), bool)
        for i in np.flatnonzero(self.mask).tolist():
            value = per_sample({name: c[i] for name, c in columns.items()}, headers.header(i))
            if not isinstance(value, (bool, np.bool_)):
                raise ConfigError(
                    "where: per_sample must return True or False, got"
                    f" {printable(repr(value))} for {source.uri(i)}",
                    field="per_sample",
                )
            kept[i] = value
        self._keep(kept, "per_sample")


def size_limits(
    min_side: int | None, max_side: int | None, max_aspect: float | None
) -> dict[str, SizeLimit]:
    """Conditions on the shorter and the longer sides, by the text of their argument."""
    for name, value in (("min_side", min_side), ("max_side", max_side), ("max_aspect", max_aspect)):
        if value is not None and not value >= 1:
            raise ConfigError(
                f"where: {name} must be at least 1, got {value}; leave it out for any", field=name
            )
    limits: dict[str, SizeLimit] = {}
    if min_side is not None:
        limits[f"min_side={min_side}"] = lambda short, _: short >= min_side
    if max_side is not None:
        limits[f"max_side={max_side}"] = lambda _, long: long <= max_side
    if max_aspect is not None:
        limits[f"max_aspect={max_aspect:g}"] = lambda short, long: long <= float(max_aspect) * short
    return limits
