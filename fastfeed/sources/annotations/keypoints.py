"""Keypoints of objects: their arrays, and the pairs that trade places in a mirrored image."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.sources.base import Optionals
from fastfeed.spec import PLAIN_OBJECTS, ObjectSpec

Pairs = Sequence[tuple[int | str, int | str]]

MOST_KEYPOINTS = 1 << 12  # keypoints of an object
_PAIRS = 'pairs of keypoints such as [("left_eye", "right_eye")] or [(1, 2)]'


def object_spec(
    lists: Any,
    names: Sequence[str],
    flip_pairs: Pairs | str | None,
    *,
    has_boxes: bool = True,
    normalized: bool = False,
    drawn: Container[str] = (),
    **rules: float,
) -> ObjectSpec:
    """The checked options of `Objects`; lists: its `BoxLists`, or None of a source without.

    drawn: what outlines become; rules: `min_size`, `min_area`, `min_visible`.
    """
    shapes = None if lists is None else lists.shapes
    room = None
    if lists is not None and shapes is not None and "polygons" in drawn:
        room = shapes.polygon_room(lists.ends)
    keypoints = 0 if lists is None or lists.keypoints is None else lists.keypoints.shape[1]
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise ConfigError.of("Objects: keypoint_names", "a list of names", names)
    if names and (len(names) != keypoints or len(set(names)) < len(names)):
        raise ConfigError.of(
            "Objects: keypoint_names", f"{keypoints} names, one per keypoint of an object", names
        )
    own = checked_rules("Objects", **rules)
    if not has_boxes and own != PLAIN_OBJECTS:
        raise ConfigError(
            "Objects: min_size, min_area and min_visible are of boxes, got them without boxes;"
            " leave them out",
            field="min_visible",
        )
    if not keypoints and flip_pairs is not None:
        raise ConfigError(
            "Objects: flip_pairs are of keypoints, got them without keypoints; leave them out",
            field="flip_pairs",
        )
    pairs = checked_pairs("Objects", flip_pairs, keypoints, tuple(names))
    return own._replace(
        keypoints=keypoints,
        keypoint_names=tuple(names),
        flip_pairs=pairs,
        has_boxes=has_boxes,
        normalized=normalized,
        instance_masks=shapes is not None and "instances" in drawn,
        polygons=room,
    )


def checked_rules(who: str, **rules: float) -> ObjectSpec:
    """Rules for objects that ops cut off: `min_size`, `min_area`, `min_visible`."""
    for name, value in rules.items():
        share = name == "min_visible"
        must = "a share in [0, 1]" if share else "a finite number >= 0, in pixels"
        number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
        if not number or not 0 <= value <= (1 if share else np.finfo(np.float64).max):
            raise ConfigError.of(f"{who}: {name}", must, value)
    return PLAIN_OBJECTS._replace(**{name: float(value) for name, value in rules.items()})


def checked_pairs(
    who: str, flip_pairs: Any, keypoints: int = MOST_KEYPOINTS, names: tuple[str, ...] = ()
) -> tuple[tuple[int, int], ...] | None:
    """Pairs of numbers; ConfigError for a keypoint that does not exist or is in two pairs."""
    if flip_pairs is None:
        return None
    numbers = {name: k for k, name in enumerate(names)} | {k: k for k in range(keypoints)}
    must = _PAIRS if not names else f'{_PAIRS}, or "names"'
    if isinstance(flip_pairs, str) and flip_pairs == "names":
        others = {name: name.replace("left", "right") for name in names if "left" in name}
        flip_pairs = [pair for pair in others.items() if pair[1] in names] or flip_pairs
    try:
        pairs = tuple((numbers[first], numbers[second]) for first, second in flip_pairs)
    except (KeyError, TypeError, ValueError):
        known = ", ".join(names) or f"0 to {keypoints - 1}"
        advice = f"keypoints are {known}"
        raise ConfigError.of(f"{who}: flip_pairs", must, flip_pairs, advice) from None
    paired = [k for pair in pairs for k in pair]
    if len(set(paired)) < len(paired):
        raise ConfigError.of(f"{who}: flip_pairs", "of one pair per keypoint", flip_pairs)
    return pairs


def keypoint_arrays(keypoints: Sequence[Any], where: Callable[[int], str]) -> list[np.ndarray]:
    """float64 (objects, k, 3) of each sample. ConfigError names the sample."""
    arrays = [_array(values, i, where) for i, values in enumerate(keypoints)]
    counts = {array.shape[1]: i for i, array in enumerate(arrays) if array.shape[1]}
    if len(counts) != 1 and arrays:
        examples = (f"{count} of {where(i)}" for count, i in sorted(counts.items()))
        raise ConfigError(
            "Objects: all objects must have as many keypoints, got"
            f" {' and '.join(examples) or 'none'}; mark missing ones by visibility 0, and pass"
            " arrays of shape (0, k, 3) where no sample has an object",
            field="keypoints",
        )
    empty = np.empty((0, next(iter(counts), 0), 3))
    return [array if len(array) else empty for array in arrays]


def _array(values: Any, i: int, where: Callable[[int], str]) -> np.ndarray:
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError):  # rows of several lengths, or no numbers
        array = np.zeros(1)
    if array.shape == (0,):
        return np.empty((0, 0, 3))
    array = array[None] if array.ndim == 2 else array
    if array.ndim != 3 or array.shape[-1] not in (2, 3):
        raise ConfigError(
            f"Objects: keypoints of {where(i)} must be numbers of shape (objects, k, 3): x, y,"
            f" visibility, or (objects, k, 2), got shape {list(array.shape)}; an image without"
            " objects has an empty list",
            field="keypoints",
        )
    return array if array.shape[-1] == 3 else with_visibility(array)


def with_visibility(places: np.ndarray) -> np.ndarray:
    """x, y (..., 2) and visibility 2, or 0 for a point that has NaN: float64 (..., 3)."""
    known = ~np.isnan(places).any(axis=-1, keepdims=True)
    return np.concatenate([np.where(known, places, 0), np.where(known, 2.0, 0)], axis=-1)


def column_keypoints(source: Any, columns: Mapping[str, Sequence[str]]) -> np.ndarray:
    """One object per sample, from columns of x, y and visibility: float64 (n, 1, k, 3)."""
    optionals = Optionals(source)
    if optionals.column_values([]) is not None:
        raise ConfigError(
            f"Objects: keypoints are columns that {source!r} reads with each sample; pass arrays,"
            " one per sample",
            field="keypoints",
        )
    values = optionals.columns(np.arange(len(source)))
    points = []
    for keypoint, names in columns.items():
        if isinstance(names, str) or len(names) not in (2, 3):
            raise ConfigError.of(
                f"Objects: keypoints[{keypoint!r}]",
                "the columns of x and y, or x, y, visibility",
                names,
            )
        for name in names:
            if name not in values or values[name].dtype.kind not in "biuf" or values[name].ndim > 1:
                numeric = [
                    n for n in values if values[n].dtype.kind in "biuf" and values[n].ndim == 1
                ]
                raise ConfigError.of(
                    f"Objects: keypoints[{keypoint!r}]",
                    "columns of one number per sample",
                    name,
                    f"those that {source!r} has are {', '.join(numeric) or 'none'}; pass"
                    " Table(columns=[...])",
                )
        numbers = np.stack([values[name].astype(np.float64) for name in names], axis=-1)
        point = with_visibility(numbers[:, :2])
        if len(names) == 3:
            point[:, 2] = np.where(point[:, 2] > 0, np.nan_to_num(numbers[:, 2]), 0)
        points.append(point)
    return np.stack(points, axis=1)[:, None]
