"""Which photographs go where: decided from the recipe and the survey alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from fastfeed.preprocess.recipe import Recipe
from fastfeed.preprocess.survey import Survey

__all__ = ["Chosen", "Pair", "choose", "needs_pixels"]


@dataclass(frozen=True, slots=True)
class Pair:
    """A photograph that is left out, and the one that stays in its place: ids in the source."""

    kept: int
    dropped: int
    reason: str  # "duplicate_exact" or "duplicate_near"
    bits: int = 0  # of 64 in which their dHashes differ
    conflict: bool = False  # they have different labels


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """What the plan is made of."""

    groups: list[tuple[str, np.ndarray]]  # folder, and ids in the order of its shards: int64
    left_out: dict[str, int] = field(default_factory=dict)  # how many by reason
    pairs: list[Pair] = field(default_factory=list)  # by the id that was dropped


def needs_pixels(recipe: Recipe) -> bool:
    """Whether the survey must tell what photographs look like."""
    raise NotImplementedError


def choose(
    recipe: Recipe, length: int, labels: np.ndarray, survey: Survey | None, uris: Callable[[int], str]
) -> Chosen:
    """Groups of ids."""
    raise NotImplementedError
