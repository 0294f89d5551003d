"""Checks of what `Objects` is given, before any of it is read."""

from __future__ import annotations

import os
from typing import Any

from fastfeed.errors import ConfigError
from fastfeed.sources.annotations.boxes import FORMATS, ROTATED


def check_format(format: str, boxes: Any, keypoints: Any, normalized: bool) -> None:
    """ConfigError for a format of boxes that does not exist or does not fit the rest."""
    if format not in (*FORMATS, ROTATED):
        known_formats = ", ".join((*FORMATS, ROTATED))
        raise ConfigError.of("Objects: format", f"one of {known_formats}", format)
    if format == ROTATED and (boxes is None or keypoints is not None or normalized):
        raise ConfigError(
            f"Objects: format={ROTATED!r} is of boxes in pixels, whose corners are the"
            " keypoints; pass boxes, and neither keypoints nor normalized=True",
            field="format",
        )


def check_presence(has_objects: bool, masks: Any, labels: Any) -> None:
    """ConfigError without objects and masks, and for labels of no objects."""
    if not has_objects and masks is None:
        raise ConfigError(
            "Objects needs boxes, keypoints or masks, got none of them; without them use the"
            " source itself",
            field="boxes",
        )
    if not has_objects and labels is not None:
        raise ConfigError(
            "Objects: labels are of boxes and keypoints, got labels without them; pass boxes,"
            " or leave labels out",
            field="labels",
        )


def check_lengths(samples: int, **options: Any) -> None:
    """ConfigError for an option that is not a list of one value per sample; None is none."""
    for option, values in options.items():
        if isinstance(values, (str, bytes, os.PathLike)):
            raise ConfigError(
                f"Objects: {option} must be a list, one per sample, got {values!r}",
                field=option,
            )
        if values is not None and len(values) != samples:
            none = "None" if option == "masks" else "an empty list"
            raise ConfigError(
                f"Objects: {option} must be one per sample, got {len(values)} for {samples}"
                f" samples; a sample without has {none}",
                field=option,
            )
