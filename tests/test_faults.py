"""Bad samples: policy, substitutes, limits."""

from __future__ import annotations

import json

import numpy as np
import pytest
from helpers.failures import NO_LIMITS, failure, listed, quarantine
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.errors import ConfigError, SampleError, TooManyFailures
from fastfeed.faults import REASONS, Failure, FaultPolicy, too_many
from fastfeed.sampling.plan import substitutes

# -- what a failure and a policy are


@pytest.mark.parametrize("reason", REASONS)
def test_a_failure_explains_itself(reason):
    assert str(failure(3, reason)) == f"photos/3.jpg: {reason} ({REASONS[reason]})"
    assert str(failure(3, reason, detail="at byte 7")) == f"photos/3.jpg: {reason} (at byte 7)"


def test_refuses_unknown_reasons():
    with pytest.raises(ConfigError) as error:
        failure(0, "ugly")
    assert str(error.value) == f"reason must be one of {', '.join(REASONS)}, got 'ugly'"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"action": "ignore"}, 'on_bad must be "substitute", "mask" or "raise", got \'ignore\''),
        ({"max_share": 1.5}, "max_share must be in [0, 1], got 1.5; 1 switches the limit off"),
        ({"max_share": -0.1}, "max_share must be in [0, 1], got -0.1; 1 switches the limit off"),
        ({"max_run": 0}, "max_run and attempts must be >= 1, got 0 and 16"),
        ({"attempts": 0}, "max_run and attempts must be >= 1, got 1000 and 0"),
    ],
    ids=str,
)
def test_policy_refuses(given, text):
    with pytest.raises(ConfigError) as error:
        FaultPolicy(**given)
    assert str(error.value) == text


def test_policy_of():
    assert FaultPolicy.of("mask") == FaultPolicy("mask")
    assert FaultPolicy.of(NO_LIMITS) is NO_LIMITS


# -- substitutes


@given(
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(0, 10**9),
    st.integers(1, 10**9),
)
def test_substitutes_are_a_pure_function(seed, epoch, id, length):
    got = substitutes(seed, epoch, id, 16, length)
    assert (got.shape, got.dtype) == ((16,), np.int64)
    assert np.all((got >= 0) & (got < length))
    np.testing.assert_array_equal(substitutes(seed, epoch, id, 5, length), got[:5])


def test_substitutes_come_from_everywhere_and_change():
    got = [
        tuple(substitutes(seed, epoch, id, 4, 10**6))
        for seed in (0, 1)
        for epoch in (0, 1)
        for id in range(200)
    ]
    assert len(set(got)) == len(got)
    assert abs(np.mean(got) / 10**6 - 0.5) < 5 / np.sqrt(12 * 4 * len(got))


# -- limits


@pytest.mark.parametrize(
    ("bad", "handled", "share", "stops"),
    [
        (21, 50, 0.25, False),  # chance may do that
        (22, 50, 0.25, True),
        (250, 1000, 0.25, False),  # exactly at the limit
        (280, 1000, 0.25, False),  # chance may do that
        (300, 1000, 0.25, True),
        (1, 50, 0.0, True),
        (1000, 1000, 1.0, False),  # switched off
    ],
)
def test_share_limit_asks_for_evidence(bad, handled, share, stops):
    assert too_many(bad, handled, share) is stops
    q = quarantine(policy=FaultPolicy(max_share=share, max_run=10**9))
    q.record_good(handled - bad)
    if not stops:
        q.record_bad([failure(i) for i in range(bad)], 0, 0)
        return
    with pytest.raises(
        TooManyFailures, match=f"{bad} of {handled} samples are bad, the limit is {share:.0%}"
    ):
        q.record_bad([failure(i) for i in range(bad)], 0, 0)


def test_the_words_when_it_stops():
    q = quarantine(policy=FaultPolicy(max_share=0.25))
    q.record_good(9)
    q.record_bad([failure(i) for i in range(40)], 0, 0)  # 40 of 49: too early to tell
    with pytest.raises(TooManyFailures) as error:
        q.record_bad([failure(40, "empty")], 0, 0)
    assert str(error.value) == (
        "too many bad samples: 41 of 50 samples are bad, the limit is 25% (40 truncated, 1 empty);"
        " check the data, or raise the limit with on_bad=FaultPolicy(max_share=...)"
        + "".join(f"\n  {failure(i)}" for i in range(5))
        + "\n  and 36 more"
    )
    assert [f.id for f in error.value.failures] == list(range(41))


