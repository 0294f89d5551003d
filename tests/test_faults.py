"""Bad samples: policy, substitutes, limits, and the quarantine list, shared and torn and reloaded."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import environment
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.errors import ConfigError, SampleError, TooManyFailures
from fastfeed.faults import REASONS, Failure, FaultPolicy, substitutes, too_many
from fastfeed.quarantine import Quarantine

NO_LIMITS = FaultPolicy(max_share=1, max_run=10**9)


def failure(id: int, reason: str = "truncated", **more: Any) -> Failure:
    return Failure(id, f"photos/{id}.jpg", "decode", reason, **more)


def quarantine(path: Path | None = None, *, length: int = 1000, uri: Callable[[int], str] | None = None, **more: Any):
    policy = more.pop("policy", NO_LIMITS)
    return Quarantine(path, policy=policy, length=length, uri=uri or (lambda i: f"photos/{i}.jpg"), **more)


def listed(path: Path) -> list[int]:
    return [json.loads(line)["id"] for line in path.read_text().splitlines()]


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


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.integers(0, 10**9), st.integers(1, 10**9))
def test_substitutes_are_a_pure_function(seed, epoch, id, length):
    got = substitutes(seed, epoch, id, 16, length)
    assert (got.shape, got.dtype) == ((16,), np.int64)
    assert np.all((got >= 0) & (got < length))
    np.testing.assert_array_equal(substitutes(seed, epoch, id, 5, length), got[:5])


def test_substitutes_come_from_everywhere_and_change():
    got = [tuple(substitutes(seed, epoch, id, 4, 10**6)) for seed in (0, 1) for epoch in (0, 1) for id in range(200)]
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
    q.good(handled - bad)
    if not stops:
        q.bad([failure(i) for i in range(bad)], 0, 0)
        return
    with pytest.raises(TooManyFailures, match=f"{bad} of {handled} samples are bad, the limit is {share:.0%}"):
        q.bad([failure(i) for i in range(bad)], 0, 0)


def test_the_words_when_it_stops():
    q = quarantine(policy=FaultPolicy(max_share=0.25))
    q.good(9)
    q.bad([failure(i) for i in range(40)], 0, 0)  # 40 of 49: too early to tell
    with pytest.raises(TooManyFailures) as error:
        q.bad([failure(40, "empty")], 0, 0)
    assert str(error.value) == (
        "too many bad samples: 41 of 50 samples are bad, the limit is 25% (40 truncated, 1 empty); check the data, "
        "or raise the limit with on_bad=FaultPolicy(max_share=...)"
        + "".join(f"\n  {failure(i)}" for i in range(5))
        + "\n  and 36 more"
    )
    assert [f.id for f in error.value.failures] == list(range(41))


def test_a_small_source_is_judged_when_all_of_it_was_met():
    q = quarantine(length=8, policy=FaultPolicy(max_share=0.25))
    q.bad([failure(i) for i in range(7)], 0, 0)
    with pytest.raises(TooManyFailures, match="8 of 8 samples are bad, the limit is 25%"):
        q.bad([failure(7)], 0, 0)


def test_substitutes_do_not_count_towards_the_share():
    q = quarantine(policy=FaultPolicy(max_share=0.25))
    q.good(100)
    q.bad([failure(i) for i in range(90)], 0, 0, turn=False)
    q.good(1000, turn=False)
    with pytest.raises(TooManyFailures, match="60 of 160 samples"):
        q.bad([failure(i) for i in range(900, 960)], 0, 0)


def test_what_an_earlier_run_listed_is_shown_once_it_is_met(tmp_path):
    quarantine(tmp_path / "bad.jsonl").bad([failure(4, "empty"), failure(5)], 0, 0)
    q = quarantine(tmp_path / "bad.jsonl")
    assert q.failures == []
    q.bad([], 0, 0, known=[4])
    assert q.failures == [failure(4, "empty")]


def test_two_folders_may_share_a_list(tmp_path):
    path = tmp_path / "bad.jsonl"
    quarantine(path).bad([failure(3)], 0, 0)
    quarantine(path).bad([Failure(3, "elsewhere/3.jpg", "read", "empty")], 0, 0)
    assert [json.loads(line)["uri"] for line in path.read_text().splitlines()] == ["photos/3.jpg", "elsewhere/3.jpg"]


def test_a_list_that_cannot_be_written_does_not_end_the_run(tmp_path):
    path = tmp_path / "bad.jsonl"
    q = quarantine(path)
    path.mkdir()  # as bad as a full disk, and root cannot write it either
    with pytest.warns(RuntimeWarning, match="cannot write the quarantine list.*kept in memory"):
        q.bad([failure(1)], 0, 0)
    q.bad([failure(2)], 0, 0)  # warned once
    assert [f.id for f in q.failures] == [1, 2]


def test_run_limit_counts_samples_in_a_row():
    q = quarantine(policy=FaultPolicy(max_share=1, max_run=3))
    for first in (0, 2, 4):
        q.bad([failure(first), failure(first + 1)], 0, 0)
        q.good(1)
    q.bad([failure(6)], 0, 0)
    with pytest.raises(TooManyFailures, match="3 bad samples in a row, the limit is 3"):
        q.bad([], 0, 0, known=[0, 1])


def test_exhausted_names_the_sample():
    q = quarantine(policy=FaultPolicy(attempts=4))
    with pytest.raises(TooManyFailures, match="sample 17 and the 4 substitutes tried for it are all bad"):
        q.exhausted(17)


def test_the_list_is_named_when_the_run_stops(tmp_path):
    q = quarantine(tmp_path / "bad.jsonl", policy=FaultPolicy(max_run=1))
    with pytest.raises(TooManyFailures, match=r"\(1 truncated\); all are in .*bad\.jsonl; check the data"):
        q.bad([failure(0)], 0, 0)
    assert listed(tmp_path / "bad.jsonl") == [0]


def test_raise_policy():
    q = quarantine(policy=FaultPolicy("raise"))
    with pytest.raises(SampleError) as error:
        q.bad([failure(5, "empty")], 0, 0)
    assert str(error.value) == (
        'sample 5 is bad in stage decode: photos/5.jpg: empty (zero bytes); on_bad="substitute" goes on'
    )


def test_raise_policy_reads_listed_samples_again(tmp_path):
    """Otherwise a sample listed by an earlier run would be replaced without a word."""
    quarantine(tmp_path / "bad.jsonl").bad([failure(5)], 0, 0)
    q = quarantine(tmp_path / "bad.jsonl", policy=FaultPolicy("raise"))
    assert not q.known(np.array([5])).any()


# -- the list


def test_file_holds_each_once_with_where_it_was_met(tmp_path):
    path = tmp_path / "bad.jsonl"
    q = quarantine(path, rank=3)
    q.bad([failure(4, detail="half of it")], 1, 7)
    q.bad([failure(4), failure(9, "empty", offset=512)], 2, 0)
    q.bad([failure(9, "empty")], 3, 0)
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"id": 4, "uri": "photos/4.jpg", "stage": "decode", "reason": "truncated", "detail": "half of it"}
        | {"offset": None, "rank": 3, "epoch": 1, "step": 7},
        {"id": 9, "uri": "photos/9.jpg", "stage": "decode", "reason": "empty", "detail": ""}
        | {"offset": 512, "rank": 3, "epoch": 2, "step": 0},
    ]
    assert [f.id for f in q.failures] == [4, 9]
    assert q.reasons() == {"truncated": 1, "empty": 1}


def test_the_same_sample_twice_in_one_batch_is_listed_once(tmp_path):
    """tail="pad" repeats samples, and a small source meets its substitutes again."""
    q = quarantine(tmp_path / "bad.jsonl")
    q.bad([failure(4), failure(4)], 0, 0)
    assert listed(tmp_path / "bad.jsonl") == [4]


def test_known_are_those_found_and_those_listed(tmp_path):
    path = tmp_path / "bad.jsonl"
    quarantine(path).bad([failure(4)], 0, 0)
    q = quarantine(path)
    assert q.failures == [], "what an earlier run found is not this run's"
    q.bad([failure(6)], 0, 0)
    assert q.known(np.arange(8)).tolist() == [False, False, False, False, True, False, True, False]
    assert q.known(np.array([4, 4, 0])).tolist() == [True, True, False]
    q.bad([failure(4)], 0, 0)
    assert listed(path) == [4, 6]


@pytest.mark.parametrize("reason", ["io_error", "timeout"])
def test_what_may_pass_is_tried_again(tmp_path, reason):
    path = tmp_path / "bad.jsonl"
    q = quarantine(path)
    q.bad([failure(1, reason)], 0, 0)
    q.bad([failure(1, reason)], 1, 0)
    assert listed(path) == [1]
    assert not q.known(np.array([1])).any()
    assert not quarantine(path).known(np.array([1])).any()


@pytest.mark.parametrize(
    "change", [{"uri": lambda i: f"other/{i}.jpg"}, {"length": 4}], ids=["other folder", "fewer samples"]
)
def test_a_list_of_other_data_bans_nothing(tmp_path, change):
    quarantine(tmp_path / "bad.jsonl").bad([failure(4)], 0, 0)
    assert not quarantine(tmp_path / "bad.jsonl", **change).known(np.array([4])).any()


def test_names_that_are_not_utf8(tmp_path):
    def uri(i: int) -> str:
        return b"photos/\xff\xe9.jpg".decode("utf-8", "surrogateescape")

    path = tmp_path / "bad.jsonl"
    quarantine(path, uri=uri).bad([Failure(0, uri(0), "decode", "empty")], 0, 0)
    assert quarantine(path, uri=uri).known(np.array([0])).all()


def test_two_ranks_share_a_file(tmp_path):
    path = tmp_path / "bad.jsonl"
    a, b = quarantine(path, rank=0), quarantine(path, rank=1)
    a.bad([failure(1), failure(2)], 0, 0)
    b.bad([failure(2), failure(3)], 0, 0)
    a.bad([failure(3), failure(4)], 0, 0)
    assert listed(path) == [1, 2, 3, 4]


SHARING = """
import sys
from fastfeed.faults import Failure, FaultPolicy
from fastfeed.quarantine import Quarantine
path, rank = sys.argv[1], int(sys.argv[2])
q = Quarantine(path, policy=FaultPolicy(max_share=1, max_run=10**9), length=400, rank=rank)
print("ready", flush=True)
sys.stdin.readline()
for i in range(400):
    id = i if rank == 0 else 399 - i
    q.bad([Failure(id, str(id), "read", "empty", "x" * (id % 97))], 0, i)
