"""Which hashes are near: exactly those that comparing all with all finds, without doing that."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.products import in_turn
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.preprocess.planning import near_duplicates
from fastfeed.preprocess.planning.near_duplicates import mirror, mirrored_pairs, near_pairs

Found = set[tuple[int, int, int]]


def found(hashes: np.ndarray, distance: int) -> Found:
    a, b, bits = near_pairs(hashes, distance)
    assert (a.dtype, b.dtype, bits.dtype) == (np.int64, np.int64, np.uint8)
    pairs = list(zip(a.tolist(), b.tolist(), bits.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs), "a pair was found twice"
    return set(pairs)


def expected(hashes: np.ndarray, distance: int) -> Found:
    """All with all; of equal hashes only the first."""
    firsts: dict[int, int] = {}
    pairs: Found = set()
    for i, value in enumerate(hashes.tolist()):
        if value in firsts:
            pairs.add((firsts[value], i, 0))
            continue
        for other, first in firsts.items():
            if (bits := (value ^ other).bit_count()) <= distance:
                pairs.add((first, i, bits))
        firsts[value] = i
    return pairs


def clumps(seed: int, count: int, moves: int, places: int) -> np.ndarray:
    """Hashes around a few centers, up to `moves` of the first `places` bits away."""
    rng = np.random.default_rng(seed)
    hashes = rng.integers(0, 2**64, 5, dtype=np.uint64)[rng.integers(0, 5, count)]
    for _ in range(moves):
        bit = np.uint64(1) << rng.integers(0, places, count).astype(np.uint64)
        hashes ^= np.where(rng.random(count) < 0.6, bit, np.uint64(0))
    return hashes


WAYS = [
    *(("all with all", distance) for distance in (0, 1, 3, 4, 9)),
    *(("bands", distance) for distance in (1, 3, 4, 9)),
    *(("crowds", distance) for distance in (1, 3, 4)),
]


@pytest.mark.parametrize(("way", "distance"), WAYS)
@pytest.mark.parametrize(("places", "moves"), in_turn([9, 64], [2, 7]))
def test_exactly_the_pairs_of_brute_force(
    way: str, distance: int, places: int, moves: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way != "all with all":  # what the costs choose for many hashes only
        monkeypatch.setattr(near_duplicates, "_COMPARE_NS", 1e5)
        monkeypatch.setattr(near_duplicates, "_PAIRS_PER_BATCH", 40)
    if way == "crowds":
        monkeypatch.setattr(near_duplicates, "_CROWD_SIZE", 4)
    for seed in range(3):
        hashes = clumps(seed, 90, moves, places)
        assert found(hashes, distance) == expected(hashes, distance)


@given(
    values=st.lists(
        st.integers(0, 2**64 - 1) | st.integers(0, 40) | st.integers(0, 40).map(lambda v: v << 58)
    ),
    distance=st.integers(0, 16),
)
def test_any_hashes(values: list[int], distance: int) -> None:
    hashes = np.array(values, np.uint64)
    assert found(hashes, distance) == expected(hashes, distance)


def test_bands_are_used_for_many_hashes_and_miss_nothing() -> None:
    hashes = np.random.default_rng(0).integers(0, 2**64, 60_000, dtype=np.uint64)
    assert near_duplicates._choose_bands(2**64 - 1, 4, len(hashes)) is not None
    planted = {}
    rng = np.random.default_rng(1)
    for i in range(0, 2000, 2):
        bits = i % 7
        flips = sum(1 << int(place) for place in rng.choice(64, bits, replace=False))
        hashes[50_000 + i] = hashes[i] ^ np.uint64(flips)
        planted[i] = bits
    a, b, bits = near_pairs(hashes, 4)
    assert {(i, 50_000 + i, n) for i, n in planted.items() if n <= 4} == set(
        zip(a.tolist(), b.tolist(), bits.tolist(), strict=True)
    )


def test_equal_hashes_are_one() -> None:
    hashes = np.full(200_000, 77, np.uint64)  # compared with each other, these would be 2e10 pairs
    hashes[123] = 76
    a, b, bits = near_pairs(hashes, 4)
    assert len(a) == len(hashes) - 1
    assert (a == 0).all()
    assert sorted(b.tolist()) == list(range(1, len(hashes)))
    assert bits[b == 123].tolist() == [1]


def test_a_crowd_that_shares_most_bits_is_searched_by_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared = 0
    count = np.bitwise_count

    def counted(values: np.ndarray) -> np.ndarray:
        nonlocal compared
        compared += len(values)
        return count(values)

    monkeypatch.setattr(np, "bitwise_count", counted)
    hashes = np.random.default_rng(0).integers(0, 2**64, 30_000, dtype=np.uint64)
    hashes[:15_000] &= np.uint64(0xFFFFFFFF)  # half of all have the same upper half
    near_pairs(hashes, 4)
    # the crowd alone, all with all, would be four times as much
    assert 0 < compared < 15_000**2 / 2 / 4


def test_no_hashes_and_one() -> None:
    assert found(np.zeros(0, np.uint64), 4) == set()
    assert found(np.ones(1, np.uint64), 4) == set()


@given(
    seed=st.integers(0, 99),
    count=st.integers(0, 40),
    distance=st.sampled_from([0, 1, 3, 5]),
    flips=st.booleans(),
)
def test_mirrored_pairs_are_those_of_the_nearer_of_both(
    seed: int, count: int, distance: int, flips: bool
) -> None:
    rng = np.random.default_rng(seed)
    hashes = clumps(seed, count, 3, 64)
    if flips:
        hashes = np.where(rng.random(count) < 0.5, hashes, mirror(hashes))
    pairs: Found = set()
    firsts: list[int] = []
    for i in range(count):
        either = [hashes[i], mirror(hashes)[i]]
        near = {k: min(int(hashes[k] ^ h).bit_count() for h in either) for k in firsts}
        if same := [k for k in firsts if not near[k]]:
            pairs.add((same[0], i, 0))
            continue
        pairs |= {(k, i, bits) for k, bits in near.items() if bits <= distance}
        firsts.append(i)
    a, b, bits = mirrored_pairs(hashes, distance)
    got = list(zip(a.tolist(), b.tolist(), bits.tolist(), strict=True))
    assert len(set(got)) == len(got) and set(got) == pairs
    assert (mirror(mirror(hashes)) == hashes).all()
