"""What the tests of plans share."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fastfeed.plan import Blocks, Plan
from fastfeed.world import World

SIZES = (1, 2, 3, 7, 8, 64, 256)
SHUFFLES = st.one_of(
    st.sampled_from(["full", "none"]), st.builds(Blocks, st.integers(1, 40), st.integers(1, 8)), st.just(Blocks())
)


def ranks(plan: Plan, size: int) -> list[Plan]:
    return [dataclasses.replace(plan, world=World(rank, size)) for rank in range(size)]


def epoch_of(plans: list[Plan], epoch: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Global batches with their weights: what the ranks read, put side by side."""
    return [
        (np.concatenate([p.ids(epoch, s) for p in plans]), np.concatenate([p.weights(s) for p in plans]))
        for s in range(plans[0].steps)
    ]


@st.composite
def worlds(draw: Any) -> list[Plan]:
    """The plans of all ranks, made from a batch per rank or a global batch."""
    size, tail = draw(st.sampled_from(SIZES)), draw(st.sampled_from(["drop", "pad"]))
    how: dict[str, int] = (
        {"batch": draw(st.integers(1, 20))}
        if draw(st.booleans())
        else {"global_batch": draw(st.integers(size, 20 * size))}
    )
    total = how.get("global_batch", how.get("batch", 0) * size)
    length = draw(st.integers(total if tail == "drop" else 1, max(600, 2 * total)))
    seed, shuffle = draw(st.integers(0, 2**64 - 1)), draw(SHUFFLES)
    return [
        Plan.make(length, **how, seed=seed, world=World(rank, size), shuffle=shuffle, tail=tail) for rank in range(size)
    ]
