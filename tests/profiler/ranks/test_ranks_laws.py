"""Laws of any ranks: waits are time in kernels, blamed once, whatever the order."""

from __future__ import annotations

from collections import Counter

import numpy as np
from helpers.profiler.manyranks import MS, Talk, members
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfeed.profiler.model import intervals
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.trace import Kind
from fastfeed.profiler.ranks.ranks import NO_CAUSE, RankAnalysis, RankDevice, analyze_ranks

RANKS = 4
CAUSES = (Cause.INPUT, Cause.FRAMEWORK, Cause.HOST_UNKNOWN)
groups = st.sampled_from([(0, 1, 2, 3), (0, 1), (2, 3), (0, 2), (1, 3), (1, 2, 3)])


@st.composite
def runs(draw: st.DrawFn, skewed: bool = True) -> list[RankDevice]:
    """Up to 40 collectives of several groups, each rank with its losses; some record later."""
    some = draw(st.lists(groups, min_size=1, max_size=40))
    talks = [Talk(ranks, group=f"group {ranks}", stream=20 + len(ranks)) for ranks in some]
    seed, late = (
        draw(st.integers(0, 99)),
        draw(st.lists(st.integers(0, 3), min_size=RANKS, max_size=RANKS)),
    )
    skew = [draw(st.integers(-(10**9), 10**9)) if skewed else 0 for _ in range(RANKS)]
    meanwhile = draw(st.integers(0, 3 * MS))

    def before(rank: int, number: int) -> tuple[dict[Cause, int], int]:
        rng = np.random.default_rng([seed, rank, number])
        lost = {CAUSES[rng.integers(3)]: int(rng.integers(1, 5 * MS))} if rng.random() < 0.4 else {}
        return lost, int(rng.integers(1, 5 * MS))

    return members(
        talks,
        before,
        ranks=RANKS,
        skew=skew,
        seed=seed,
        world_size=draw(st.sampled_from([None, RANKS, 2 * RANKS])),
        recorded=lambda rank, number: number >= late[rank],
        computing=lambda rank, number: meanwhile if (rank + number) % 3 else 0,
    )


def blamed(
    run: list[RankDevice], analysis: RankAnalysis
) -> dict[str, Counter[tuple[str, Cause | None]]]:
    return {
        member.label: Counter(
            {(charge.late_rank, charge.cause): charge.ns for charge in blame.charges}
        )
        for member, blame in zip(run, analysis.blames, strict=True)
    }


@settings(deadline=None, max_examples=60)
@given(runs())
def test_every_wait_is_blamed_once(run: list[RankDevice]) -> None:
    analysis = analyze_ranks(run)
    for at, (member, blame) in enumerate(zip(run, analysis.blames, strict=True)):
        length = blame.spans[:, 1] - blame.spans[:, 0]
        assert (length > 0).all()
        assert (blame.spans[1:, 0] >= blame.spans[:-1, 1]).all()
        assert len(blame.spans) == len(blame.cause) == len(blame.culprit)
        assert sum(charge.ns for charge in blame.charges) == length.sum() <= blame.comm_wait
        assert at not in blame.culprit.tolist()
        assert not set(blame.cause.tolist()) & {Cause.HOST_UNKNOWN, Cause.NO_LAUNCH}
        ops = member.trace.ops
        comm = intervals.union(intervals.spans(ops.start, ops.end)[ops.kind == Kind.COMM])
        computing = intervals.union(intervals.spans(ops.start, ops.end)[ops.kind == Kind.COMPUTE])
        alone = intervals.intersect(intervals.subtract(comm, computing), member.judged)
        assert intervals.overlap(blame.spans, alone).tolist() == length.tolist()
        per_cause = Counter[int]()
        for cause, ns in zip(blame.cause.tolist(), length.tolist(), strict=True):
            per_cause[cause] += ns
        by_culprit = Counter[int]()
        for charge in blame.charges:
            by_culprit[NO_CAUSE if charge.cause is None else charge.cause] += charge.ns
        assert per_cause == by_culprit


@settings(deadline=None, max_examples=30)
@given(runs(skewed=False), st.permutations(range(RANKS)))
def test_the_order_of_ranks_does_not_matter(run: list[RankDevice], order: list[int]) -> None:
    """But for the jitter of ends, by which clocks are set."""
    straight = blamed(run, analyze_ranks(run))
    turned = [run[at] for at in order]
    other = blamed(turned, analyze_ranks(turned))
    for label, charges in straight.items():
        for key in charges.keys() | other[label].keys():
            assert abs(charges[key] - other[label][key]) <= 40 * 3 * 8_000
