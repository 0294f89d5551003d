"""Sources made from another one keep what it has."""

from __future__ import annotations

import numpy as np
from helpers.feeds import NUMBERS

import fastfeed as ff


def test_a_mixture_keeps_its_shares_under_objects():
    few, many = ff.Arrays(NUMBERS[:10]), ff.Arrays(NUMBERS[10:])
    mixture = ff.Mixture([few, many], weights=[0.5, 0.5])
    with ff.Feed(ff.Objects(mixture, [[]] * 50), [], batch=10) as feed:
        ids = next(iter(feed)).ids
    assert np.count_nonzero(ids < 10) == 5
