"""The list of bad samples: shared, torn, reloaded, and files that are something else."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from conftest import environment
from helpers.failures import failure, listed, quarantine

from fastfeed.errors import ConfigError
from fastfeed.faults import Failure

# -- the list


def test_file_holds_each_once_with_where_it_was_met(tmp_path):
    path = tmp_path / "bad.jsonl"
    q = quarantine(path, rank=3)
    q.record_bad([failure(4, detail="half of it")], 1, 7)
    q.record_bad([failure(4), failure(9, "empty", offset=512)], 2, 0)
    q.record_bad([failure(9, "empty")], 3, 0)
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {
            "id": 4,
            "uri": "photos/4.jpg",
            "stage": "decode",
            "reason": "truncated",
            "detail": "half of it",
        }
        | {"offset": None, "rank": 3, "epoch": 1, "step": 7},
        {"id": 9, "uri": "photos/9.jpg", "stage": "decode", "reason": "empty", "detail": ""}
        | {"offset": 512, "rank": 3, "epoch": 2, "step": 0},
    ]
    assert [f.id for f in q.failures] == [4, 9]
    assert q.reasons() == {"truncated": 1, "empty": 1}


def test_equally_frequent_reasons_are_named_in_the_same_order_whenever_they_were_met(caplog):
    """Threads meet them in any order, and so do the shuffled shards of a job."""
    for reasons in (("truncated", "empty"), ("empty", "truncated")):
        q = quarantine()
        q.record_bad([failure(i, reason) for i, reason in enumerate(reasons)], 0, 0)
        q.tell()
        assert "have been bad so far (1 empty, 1 truncated)" in caplog.messages[-1]


def test_the_same_sample_twice_in_one_batch_is_listed_once(tmp_path):
    """tail="pad" repeats samples, and a small source meets its substitutes again."""
    q = quarantine(tmp_path / "bad.jsonl")
    q.record_bad([failure(4), failure(4)], 0, 0)
    assert listed(tmp_path / "bad.jsonl") == [4]


def test_known_are_those_found_and_those_listed(tmp_path):
    path = tmp_path / "bad.jsonl"
    quarantine(path).record_bad([failure(4)], 0, 0)
    q = quarantine(path)
    assert q.failures == [], "what an earlier run found is not this run's"
    q.record_bad([failure(6)], 0, 0)
    assert q.known_bad(np.arange(8)).tolist() == [
        False,
        False,
        False,
        False,
        True,
        False,
        True,
        False,
    ]
    assert q.known_bad(np.array([4, 4, 0])).tolist() == [True, True, False]
    q.record_bad([failure(4)], 0, 0)
    assert listed(path) == [4, 6]


@pytest.mark.parametrize("reason", ["io_error", "timeout"])
def test_what_may_pass_is_tried_again(tmp_path, reason):
    path = tmp_path / "bad.jsonl"
    q = quarantine(path)
    q.record_bad([failure(1, reason)], 0, 0)
    q.record_bad([failure(1, reason)], 1, 0)
    assert listed(path) == [1]
    assert not q.known_bad(np.array([1])).any()
    assert not quarantine(path).known_bad(np.array([1])).any()


@pytest.mark.parametrize(
    "change",
    [{"uri": lambda i: f"other/{i}.jpg"}, {"length": 4}],
    ids=["other folder", "fewer samples"],
)
def test_a_list_of_other_data_bans_nothing(tmp_path, change):
    quarantine(tmp_path / "bad.jsonl").record_bad([failure(4)], 0, 0)
    assert not quarantine(tmp_path / "bad.jsonl", **change).known_bad(np.array([4])).any()


def test_names_that_are_not_utf8(tmp_path):
    def uri(i: int) -> str:
        return b"photos/\xff\xe9.jpg".decode("utf-8", "surrogateescape")

    path = tmp_path / "bad.jsonl"
    quarantine(path, uri=uri).record_bad([Failure(0, uri(0), "decode", "empty")], 0, 0)
    assert quarantine(path, uri=uri).known_bad(np.array([0])).all()


def test_two_ranks_share_a_file(tmp_path):
    path = tmp_path / "bad.jsonl"
    a, b = quarantine(path, rank=0), quarantine(path, rank=1)
    a.record_bad([failure(1), failure(2)], 0, 0)
    b.record_bad([failure(2), failure(3)], 0, 0)
    a.record_bad([failure(3), failure(4)], 0, 0)
    assert listed(path) == [1, 2, 3, 4]


SHARING = """
import sys
from fastfeed.faults import Failure, FaultPolicy
from fastfeed.feed.faults.quarantine import Quarantine
path, rank = sys.argv[1], int(sys.argv[2])
q = Quarantine(path, policy=FaultPolicy(max_share=1, max_run=10**9), length=400, rank=rank)
for i in range(400):
    id = i if rank == 0 else 399 - i
    q.record_bad([Failure(id, str(id), "read", "empty", "x" * (id % 97))], 0, i)
    if i == 0:  # each has a line in the file, however long the other waits for a core
        print("ready", flush=True)
        sys.stdin.readline()
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
    quarantine(path).record_bad([failure(1), failure(2)], 0, 0)
    path.write_bytes(path.read_bytes()[:-10])
    q = quarantine(path)
    assert q.known_bad(np.arange(4)).tolist() == [False, True, False, False]
    q.record_bad([failure(3)], 0, 0)
    assert listed(path) == [1, 3]


