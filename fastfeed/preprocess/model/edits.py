"""Changes of samples that a job has built: removed, labeled otherwise, or built again elsewhere.

They are data of the plan. Equal edits make equal shards, in whichever order they were asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fastfeed.preprocess.model.recipe import digest
from fastfeed.preprocess.model.record import ShardRecord

UNCHANGED = -4
REPAIRED = -3  # a bad image that is in a later shard, under another id
REMOVED = -2
NO_LABEL = -1


@dataclass(frozen=True, slots=True, eq=False)
class Edits:
    """Edits of samples, in order of their ids."""

    ids: np.ndarray  # int64, shape (n,): in the plan, ascending
    # int64, shape (n,): a label, or the value of several classes, NO_LABEL, REMOVED or REPAIRED
    values: np.ndarray

    @classmethod
    def of(cls, table: np.ndarray) -> Edits:
        """The edits of `table`: int64, shape (2, n). ValueError."""
        edits = cls(*table) if table.dtype == np.int64 and len(table) == 2 else None
        if edits is None or table.ndim != 2 or (np.diff(table[0]) <= 0).any():
            raise ValueError("its edits must be ids in ascending order, with values")
        if len(edits) and (table[0][0] < 0 or table[1].min() <= UNCHANGED):
            raise ValueError("its edits have an id or a value that does not exist")
        return edits

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def table(self) -> np.ndarray:
        """Ids and values: int64, shape (2, n)."""
        return np.stack([self.ids, self.values])

    @property
    def hash(self) -> str:
        """Hash over the ids and values."""
        return digest(self.table.tolist())

    @property
    def gone(self) -> np.ndarray:
        """Ids of samples that are in their shards no longer: int64."""
        return self.ids[np.isin(self.values, (REMOVED, REPAIRED))]

    @property
    def by_id(self) -> dict[int, int]:
        """Values of the edits by sample id."""
        return dict(zip(self.ids.tolist(), self.values.tolist(), strict=True))

    def with_value(self, value: int) -> np.ndarray:
        """Ids that have this value: int64."""
        return self.ids[self.values == value]

    def at(self, ids: np.ndarray) -> np.ndarray:
        """The value of each of these ids, or UNCHANGED: int64, shape (len(ids),)."""
        values = np.full(len(ids), UNCHANGED, np.int64)
        if len(self):
            place = np.minimum(np.searchsorted(self.ids, ids), len(self) - 1)
            values = np.where(self.ids[place] == ids, self.values[place], UNCHANGED)
        return values

    def labels(self, ids: np.ndarray, of_source: np.ndarray) -> np.ndarray:
        """Labels of these ids, which the source has as `of_source`: int64, same shape."""
        values = self.at(ids)
        return np.where(values == UNCHANGED, of_source, values)

    def among(self, ids: np.ndarray) -> Edits:
        """The edits of these ids."""
        ids = np.sort(ids)
        values = self.at(ids)
        is_edited = values != UNCHANGED
        return Edits(ids[is_edited], values[is_edited])

    def are_older(self, record: ShardRecord, planned: np.ndarray) -> bool:
        """True if samples of a record have these labels, and at most some of them have gone.

        planned: all ids of the shard.
        """
        gone = self.among(np.array(record.ids, np.int64)).gone
        before = self.among(np.setdiff1d(planned, gone))
        return record.plan == f"{record.base}.{before.hash}"

    def merged(self, ids: np.ndarray, values: np.ndarray) -> Edits:
        """These edits and later ones; what is gone stays gone. Of equal ids the last one counts."""
        ids = ids[::-1]
        values = values[::-1]
        is_free = ~np.isin(ids, self.gone)
        ids, first = np.unique(ids[is_free], return_index=True)
        values = values[is_free][first]
        is_kept = ~np.isin(self.ids, ids)
        ids = np.concatenate([self.ids[is_kept], ids])
        order = np.argsort(ids)
        return Edits(ids[order], np.concatenate([self.values[is_kept], values])[order])

    def hashes(self, order: np.ndarray, bounds: list[int]) -> dict[int, str]:
        """Hash of the edits of each shard that has any.

        Shard k holds the ids `order[bounds[k]:bounds[k + 1]]`.
        """
        if not len(self):
            return {}
        place = np.full(int(max(order.max(initial=0), self.ids.max())) + 1, -1, np.int64)
        place[order] = np.arange(len(order))
        shards = np.searchsorted(bounds, place[self.ids], side="right") - 1
        table = self.table[:, shards >= 0]
        shards = shards[shards >= 0]
        by_shard = np.argsort(shards, kind="stable")
        table = table[:, by_shard]
        shards = shards[by_shard]
        starts = [*np.flatnonzero(np.diff(shards, prepend=-1)).tolist(), len(shards)]
        return {
            int(shards[first]): digest(table[:, first:last].tolist())
            for first, last in pairwise(starts)
        }


def hash_classes(classes: tuple[int, ...]) -> int:
    """The value of an edit that gives a sample these classes: a hash of 60 bits, or NO_LABEL."""
    return int(digest(list(classes))[:15], 16) if classes else NO_LABEL


NO_EDITS = Edits(np.zeros(0, np.int64), np.zeros(0, np.int64))
