"""Products of parameters: each value once, and the other pairs in longer runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def in_turn(
    first: Iterable[Any], second: Iterable[Any], others: pytest.MarkDecorator = pytest.mark.slow
) -> list[Any]:
    """All pairs: each value of the longer one has one of the other's in turn, and other pairs have
    this mark.
    """
    firsts, seconds = list(first), list(second)
    turn = min(len(firsts), len(seconds))
    return [
        pytest.param(a, b, marks=[] if i % turn == j % turn else [others])
        for i, a in enumerate(firsts)
        for j, b in enumerate(seconds)
    ]
