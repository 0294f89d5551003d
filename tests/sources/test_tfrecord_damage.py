"""TFRecords that are damaged: what is left of them is served as it was, and the rest is said."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from helpers.records import checksum, example, frame, sample
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.errors import SourceError
from fastfeed.faults import Failure
from fastfeed.sources.tfrecord.source import TFRecords

IMAGES = [bytes([i]) * (20 + 40 * i) for i in range(6)]
TEXTS = [b"ant", b"bee", b"cat", b"ant", b"bee", b"cat"]
FRAMES = [
    frame(example(sample(i, image) | {"image/class/label": text}))
    for i, (image, text) in enumerate(zip(IMAGES, TEXTS, strict=True))
]
WHOLE = b"".join(FRAMES)
STARTS = [0, *itertools.accumulate(map(len, FRAMES))]
ORIGINAL = dict(zip(STARTS, IMAGES, strict=False))


def start(source: TFRecords, i: int) -> int:
    """Where sample i's record begins."""
    return int(source.uri(i).partition("#")[2].partition(":")[0])


def outcomes(data: bytes, path: Path) -> dict[int, str]:
    """Of every record found: "good" or the reason. What is served is what was written."""
    path.write_bytes(data)
    try:
        source = TFRecords(path)
    except SourceError:
        return {}
    assert set(source.classes) <= {"ant", "bee", "cat"}  # damage makes no classes
    found = {}
    for i, blob in enumerate(source.read(range(len(source)))):
        assert isinstance(blob, Failure) or blob == ORIGINAL[start(source, i)]
        found[start(source, i)] = blob.reason if isinstance(blob, Failure) else "good"
    return found


@given(st.integers(0, len(WHOLE)))
def test_cut_off_anywhere(cut):
    whole = [at for at, end in itertools.pairwise(STARTS) if end <= cut]
    begun = [at for at, end in itertools.pairwise(STARTS) if at + 12 <= cut < end]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.tfrecord"
        found = outcomes(WHOLE[:cut], path)
        if whole:
            assert found == dict.fromkeys(whole, "good") | dict.fromkeys(begun, "truncated")
            note = (
                f"{path}: cut off at {cut}: the record at {max(at for at in STARTS if at <= cut)}"
                " is incomplete"
            )
            assert TFRecords(path).notes == ([] if cut in STARTS else [note])
        else:
            assert found == {}


CHANGES = st.lists(
    st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(1, 255)), min_size=1, max_size=4
)


def changed(changes: list[tuple[int, int]]) -> bytes:
    data = bytearray(WHOLE)
    for at, bits in changes:
        data[at] ^= bits
    return bytes(data)


@given(CHANGES)
def test_bits_flipped_before_it_was_indexed(changes):
    data = changed(changes)
    bad = {at for at, end in itertools.pairwise(STARTS) if data[at:end] != WHOLE[at:end]}
    lost = min((at for at in bad if data[at : at + 12] != WHOLE[at : at + 12]), default=len(WHOLE))
    with TemporaryDirectory() as folder:
        found = outcomes(data, Path(folder) / "a.tfrecord")
    good = {at for at, outcome in found.items() if outcome == "good"}
    expected = set(STARTS[:-1]) - bad
    assert good == {at for at in expected if at < lost}
    assert all(found[at] == "corrupt" for at in found if at in bad)


@given(CHANGES)
def test_bits_flipped_after_it_was_indexed(changes):
    data = changed(changes)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.tfrecord"
        path.write_bytes(WHOLE)
        source, before = TFRecords(path), path.stat()
        path.write_bytes(data)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # as a disk does it
        for i, blob in enumerate(source.read(range(6))):
            at, end = STARTS[i] + 12, STARTS[i + 1]
            if data[at:end] == WHOLE[at:end]:
                assert blob == IMAGES[i]
            else:
                assert (blob.reason, blob.offset, blob.uri) == (
                    "corrupt",
                    STARTS[i],
                    f"{path}#{STARTS[i]}:000{i}.jpg",
                )


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=4))
def test_sound_records_of_anything(contents):
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.tfrecord"
        path.write_bytes(b"".join(map(frame, [*contents, example(sample(0))])))
        source = TFRecords(path, label=None)
        assert len(source) == len(contents) + 1
        assert source.read([len(contents)]) == [sample(0)["image/encoded"]]
        assert all(isinstance(blob, Failure) for blob in source.read(range(len(contents))))


