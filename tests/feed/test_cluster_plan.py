"""What a cluster will read: the same as the ranks' plans, counted by hand."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.plans import ranks
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.cli.plan import cluster
from fastfeed.cli.plan.cluster import simulate
from fastfeed.distributed.world import World
from fastfeed.errors import ConfigError
from fastfeed.sampling import Blocks
from fastfeed.sampling.plan import Plan


class Shards:
    """As much of a source as a simulation looks at; sample i has 100 + i bytes."""

    def __init__(self, counts: list[int]) -> None:
        self.bounds = np.cumsum([0, *counts])

    def __len__(self) -> int:
        return int(self.bounds[-1])

    def sizes(self, ids: np.ndarray) -> np.ndarray:
        return 100 + ids

    def shard(self, unit: int) -> str:
        return f"shard {unit}"


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=12),
    st.sampled_from([1, 2, 3, 8]),
    st.integers(1, 6),
    st.sampled_from(["full", "none", "blocks"]),
    st.sampled_from(["drop", "pad"]),
    st.integers(1, 4),
)
def test_counts_what_the_ranks_read(counts, size, batch, shuffle, tail, per_node):
    source = Shards(counts)
    if tail == "drop" and size * batch > len(source):
        return
    order = Blocks(window=2, lanes=3).bind(source) if shuffle == "blocks" else shuffle
    plan = Plan.make(
        len(source), batch=batch, world=World(0, size), shuffle=order, tail=tail, seed=5
    )
    found = simulate(source, plan, epoch=2, ranks_per_node=per_node)  # type: ignore[arg-type]
    assert found.is_complete
    touched = []
    for rank, own in enumerate(ranks(plan, size)):
        ids = [own.ids(2, step) for step in range(plan.steps)]
        units = [set(np.searchsorted(source.bounds, i, side="right") - 1) for i in ids]
        assert found.samples[rank] == sum(map(len, ids))
        assert found.bytes[rank] == sum((100 + i).sum() for i in ids)
        assert [len(u) for u in units] == found.per_step[:, rank].tolist()
        touched.append(set().union(*units))
        assert found.units_read[rank] == len(touched[-1])
        assert set(found.most_read[rank].tolist()) <= touched[-1]
        if rank in found.traces:
            assert set(np.flatnonzero(found.traces[rank].any(axis=1))) == touched[-1]
    nodes = [set().union(*touched[first : first + per_node]) for first in range(0, size, per_node)]
    assert found.node_units_read.tolist() == [len(node) for node in nodes]
    assert found.imbalance == pytest.approx(found.bytes.max() / found.bytes.mean() - 1)


def test_a_long_epoch_is_judged_by_some_of_its_steps(monkeypatch: pytest.MonkeyPatch):
    # a 25th: time is what it takes
    monkeypatch.setattr(cluster, "_SAMPLES", 160_000)
    source = Shards([1000] * 200)
    plan = Plan.make(len(source), batch=8, world=World(0, 2), shuffle="none")
    part = simulate(source, plan)  # type: ignore[arg-type]
    assert not part.is_complete
    assert (part.steps[0], part.steps[-1]) == (0, plan.steps - 1)
    assert part.samples.tolist() == [100_000, 100_000]
    assert part.bytes.sum() == pytest.approx(sum(100 + i for i in range(len(source))), rel=0.01)


def test_sources_without_units_are_one():
    class Plain:
        def __len__(self) -> int:
            return 100

    found = simulate(Plain(), Plan.make(100, batch=5, world=World(0, 4)))  # type: ignore[arg-type]
    assert (found.units, found.units_read.tolist(), found.imbalance) == (1, [1] * 4, 0.0)
    assert not found.bytes.any()


def test_counts_groups_and_the_bytes_of_steps():
    class Plain:
        def __len__(self) -> int:
            return 10

    plan = Plan.make(10, batch=1, world=World(0, 2), shuffle="none")
    found = simulate(Plain(), plan, sizes=np.arange(10.0), groups=np.arange(10) // 5)  # type: ignore[arg-type]
    assert found.step_bytes.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    assert found.bytes.tolist() == [20, 25]
    assert found.mix.tolist() == [[2, 2, 1, 0, 0], [0, 0, 1, 2, 2]]


def test_what_would_not_fit_into_memory_is_refused():
    class Huge(Shards):
        def __init__(self) -> None:
            self.bounds = np.arange(10_000_001)

    with pytest.raises(
        ConfigError, match=r"got 256 ranks and 10,000,000 shards; pass a smaller world"
    ):
        simulate(Huge(), Plan.make(10_000_000, batch=8, world=World(0, 256)))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"ranks_per_node must be >= 1, got 0"):
        simulate(Shards([9]), Plan.make(9, batch=1), ranks_per_node=0)  # type: ignore[arg-type]
