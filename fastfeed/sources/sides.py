"""Sides of a source's samples in a split, with the errors for what cannot be split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.sources.base import Optionals, Source
from fastfeed.sources.column_arrays import read_columns
from fastfeed.sources.splitting import (
    KERAS_FORMATS,
    hashed_fractions,
    sides_by_class,
    sides_by_group,
    sides_by_hash,
    sides_by_keras,
)
from fastfeed.spec import LabelSpec


def check_shares(shares: Mapping[str, float]) -> None:
    """ConfigError unless shares are numbers by name that sum to 1."""
    values = list(shares.values()) if isinstance(shares, Mapping) else []
    is_number = [isinstance(v, (int, float)) and not isinstance(v, bool) for v in values]
    if len(values) < 2 or not all(is_number) or not all(0 < value < 1 for value in values):
        raise ConfigError.of(
            "split: shares",
            "a dict of two or more names with numbers in (0, 1)",
            shares,
            'pass such as {"train": 0.8, "val": 0.2}',
        )
    if abs(sum(values) - 1) > 1e-6:
        raise ConfigError(
            f"split: shares must sum to 1, got {sum(values):g}; change one, or add a side for the"
            " rest",
            field="shares",
        )


def assign_sides(
    source: Source, names: Sequence[str], shares: Sequence[float], by: str, seed: int | None
) -> np.ndarray:
    """Side of each sample: int64 (n,)."""
    if seed is None:
        raise ConfigError(
            "split: seed must be an integer, got None; only keras_split takes None", field="seed"
        )
    if len(source) < len(names):
        raise ConfigError(
            f"split: {len(source)} sample{'s' * (len(source) != 1)} cannot be on {len(names)} sides"
            " of at least one; add data, or use the source itself"
        )
    if by.startswith("group:"):
        return _group_sides(source, names, shares, by.removeprefix("group:"), seed)
    if by not in ("hash", "random", "stratified", "order"):
        raise ConfigError.of(
            "split: by",
            '"hash", "random", "stratified", "order" or "group:COLUMN"',
            by,
            f'pass by="group:{by}" if {by!r} is a column',
        )
    ids = np.arange(len(source))
    if by == "order":
        return sides_by_class(np.zeros_like(ids), ids, shares)
    fractions = hashed_fractions(Optionals(source).sample_names(ids), seed)
    if by == "hash":
        return sides_by_hash(fractions, shares)
    strata = np.zeros_like(ids) if by == "random" else _strata(source, ids)
    return sides_by_class(strata, fractions, shares)


def _strata(source: Source, ids: np.ndarray) -> np.ndarray:
    advice = 'pass by="random", or "group:COLUMN"'
    spec = Optionals(source).label_spec
    if source.classes and spec == LabelSpec((len(source.classes),), "float32"):
        return np.unique(source.label(ids), axis=0, return_inverse=True)[1].reshape(-1)
    spec.require_class('split(by="stratified")', advice)
    labels = source.label(ids)
    if (labels < 0).all():
        raise ConfigError(
            f'split: by="stratified" needs labels, got a source without; {advice}', field="by"
        )
    return labels


def _group_sides(
    source: Source, names: Sequence[str], shares: Sequence[float], column: str, seed: int
) -> np.ndarray:
    values = read_columns(source)[column]
    if values.ndim > 1:
        raise ConfigError(
            f"split: a group must be a number or a text, got {list(values.shape[1:])} values per"
            f" sample in column {column!r}; pass a column of one",
            field="by",
        )
    texts = values.astype(str) if values.dtype == object else values
    groups, group, sizes = np.unique(texts, return_inverse=True, return_counts=True)
    fractions = hashed_fractions(map(str, groups.tolist()), seed)
    sides = sides_by_group(group.reshape(-1), sizes, shares, fractions)
    room = np.ceil(np.array(shares) * len(group) - 1e-6)
    too_large = np.flatnonzero(sizes > room[sides])
    if len(too_large):
        worst = int(too_large[0])
        side = int(sides[worst])
        raise ConfigError(
            f"split: {column} {groups[worst]!s} has {sizes[worst]} of {len(group)} samples, more"
            f" than the share of {names[side]!r} ({shares[side]:g}), and a group is on one side;"
            " pass larger shares or fewer folds, or another column",
            field="by",
        )
    return sides[group.reshape(-1)]


def keras_sides(source: Any, share: float, by: str, seed: int | None) -> np.ndarray:
    if not 0 < share < 1 or by != "hash":
        raise ConfigError(
            f"split: keras_split must be in (0, 1) and without by, got {share} and by={by!r}",
            field="keras_split",
        )
    paths = getattr(source, "paths", None)
    if paths is None or not hasattr(source, "root"):
        raise ConfigError(
            f"split: keras_split needs an ImageFolder, got {type(source).__name__}; pass shares",
            field="keras_split",
        )
    listed = paths.tolist()
    foreign = next((path for path in listed if not path.lower().endswith(KERAS_FORMATS)), None)
    if foreign is not None:
        raise ConfigError(
            f"split: Keras reads {', '.join(KERAS_FORMATS)} alone, got {foreign}; pass"
            f" extensions={KERAS_FORMATS} to ImageFolder for the same files",
            field="keras_split",
        )
    return sides_by_keras(listed, source.label(np.arange(len(source))), share, seed)