def test_a_damaged_length_ends_the_shard(tmp_path):
    data = changed([(STARTS[3] + 2, 1)])
    assert outcomes(data, tmp_path / "a.tfrecord") == dict.fromkeys(STARTS[:3], "good")
    note = (
        f"{tmp_path / 'a.tfrecord'}: damaged length at {STARTS[3]}: nothing after it can be found"
    )
    assert TFRecords(tmp_path).notes == [note]


def test_a_damaged_label_makes_no_class(tmp_path):
    data = changed([(WHOLE.index(b"bee"), 1)])
    assert outcomes(data, tmp_path / "a.tfrecord")[STARTS[1]] == "corrupt"
    source = TFRecords(tmp_path)
    assert source.classes == ("ant", "bee", "cat")
    assert source.label(np.arange(6)).tolist() == [0, -1, 2, 0, 1, 2]
    assert source.notes == [
        f"{tmp_path / 'a.tfrecord'}: no label at {STARTS[1]}: the record's checksum is wrong"
    ]


def listing(rows: list[tuple[int, int]]) -> str:
    """As DALI's tfrecord2idx writes it."""
    return "".join(f"{at} {length}\n" for at, length in rows)


ROWS = [(at, end - at) for at, end in itertools.pairwise(STARTS)]


@pytest.mark.parametrize("name", ["train.idx", "train.tfrecord.idx"])
@pytest.mark.parametrize("broken", [0, 2, 5])
def test_dalis_index_leads_past_a_damaged_length(tmp_path, name, broken):
    path = tmp_path / "train.tfrecord"
    path.write_bytes(changed([(STARTS[broken] + 3, 255)]))
    (tmp_path / name).write_text(listing(ROWS))
    source = TFRecords(path)
    assert source.read(range(6)) == IMAGES  # each record's own checksum is right
    assert source.notes == [
        f"{path}: damaged length at {STARTS[broken]}: the .idx file says where the record ends"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0 5\n",
        listing(ROWS[:-1]),
        listing(ROWS[1:]),
        listing([*ROWS[:2], *ROWS[3:]]),
        listing(ROWS)[:-2],
        listing(ROWS) + "x",
        "v1.2 6\n",
        "0 " + "9" * 50 + "\n",
        listing([(0, 8), (8, len(WHOLE) - 8)]),
        f"0 0\n0 {len(WHOLE)}\n",
    ],
)
def test_an_index_that_does_not_fit_is_not_used(tmp_path, text):
    path = tmp_path / "train.tfrecord"
    data = changed([(STARTS[2] + 3, 255)])
    path.write_bytes(data)
    (tmp_path / "train.idx").write_text(text)
    source = TFRecords(path)
    assert len(source) == 2
    assert source.notes == [
        f"{path}: train.idx is not used: it does not list the shard's records",
        f"{path}: damaged length at {STARTS[2]}: nothing after it can be found",
    ]


def test_an_index_older_than_its_shard_is_not_used(tmp_path):
    path = tmp_path / "train.tfrecord"
    (tmp_path / "train.idx").write_text(listing(ROWS))
    path.write_bytes(changed([(STARTS[2] + 3, 255)]))
    os.utime(tmp_path / "train.idx", ns=(0, path.stat().st_mtime_ns - 1))
    assert TFRecords(path).notes[0] == f"{path}: train.idx is not used: older than the shard"


def test_wrong_rows_of_an_index_serve_nothing_wrong(tmp_path):
    path = tmp_path / "train.tfrecord"
    path.write_bytes(changed([(STARTS[2] + 3, 255)]))
    rows = [*ROWS[:2], (STARTS[2], 50), (STARTS[2] + 50, STARTS[4] - STARTS[2] - 50), *ROWS[4:]]
    (tmp_path / "train.idx").write_text(listing(rows))
    source = TFRecords(path)
    assert source.read([0, 1]) == IMAGES[:2]
    assert all(
        isinstance(blob, Failure) or blob == ORIGINAL.get(start(source, i))
        for i, blob in enumerate(source.read(range(len(source))))
    )


def test_an_index_is_not_asked_for_where_nothing_is_damaged(tmp_path):
    (tmp_path / "train.tfrecord").write_bytes(WHOLE)
    (tmp_path / "train.idx").write_text("nonsense")
    assert TFRecords(tmp_path).notes == []


def test_the_checksum_is_tensorflows():
    assert checksum(b"123456789") == (
        (0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8 & 0xFFFFFFFF
    ).to_bytes(4, "little")