"""


def test_two_processes_share_a_file(tmp_path):
    path = tmp_path / "bad.jsonl"
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", SHARING, str(path), str(rank)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        for rank in (0, 1)
    ]
    for rank in ranks:
        assert rank.stdout.readline() == "ready\n"
    for rank in ranks:  # both go at once
        rank.stdin.write("go\n")
        rank.stdin.flush()
    for rank in ranks:
        rank.communicate(timeout=60)
        assert rank.returncode == 0
    assert sorted(listed(path)) == list(range(400))
    assert {json.loads(line)["rank"] for line in path.read_text().splitlines()} == {0, 1}


# -- files as they are found


def test_a_torn_last_line_is_dropped(tmp_path):
    path = tmp_path / "bad.jsonl"
    quarantine(path).bad([failure(1), failure(2)], 0, 0)
    path.write_bytes(path.read_bytes()[:-10])
    q = quarantine(path)
    assert q.known(np.arange(4)).tolist() == [False, True, False, False]
    q.bad([failure(3)], 0, 0)
    assert listed(path) == [1, 3]


@pytest.mark.parametrize("cut", range(1, 140, 7))
def test_wherever_it_is_torn(tmp_path, cut):
    path = tmp_path / "bad.jsonl"
    quarantine(path).bad([failure(1), failure(2)], 0, 0)
    path.write_bytes(path.read_bytes()[:-cut])
    quarantine(path).bad([failure(3), failure(2), failure(1)], 0, 0)
    assert sorted(listed(path)) == [1, 2, 3]
    assert quarantine(path).known(np.arange(4)).tolist() == [False, True, True, True]


def test_a_file_without_its_last_newline(tmp_path):
    """As editors leave it: the last line is whole, and the next one must not be glued to it."""
    path = tmp_path / "bad.jsonl"
    quarantine(path).bad([failure(1)], 0, 0)
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    q = quarantine(path)
    assert q.known(np.array([1])).all()
    q.bad([failure(2)], 0, 0)
    assert listed(path) == [1, 2]


def test_blank_lines_are_nothing(tmp_path):
    path = tmp_path / "bad.jsonl"
    quarantine(path).bad([failure(1)], 0, 0)
    path.write_bytes(b"\n" + path.read_bytes() + b"\n\n")
    quarantine(path).bad([failure(1), failure(2)], 0, 0)
    assert quarantine(path).known(np.arange(3)).tolist() == [False, True, True]


def test_an_empty_file_is_an_empty_list(tmp_path):
    (tmp_path / "bad.jsonl").touch()
    quarantine(tmp_path / "bad.jsonl").bad([failure(1)], 0, 0)
    assert listed(tmp_path / "bad.jsonl") == [1]


@pytest.mark.parametrize("edit", ["delete", "empty"])
def test_a_file_that_is_cleared_during_the_run_starts_again(tmp_path, edit):
    path = tmp_path / "bad.jsonl"
    q = quarantine(path)
    q.bad([failure(1), failure(2)], 0, 0)
    path.unlink() if edit == "delete" else path.write_bytes(b"")
    q.bad([failure(3)], 0, 0)
    assert listed(path) == [3]


@pytest.mark.parametrize(
    "content", [b"id,uri,reason\n1,a,empty\n", b'{"id": 1}\n', b'[1, "a", "empty"]\n', b"\x89PNG\r\n\x1a\n"], ids=repr
)
def test_refuses_other_files_and_leaves_them_alone(tmp_path, content):
    path = tmp_path / "labels.csv"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as error:
        quarantine(path)
    line = content.splitlines(keepends=True)[0]
    assert str(error.value) == f"{path} is not a quarantine file: cannot read line {line!r}; pass another path"
    assert path.read_bytes() == content


@pytest.mark.parametrize("content", [b"important notes", b'{"id": 1'])
def test_refuses_a_lone_line_that_is_no_torn_entry(tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    torn_entry = content.startswith(b'{"id"')
    if torn_entry:
        quarantine(path).bad([failure(1)], 0, 0)
        assert listed(path) == [1]
    else:
        with pytest.raises(ConfigError, match="is not a quarantine file"):
            quarantine(path)
        assert path.read_bytes() == content


def test_refuses_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError) as error:
        quarantine(tmp_path / "runs" / "bad.jsonl")
    assert str(error.value) == f"quarantine: no folder {tmp_path / 'runs'}; create it first"


def test_refuses_a_folder_as_the_file(tmp_path):
    with pytest.raises(ConfigError) as error:
        quarantine(tmp_path)
    assert (
        str(error.value) == f"quarantine: {tmp_path} is a folder; pass a file, such as {tmp_path / 'quarantine.jsonl'}"
    )
