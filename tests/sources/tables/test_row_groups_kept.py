"""Row groups of Parquet that samples in flight need: read once where there is memory for them,
bounded where not.
"""

from __future__ import annotations

import gc
import re
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from helpers.photos import jpeg
from helpers.remotes import uploaded
from helpers.tables import Reads, image_bytes

from fastfeed.feed.feed import Feed
from fastfeed.ops import Resize
from fastfeed.sampling import Blocks
from fastfeed.sources import Objects, Table
from fastfeed.sources.tables.row_group_images import RowGroups, open_at_once, touched

BLOBS = [bytes([i]) * 1000 for i in range(20)]
# so many that memory for 14 of them leaves no doubt that they are read over and over
GROUPS, ROWS = (80, 6)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    count = GROUPS * ROWS
    blobs = [jpeg(i % 10, (32, 32)) for i in range(count)]
    return image_bytes(
        tmp_path_factory.mktemp("t") / "t.parquet", blobs, ROWS, label=list(range(count))
    )


def units(reads: Reads) -> Counter[int]:
    """How often each row group was read, by where it begins."""
    counts = Counter(start for _, start, _ in reads.seen)
    reads.take()
    return counts


def each(source: Table) -> int:
    return int(source._arrays["unit_unpacked"].mean())


def advice(photos: Path, memory: int, batch: int) -> tuple[str, Blocks]:
    """What the warning says to a feed that reads row groups over and over."""
    source = Table(photos, image="image", label="label", memory=memory)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with Feed(source, [Resize((8, 8))], batch=batch, threads=2, prefetch=2) as feed:
            for epoch in range(8):
                for _ in feed.batches(epoch):
                    pass
    (text,) = [str(w.message) for w in caught if "row groups were read" in str(w.message)]
    found = re.search(r"Blocks\(window=(\d+), lanes=(\d+)\)", text)
    assert found is not None, text
    return text, Blocks(window=int(found[1]), lanes=int(found[2]))


@pytest.mark.parametrize(
    "kept", [3, *(pytest.param(kept, marks=pytest.mark.slow) for kept in (6, 9, 14))]
)
def test_what_the_advice_says_reads_each_row_group_once(
    photos: Path, kept: int, monkeypatch
) -> None:
    memory = (kept + 1) * each(Table(photos, image="image")) - 1
    text, order = advice(photos, memory, batch=6)
    if named := re.search(r"and memory=(\d+) to Table", text):
        memory = int(named[1]) + each(Table(photos, image="image"))
    source = Table(photos, image="image", label="label", memory=memory)
    reads = Reads(monkeypatch)
    with Feed(
        source, [Resize((8, 8))], batch=6, shuffle=order, threads=2, prefetch=2, seed=3
    ) as feed:
        seen = np.concatenate([batch.labels for batch in feed.batches(0)])
        assert sorted(seen.tolist()) == list(range(GROUPS * ROWS))
        counts = units(reads)
        assert len(counts) == GROUPS and set(counts.values()) == {1}, text
        for _ in range(3):  # each epoch, with what is read ahead of the next
            assert len(list(feed)) == GROUPS
        assert max(units(reads).values()) <= 4


def test_two_open_row_groups_and_the_memory_of_the_batches_in_flight(
    photos: Path, monkeypatch
) -> None:
    """A batch of 6 and prefetch=2: 24 images are under way, in two windows and at the ends of a
    third.
    """
    assert touched(2, 24, ROWS) == 6
    source = Table(
        photos, image="image", label="label", memory=7 * each(Table(photos, image="image"))
    )
    reads = Reads(monkeypatch)
    with Feed(
        source, [Resize((8, 8))], batch=6, shuffle=Blocks(window=2, lanes=1), threads=2, prefetch=2
    ) as feed:
        list(feed.batches(0))
    assert set(units(reads).values()) == {1}


