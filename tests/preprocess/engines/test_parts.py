"""Parts of a job: every shard is in one of them, and Slurm's arrays say which."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.errors import ConfigError
from fastfeed.preprocess.engines.named import parse_part, select_part


def array(id: int, least: int, most: int, step: int, count: int) -> dict[str, str]:
    values = {"ID": id, "MIN": least, "MAX": most, "STEP": step, "COUNT": count}
    return {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in values.items()}


@given(st.integers(0, 300), st.integers(1, 40))
def test_parts_are_disjoint_complete_and_even(shards: int, n: int) -> None:
    parts = [select_part(range(shards), (i, n)) for i in range(n)]
    assert sorted(piece for part in parts for piece in part) == list(range(shards))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(st.sets(st.integers(0, 100)), st.integers(1, 10))
def test_what_is_done_already_moves_no_shard_to_another_part(done: set[int], n: int) -> None:
    todo = [piece for piece in range(101) if piece not in done]
    for i in range(n):
        assert select_part(todo, (i, n)) == [
            piece for piece in select_part(range(101), (i, n)) if piece not in done
        ]


def test_a_part_is_written_as_ranks_are() -> None:
    assert [parse_part(f"{i}/3", {}) for i in range(3)] == [(0, 3), (1, 3), (2, 3)]
    assert parse_part("0/1", {}) == (0, 1)


@pytest.mark.parametrize("numbers", [range(8), range(1, 9), range(10, 90, 10)])
def test_slurm_arrays_count_from_anywhere(numbers: range) -> None:
    found = [
        parse_part("auto", array(id, numbers[0], numbers[-1], numbers.step, len(numbers)))
        for id in numbers
    ]
    assert found == [(i, 8) for i in range(8)]


@pytest.mark.parametrize("text", ["", "3", "3/0", "-1/4", "a/b", "1/2/3", "1.5/4", "²/3"])
def test_what_is_no_part_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match='must be "i/n", such as 0/8 for the first of eight'):
        parse_part(text, {})


def test_the_last_of_those_who_count_from_one_is_told() -> None:
    with pytest.raises(
        ConfigError, match=r"part must be in \[0, 8\), got 8: parts count from 0, to 7"
    ):
        parse_part("8/8", {})


def test_arrays_with_gaps_would_leave_shards_undone() -> None:
    with pytest.raises(
        ConfigError,
        match="needs an array without gaps, such as --array=0-7, got 3 tasks from 1 to 7",
    ):
        parse_part("auto", array(3, 1, 7, 1, 3))


def test_no_array_is_said_with_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"not set: SLURM_ARRAY_TASK_ID.*sbatch --array=0-7"):
        parse_part("auto", {"SLURM_JOB_ID": "7"})
