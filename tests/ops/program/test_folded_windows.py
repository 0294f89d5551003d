"""Windows of geometric ops are those that one definition makes of whole images, step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.op_examples import ALL, one_of_each

from fastfeed.ops.program.window import Step, _move, fold
from fastfeed.sampling.rng import uniform

N = 300
GEOMETRY = [op for op in ALL if op.kind == "geometry"]
SIZES = np.random.default_rng(0).integers(1, 2000, (N, 2))


def defined(ops: list[Any], draws: list[np.ndarray]) -> list[np.ndarray]:
    """Boxes, flips and sizes, moved from the whole images in NumPy."""
    boxes = np.concatenate([np.zeros((N, 2)), SIZES], axis=1)
    flips = np.zeros((N, 2), bool)
    now = SIZES.copy()
    for op, u in zip(ops, draws, strict=True):
        by = op.params(u, now)
        _move(boxes, flips, now, by["box"], by["flip"], by["size"])
    return [boxes, flips, now]


@pytest.mark.parametrize("first", one_of_each(GEOMETRY), ids=repr)
def test_every_pair_of_ops(first: Any) -> None:
    given = SIZES.copy()
    for second in GEOMETRY:
        ops = [first, second]
        draws = [uniform(3, 1, np.arange(N), slot, op.draws) for slot, op in enumerate(ops)]
        for count in (0, 1, 2):
            steps = [Step(op, None, 0) for op in ops[:count]]
            made = fold(steps, draws[:count], SIZES)
            wanted = defined(ops[:count], draws[:count])
            for own, want in zip((made.boxes, made.flips, made.sizes), wanted, strict=True):
                assert own.dtype == want.dtype
                np.testing.assert_array_equal(own, want)
    np.testing.assert_array_equal(SIZES, given)  # nothing writes to what it was given