def test_a_small_source_is_judged_when_all_of_it_was_met():
    q = quarantine(length=8, policy=FaultPolicy(max_share=0.25))
    q.record_bad([failure(i) for i in range(7)], 0, 0)
    with pytest.raises(TooManyFailures, match="8 of 8 samples are bad, the limit is 25%"):
        q.record_bad([failure(7)], 0, 0)


def test_substitutes_do_not_count_towards_the_share():
    q = quarantine(policy=FaultPolicy(max_share=0.25))
    q.record_good(100)
    q.record_bad([failure(i) for i in range(90)], 0, 0, scheduled=False)
    q.record_good(1000, scheduled=False)
    with pytest.raises(TooManyFailures, match="60 of 160 samples"):
        q.record_bad([failure(i) for i in range(900, 960)], 0, 0)


def test_what_an_earlier_run_listed_is_shown_once_it_is_met(tmp_path):
    quarantine(tmp_path / "bad.jsonl").record_bad([failure(4, "empty"), failure(5)], 0, 0)
    q = quarantine(tmp_path / "bad.jsonl")
    assert q.failures == []
    q.record_bad([], 0, 0, known=[4])
    assert q.failures == [failure(4, "empty")]


def test_two_folders_may_share_a_list(tmp_path):
    path = tmp_path / "bad.jsonl"
    quarantine(path).record_bad([failure(3)], 0, 0)
    quarantine(path).record_bad([Failure(3, "elsewhere/3.jpg", "read", "empty")], 0, 0)
    assert [json.loads(line)["uri"] for line in path.read_text().splitlines()] == [
        "photos/3.jpg",
        "elsewhere/3.jpg",
    ]


def test_a_list_that_cannot_be_written_does_not_end_the_run(tmp_path):
    path = tmp_path / "bad.jsonl"
    q = quarantine(path)
    path.mkdir()  # as bad as a full disk, and root cannot write it either
    with pytest.warns(RuntimeWarning, match="cannot write the quarantine list.*kept in memory"):
        q.record_bad([failure(1)], 0, 0)
    q.record_bad([failure(2)], 0, 0)  # warned once
    assert [f.id for f in q.failures] == [1, 2]


def test_run_limit_counts_samples_in_a_row():
    q = quarantine(policy=FaultPolicy(max_share=1, max_run=3))
    for first in (0, 2, 4):
        q.record_bad([failure(first), failure(first + 1)], 0, 0)
        q.record_good(1)
    q.record_bad([failure(6)], 0, 0)
    with pytest.raises(TooManyFailures, match="3 bad samples in a row, the limit is 3"):
        q.record_bad([], 0, 0, known=[0, 1])


def test_exhausted_names_the_sample():
    q = quarantine(policy=FaultPolicy(attempts=4))
    with pytest.raises(
        TooManyFailures, match="sample 17 and the 4 substitutes tried for it are all bad"
    ):
        q.raise_exhausted(17, 4)


def test_the_list_is_named_when_the_run_stops(tmp_path):
    q = quarantine(tmp_path / "bad.jsonl", policy=FaultPolicy(max_run=1))
    with pytest.raises(
        TooManyFailures, match=r"\(1 truncated\); all are in .*bad\.jsonl; check the data"
    ):
        q.record_bad([failure(0)], 0, 0)
    assert listed(tmp_path / "bad.jsonl") == [0]


def test_raise_policy():
    q = quarantine(policy=FaultPolicy("raise"))
    with pytest.raises(SampleError) as error:
        q.record_bad([failure(5, "empty")], 0, 0)
    assert (
        str(error.value)
        == 'sample 5 is bad in stage decode: photos/5.jpg: empty (zero bytes); on_bad="substitute"'
        " continues"
    )


def test_raise_policy_reads_listed_samples_again(tmp_path):
    """Otherwise a sample listed by an earlier run would be replaced without a word."""
    quarantine(tmp_path / "bad.jsonl").record_bad([failure(5)], 0, 0)
    q = quarantine(tmp_path / "bad.jsonl", policy=FaultPolicy("raise"))
    assert not q.known_bad(np.array([5])).any()
