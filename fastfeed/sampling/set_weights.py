"""Weights that are set during a run, and their text in a saved state."""

from __future__ import annotations

import base64
import zlib
from dataclasses import replace
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError, StateError
from fastfeed.sampling.orders.weighted import CumulativeWeights, Weighted
from fastfeed.sampling.plan import Plan

_MOST = 1 << 27  # characters of the text; `load_state` reads twice as many


def with_weights(plan: Plan, weights: Any) -> tuple[Plan, str]:
    """A plan with other weights, one per sample, kept as float32, and their text; ConfigError."""
    order = plan.shuffle
    if not isinstance(order, Weighted):
        raise ConfigError(
            "set_weights needs a feed with shuffle=ff.Weighted(weights), which may all be 1 at"
            f" first, got shuffle={str(order)!r}"
        )
    try:
        array = np.asarray(weights, "<f4")
    except (TypeError, ValueError) as error:
        raise ConfigError.of("weights", "numbers, one per sample", weights) from error
    changed = replace(plan, shuffle=replace(order, weights=CumulativeWeights.of(array)))
    text = base64.b64encode(zlib.compress(array.tobytes(), 1)).decode()
    if len(text) > _MOST:
        raise ConfigError(
            f"weights of {len(array):,} samples would take {len(text) >> 20} MB in each saved"
            f" state, at most {_MOST >> 20} MB are allowed; round them to a few values",
            field="weights",
        )
    return changed, text


def with_saved_weights(plan: Plan, text: Any) -> Plan:
    """A plan with the weights in a saved state; StateError if their text is damaged."""
    size = 4 * plan.samples
    try:
        content = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), size)
    except (TypeError, ValueError, zlib.error):
        content = b""
    if len(content) != size:
        raise StateError(
            f"cannot restore: weights must be those of {plan.samples} samples as feed.state()"
            " gave them"
        )
    return with_weights(plan, np.frombuffer(content, "<f4"))[0]
