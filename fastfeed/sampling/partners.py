"""Rows of a batch in which neighbors, which an op mixes, are different samples."""

from __future__ import annotations

from itertools import chain, combinations

import numpy as np

from fastfeed.sampling.permute import Key, permute


def apart(ids: np.ndarray, group: int, lead: int, key: Key) -> np.ndarray:
    """An order of rows in which no group holds a sample twice: int64 (n,).

    Shuffled rows stay where they are but for one of each pair of equal samples in a group, which
    changes places with the next row that fits in the permutation of `key`, from the last one on. If
    none fits, samples are dealt to the groups in turn, which succeeds if there are as many groups
    as the most frequent sample has rows.

    ids: of the samples, in shuffled rows. Groups are `group` rows long, the first one begins at row
    `lead`; rows before and after whole groups have no partners here.
    """
    rows = np.arange(len(ids))
    groups = max(len(ids) - lead, 0) // group
    end = lead + groups * group
    columns = ids[lead:end].reshape(groups, group).T
    clashes = [one == other for one, other in combinations(columns, 2)]
    clashing = np.flatnonzero(np.any(clashes, axis=0))
    if not len(clashing):
        return rows
    _, counts = np.unique(ids[lead:end], return_counts=True)
    if counts.max() > groups + len(ids) - (end - lead):  # no exchange of rows can succeed
        return _dealt(ids, groups, lead, end)
    held = ids.tolist()
    candidates = permute(rows, len(rows), key).tolist()

    def partners(row: int) -> set[int]:
        if not lead <= row < end:
            return set()
        first = row - (row - lead) % group
        return {held[other] for other in range(first, first + group) if other != row}

    def fits(row: int, other: int) -> bool:
        """True if the two may change places."""
        return held[other] not in partners(row) and held[row] not in partners(other)

    turn = 0
    for row in (lead + clashing[:, None] * group + np.arange(group)).reshape(-1).tolist():
        if held[row] not in partners(row):
            continue
        turns = chain(range(turn, len(rows)), range(turn))
        found = next((i for i in turns if fits(row, candidates[i])), None)
        if found is None:
            return _dealt(ids, groups, lead, end)
        turn = found
        other = candidates[found]
        rows[[row, other]] = rows[[other, row]]
        held[row], held[other] = held[other], held[row]
    return rows


def _dealt(ids: np.ndarray, groups: int, lead: int, end: int) -> np.ndarray:
    """Rows whose samples in [lead, end) are dealt to the groups in turn, equal ones in a row."""
    rows = np.arange(len(ids))
    order = np.argsort(ids[lead:end], kind="stable")
    rows[lead:end] = lead + order.reshape(-1, groups).T.reshape(-1)
    return rows