@pytest.mark.parametrize("cut", range(1, 140, 7))
def test_wherever_it_is_torn(tmp_path, cut):
    path = tmp_path / "bad.jsonl"
    quarantine(path).record_bad([failure(1), failure(2)], 0, 0)
    path.write_bytes(path.read_bytes()[:-cut])
    quarantine(path).record_bad([failure(3), failure(2), failure(1)], 0, 0)
    assert sorted(listed(path)) == [1, 2, 3]
    assert quarantine(path).known_bad(np.arange(4)).tolist() == [False, True, True, True]


def test_a_file_without_its_last_newline(tmp_path):
    """As editors leave it: the last line is whole, and the next one must not be glued to it."""
    path = tmp_path / "bad.jsonl"
    quarantine(path).record_bad([failure(1)], 0, 0)
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    q = quarantine(path)
    assert q.known_bad(np.array([1])).all()
    q.record_bad([failure(2)], 0, 0)
    assert listed(path) == [1, 2]


def test_blank_lines_are_nothing(tmp_path):
    path = tmp_path / "bad.jsonl"
    quarantine(path).record_bad([failure(1)], 0, 0)
    path.write_bytes(b"\n" + path.read_bytes() + b"\n\n")
    quarantine(path).record_bad([failure(1), failure(2)], 0, 0)
    assert quarantine(path).known_bad(np.arange(3)).tolist() == [False, True, True]


def test_an_empty_file_is_an_empty_list(tmp_path):
    (tmp_path / "bad.jsonl").touch()
    quarantine(tmp_path / "bad.jsonl").record_bad([failure(1)], 0, 0)
    assert listed(tmp_path / "bad.jsonl") == [1]


@pytest.mark.parametrize("edit", ["delete", "empty"])
def test_a_file_that_is_cleared_during_the_run_starts_again(tmp_path, edit):
    path = tmp_path / "bad.jsonl"
    q = quarantine(path)
    q.record_bad([failure(1), failure(2)], 0, 0)
    path.unlink() if edit == "delete" else path.write_bytes(b"")
    q.record_bad([failure(3)], 0, 0)
    assert listed(path) == [3]


@pytest.mark.parametrize(
    "content",
    [b"id,uri,reason\n1,a,empty\n", b'{"id": 1}\n', b'[1, "a", "empty"]\n', b"\x89PNG\r\n\x1a\n"],
    ids=repr,
)
def test_refuses_other_files_and_leaves_them_alone(tmp_path, content):
    path = tmp_path / "labels.csv"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as error:
        quarantine(path)
    line = content.splitlines(keepends=True)[0]
    assert (
        str(error.value)
        == f"{path} is not a quarantine file: cannot read line {line!r}; pass another path"
    )
    assert path.read_bytes() == content


@pytest.mark.parametrize("content", [b"important notes", b'{"id": 1'])
def test_refuses_a_lone_line_that_is_no_torn_entry(tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    torn_entry = content.startswith(b'{"id"')
    if torn_entry:
        quarantine(path).record_bad([failure(1)], 0, 0)
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
        str(error.value) == f"quarantine: {tmp_path} is a folder; pass a file, such as"
        f" {tmp_path / 'quarantine.jsonl'}"
    )
