"""Memory that orders take while they are made: near what they keep, whatever the source hands
out.
"""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

import fastfeed.sampling.orders.classes
import fastfeed.sampling.orders.weighted
from fastfeed.sampling import Balanced, ClassBatches, Weighted

N = 400_000


class Source:
    """Labels and weights as 8 bytes each, as sources hand them out."""

    def __len__(self) -> int:
        return N

    def label(self, ids: np.ndarray) -> np.ndarray:
        return ids % 1000

    def weights(self, ids: np.ndarray) -> np.ndarray:
        return 1.0 + ids % 7

    def uri(self, i: int) -> str:
        return str(i)


@pytest.mark.parametrize(
    ("order", "keeps"),
    [(Balanced(), 4), (ClassBatches(length=N), 4), (Weighted(), 8)],
    ids=["balanced", "class batches", "weighted"],
)
def test_binding_holds_little_more_than_the_order_keeps(
    order: Any, keeps: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(fastfeed.sampling.orders.classes, "_PART", 1 << 13)
    monkeypatch.setattr(fastfeed.sampling.orders.weighted, "_COLUMNS", 1 << 13)
    order.bind(Source())  # what is imported on the way does not count
    tracemalloc.start()
    try:
        bound = order.bind(Source())
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert bound.positions(N) == N
    assert keeps * N <= kept < (keeps + 0.5) * N
    assert peak < (keeps + 2) * N


def test_sparse_labels_are_classes_as_dense_ones_are():
    """Larger than any table of them could be."""

    class Sparse(Source):
        def label(self, ids: np.ndarray) -> np.ndarray:
            return (ids % 5) ** 2 << 50

    sparse, dense = Balanced().bind(Sparse()).classes, Balanced().bind(Source()).classes
    assert sparse is not None and dense is not None
    assert sparse.sizes.tolist() == [N // 5] * 5 and len(dense.sizes) == 1000
    for classes, count in ((sparse, 5), (dense, 1000)):
        assert (classes.ids == np.argsort(np.arange(N) % count, kind="stable")).all()
