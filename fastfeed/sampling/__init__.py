"""Orders of an epoch: the samples, their counts and their order."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.sampling.base import (
    MOST_SAMPLES,
    Epoch,
    Order,
    Repeated,
    SampleRefs,
    Shuffled,
    SourceOrder,
)
from fastfeed.sampling.orders.balanced import Balanced
from fastfeed.sampling.orders.blocks import Blocks
from fastfeed.sampling.orders.buckets import Buckets
from fastfeed.sampling.orders.class_batches import ClassBatches
from fastfeed.sampling.orders.curriculum import Curriculum
from fastfeed.sampling.orders.custom import CustomOrder
from fastfeed.sampling.orders.mixture import MixtureOrder, MixturePart
from fastfeed.sampling.orders.weighted import Weighted

__all__ = [
    "MOST_SAMPLES",
    "NAMES",
    "Balanced",
    "Blocks",
    "Buckets",
    "ClassBatches",
    "Curriculum",
    "CustomOrder",
    "Epoch",
    "MixtureOrder",
    "MixturePart",
    "Order",
    "Repeated",
    "SampleRefs",
    "Shuffle",
    "Weighted",
    "bind",
    "resolve_order",
]

Shuffle = Literal["full", "none"] | Order

NAMES: dict[str, Order] = {"full": Shuffled(), "none": SourceOrder()}


def resolve_order(shuffle: Shuffle) -> Order:
    """The order that a `shuffle` argument means."""
    if isinstance(shuffle, str) and shuffle in NAMES:
        return NAMES[shuffle]
    if isinstance(shuffle, str | type) or not hasattr(shuffle, "visits"):
        raise ConfigError.of(
            "shuffle",
            '"full", "none" or an order, as Blocks(), Balanced(), Weighted() and Repeated(2) are',
            shuffle,
        )
    return shuffle


def bind(shuffle: Shuffle | bool, source: Any) -> Shuffle:
    """An order bound to a source. True means "full", False means "none".

    A mixture (`starts`, `shares`, `length`) becomes a MixtureOrder, with "full", "none" or
    Blocks(...) as the order within each of its sources. Other orders choose among all of its
    samples, whatever its shares.
    """
    if isinstance(shuffle, bool):
        shuffle = "full" if shuffle else "none"
    order = resolve_order(shuffle)
    if getattr(source, "shares", None) is not None and isinstance(
        order, Shuffled | SourceOrder | Blocks
    ):
        ranges = zip(pairwise(np.asarray(source.starts).tolist()), source.shares, strict=True)
        parts = [
            MixturePart(first, last - first, share, shuffle)  # type: ignore[arg-type]
            for (first, last), share in ranges
        ]
        return MixtureOrder(tuple(parts), source.length).bind(source)
    return shuffle if isinstance(shuffle, str) else order.bind(source)