def test_the_advice_counts_what_is_under_way() -> None:
    assert [open_at_once(kept, 24, 6) for kept in (4, 5, 6, 12, 40)] == [0, 1, 2, 6, 20]
    assert [open_at_once(kept, 1, 6) for kept in (1, 2, 8)] == [0, 1, 4]


def test_memory_for_less_than_one_is_said_with_a_number(photos: Path) -> None:
    size = each(Table(photos, image="image"))
    text, order = advice(photos, 2 * size, batch=6)
    assert order == Blocks(window=1, lanes=1)
    assert (
        f"and memory={touched(1, 24, ROWS) * size} to Table, or make batch or prefetch smaller"
        in text
    )
    assert "24 images are under way" in text


def test_a_batch_is_read_row_group_by_row_group(photos: Path, monkeypatch) -> None:
    """In any order, and with memory for one."""
    source = Table(photos, image="image", label="label", memory=1)
    reads = Reads(monkeypatch)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for wrapped in (
            source,
            Objects(source, boxes=[[]] * len(source), labels=[[]] * len(source), most=1),
        ):
            with Feed(wrapped, [Resize((8, 8))], batch=80, threads=1, prefetch=0, seed=1) as feed:
                for batch in feed.batches(0):
                    assert batch.labels.tolist() == batch.ids.tolist()
                    assert set(units(reads).values()) == {1}


def small(tmp_path: Path) -> Table:
    """Four row groups, memory for two."""
    return Table(image_bytes(tmp_path / "t.parquet", BLOBS, 5), image="image", memory=11_000)


def test_row_groups_that_are_needed_are_kept(tmp_path: Path, monkeypatch) -> None:
    source, reads = small(tmp_path), Reads(monkeypatch)
    held = source.hold(np.array([0, 1]))
    assert held is not None and held[0].result() == BLOBS[0]
    for i in (5, 10, 15):
        assert source.read([i]) == [BLOBS[i]]
    reads.take()
    assert held[1].result() == BLOBS[1] and reads.take() == 0
    assert source.read([5, 10]) == [BLOBS[5], BLOBS[10]]
    reads.take()
    assert source.read([2]) == [BLOBS[2]] and reads.take() == 1, "nothing needs it any more"


@pytest.mark.parametrize("let_go", ["cancel", "forget"])
def test_what_is_not_taken_is_not_kept(tmp_path: Path, monkeypatch, let_go: str) -> None:
    source, reads = small(tmp_path), Reads(monkeypatch)
    held = source.hold(np.array([0, 1]))
    assert held is not None and held[0].result() == BLOBS[0]
    if let_go == "cancel":
        held[1].cancel()
    del held
    gc.collect()
    for i in (5, 10):
        source.read([i])
    reads.take()
    assert source.read([2]) == [BLOBS[2]] and reads.take() == 1


def test_more_than_memory_holds_is_read_again(tmp_path: Path) -> None:
    source = small(tmp_path)
    held = source.hold(np.arange(20)[::-1])
    assert held is not None
    groups = source._groups
    assert groups is not None
    for i, pending in zip(range(19, -1, -1), held, strict=True):
        assert pending.result() == BLOBS[i]
        assert groups._cached_bytes <= 11_000
    assert not groups._requested


def test_a_remote_row_group_is_kept_from_request_to_take(tmp_path: Path, monkeypatch) -> None:
    root = uploaded(image_bytes(tmp_path / "t" / "t.parquet", BLOBS, 5).parent)
    begun: list[int] = []
    begin = RowGroups._begin
    monkeypatch.setattr(
        RowGroups, "_begin", lambda self, unit: begun.append(unit) or begin(self, unit)
    )
    source = Table(f"{root}/t.parquet", image="image", memory=11_000)
    assert source.read([0]) == [BLOBS[0]]
    (pending,) = source.fetch([1])
    for i in (5, 10, 15):
        assert source.read([i]) == [BLOBS[i]]
    assert pending.result() == BLOBS[1]
    assert begun == [0, 1, 2, 3]
