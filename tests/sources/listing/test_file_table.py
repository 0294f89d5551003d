"""FileTable: what is packed comes out again, however it is cut, joined and reordered."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.sources.listing.file_table import FileTable, in_pieces, unpacked
from fastfeed.sources.listing.journal import MemoryJournal
from fastfeed.sources.listing.skipped_files import SkippedFiles
from fastfeed.sources.tables.string_column import StringColumn

texts = st.lists(st.binary(max_size=6), max_size=30)
paths = st.lists(
    st.lists(
        st.sampled_from([b"a", b"a-b", b"a b", b"b", b"a.b", b"\xc3\xa9"]), min_size=1, max_size=4
    ).map(b"/".join),
    max_size=30,
)


def rows(names: list[bytes], full: bool = True) -> FileTable:
    if not full:
        return FileTable(StringColumn.of_bytes(names))
    n = len(names)
    return FileTable(
        StringColumn.of_bytes(names),
        np.arange(n),
        StringColumn.of_bytes([b"v%d" % i for i in range(n)]),
        np.arange(n, dtype=np.int32),
    )


def listed(some: FileTable) -> list[tuple]:
    n = len(some)
    return list(
        zip(
            unpacked(some.paths),
            [None] * n if some.sizes is None else some.sizes.tolist(),
            [None] * n if some.versions is None else unpacked(some.versions),
            [None] * n if some.labels is None else some.labels.tolist(),
            strict=True,
        )
    )


@given(texts, st.lists(st.integers(0, 30), max_size=3))
def test_texts_survive(names, cuts):
    assert list(unpacked(StringColumn.of_bytes(names))) == names
    edges = [0, *sorted(min(cut, len(names)) for cut in cuts), len(names)]
    parts = [StringColumn.of_bytes(names[a:b]) for a, b in pairwise(edges)]
    assert list(unpacked(StringColumn.joined(parts))) == names


@given(texts, st.data(), st.booleans())
def test_cut_join_and_take(names, data, full):
    whole = rows(names, full)
    at = data.draw(st.integers(0, len(names)))
    first, rest = whole.cut(0, at), whole.cut(at, len(names))
    assert listed(FileTable.joined([first, rest])) == listed(whole)
    assert listed(first) + listed(rest) == listed(whole)
    order = np.array(data.draw(st.permutations(range(len(names))))[:at], np.int64)
    assert listed(whole.take(order)) == [listed(whole)[row] for row in order]


@given(st.lists(texts, max_size=6), st.integers(1, 7))
def test_in_pieces(parts, count):
    whole = [name for part in parts for name in part]
    pieces = list(in_pieces(map(rows, parts), count))
    assert [name for piece in pieces for name in unpacked(piece.paths)] == whole
    assert [len(piece) for piece in pieces[:-1]] == [count] * (len(pieces) - 1)
    assert not pieces or 0 < len(pieces[-1]) <= count


@given(paths, st.integers(0, 30))
def test_a_folder_is_handed_out_in_the_order_of_a_walk(names, cut):
    sink = MemoryJournal()
    for part in (names[:cut], names[cut:]):
        sink.add("f", rows(part))
    sink.end("f", SkippedFiles(Counter({".txt": 1})))
    found = [name for part in sink.rows("f") for name in unpacked(part.paths)]
    assert found == sorted(names, key=lambda name: name.split(b"/"))
    assert sink.ends["f"].images == len(names)
    assert sink.ends["f"].skipped.counts == {".txt": 1}


@pytest.mark.parametrize("rows_of", [0, 1, 65536, 65537])
def test_many(rows_of):
    names = [b"%x" % i for i in range(rows_of)]
    assert list(unpacked(StringColumn.of_bytes(names))) == names
    assert listed(rows(names).take(np.arange(rows_of)[::-1])) == listed(rows(names))[::-1]
