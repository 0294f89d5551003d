"""A batch under construction: the rows of each task, and the arrays that the tasks fill."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastfeed.faults import Failure
from fastfeed.feed.batch.annotations import Annotations
from fastfeed.feed.batch.readahead import ReadAhead
from fastfeed.ops.mix import MixPlan, member_rows
from fastfeed.runtime.thread_pool import CancelToken


@dataclass(frozen=True, slots=True)
class BatchRows:
    """The rows of one batch, and those around it that its first and last mixing group still need.

    Groups begin at multiples of `group` in the epoch, wherever batches and ranks begin: what a
    sample is mixed with does not depend on them. Positions are int64, counted over all ranks.
    """

    first: int  # position of the first row made
    count: int  # rows made
    lead: int  # of these, before the batch
    batch: int
    group: int

    @classmethod
    def around(cls, position: int, batch: int, group: int) -> BatchRows:
        """Rows of a batch that begins at a position, extended to whole groups."""
        first = position - position % group
        last = position + batch
        return cls(first, last + -last % group - first, position - first, batch, group)

    @property
    def positions(self) -> np.ndarray:
        """The positions of the rows that have been made."""
        return np.arange(self.first, self.first + self.count, dtype=np.int64)

    @property
    def batch_slice(self) -> slice:
        """The batch's, among the rows made."""
        return slice(self.lead, self.lead + self.batch)

    def chunks(self, size: int) -> list[tuple[int, int]]:
        """[first, last) of the rows made, in whole groups, about `size` rows each."""
        step = max(self.group, size - size % self.group)
        return [(first, min(first + step, self.count)) for first in range(0, self.count, step)]

    def within(self, first: int, last: int) -> tuple[int, int]:
        """The part of a chunk that is the batch's: [first, last) of the batch's own rows."""
        return max(first - self.lead, 0), min(last - self.lead, self.batch)

    @property
    def members(self) -> np.ndarray:
        """Rows made, per row of the batch: its own, then its group's; int64 (batch, group)."""
        return member_rows(self.positions[self.batch_slice], self.group, self.first)


@dataclass(slots=True)
class RowArrays:
    """Rows to be filled: images, one array per branch, and their boxes and masks."""

    images: list[Any] = field(default_factory=list)
    annotations: Annotations = field(default_factory=Annotations)

    def __getitem__(self, rows: Any) -> RowArrays:
        return RowArrays([images[rows] for images in self.images], self.annotations[rows])


@dataclass(slots=True)
class PendingBatch:
    """One batch under way.

    Arrays have an entry per row made, of which some may lie around the batch.
    """

    epoch: int
    step: int
    number: int  # of the batch, for the timeline
    stop: CancelToken
    ahead: Mapping[str, ReadAhead]  # of images that are read ahead, by name
    rows: BatchRows
    ids: np.ndarray  # changed where samples are replaced
    keys: np.ndarray  # that random numbers are looked up by
    weights: np.ndarray  # 0 where samples are masked
    requested: np.ndarray  # `ids` as the order has them
    is_counted: bool = False  # its samples are in the counts of the quarantine
    out: RowArrays = field(default_factory=RowArrays)  # of the batch's own rows
    draws: list[list[np.ndarray]] = field(default_factory=list)  # random numbers, per branch
    mix_plan: MixPlan | None = None  # of the batch's own rows
    # by id, values by name, where these are read
    columns: dict[int, dict[str, Any]] = field(default_factory=dict)
    # samples at which an unforeseen error was raised
    failed: dict[int, Failure] = field(default_factory=dict)
    # of these, those whose label, columns or Maps did
    unreadable: list[int] = field(default_factory=list)

    @property
    def draw_keys(self) -> np.ndarray:
        """`keys`, but for substitutes their ids: these draw the same numbers in any place."""
        return np.where(self.ids == self.requested, self.keys, self.ids)

    @property
    def readable_ids(self) -> np.ndarray:
        """`ids`, with another sample in place of masked ones whose labels cannot be read."""
        if not self.unreadable:
            return self.ids
        unreadable = np.isin(self.ids, self.unreadable)
        return (
            self.ids
            if unreadable.all()
            else np.where(unreadable, self.ids[~unreadable][0], self.ids)
        )
