"""Rows of a batch in whole groups, wherever it begins."""

from __future__ import annotations

import numpy as np
import pytest

from fastfeed.feed.batch.pending_batch import BatchRows


@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize("batch", [1, 2, 5, 8])
@pytest.mark.parametrize("position", [0, 1, 6, 7, 1003])
@pytest.mark.parametrize("size", [1, 3, 8, 100])
def test_chunks_hold_whole_groups_and_all_rows(position, batch, group, size):
    rows = BatchRows.around(position, batch, group)
    assert rows.positions[rows.batch_slice].tolist() == list(range(position, position + batch))
    assert rows.first % group == 0 and rows.count % group == 0 and rows.count < batch + 2 * group
    chunks = rows.chunks(size)
    assert [first for first, _ in chunks] == [0, *(last for _, last in chunks[:-1])] and chunks[-1][
        1
    ] == rows.count
    own: list[int] = []
    for first, last in chunks:
        assert first % group == 0 and 0 < last - first <= max(group, size)
        begin, end = rows.within(first, last)
        own += range(begin, end)
        members = rows.members[begin:end]
        assert members.size == 0 or (members.min() >= first and members.max() < last)
    assert own == list(range(batch))


def test_members_are_the_group_own_first():
    rows = BatchRows.around(6, 3, 4)
    assert rows.positions.tolist() == [4, 5, 6, 7, 8, 9, 10, 11]
    assert rows.positions[rows.members].tolist() == [[6, 7, 4, 5], [7, 4, 5, 6], [8, 9, 10, 11]]
    assert np.array_equal(BatchRows.around(6, 3, 1).members, [[0], [1], [2]])
