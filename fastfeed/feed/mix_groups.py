"""Which rows a task makes, where ops put neighbors of the epoch's order together: whole groups, always."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastfeed.ops.mix import member_rows

__all__ = ["BatchRows"]


@dataclass(frozen=True, slots=True)
class BatchRows:
    """The rows of one batch, and those around it that its first and last group still need.

    Groups begin at multiples of `group` in the epoch's order, wherever batches and ranks begin: what a sample is mixed
    with does not depend on them. Positions are int64, counted over all ranks.
    """

    first: int  # position of the first row made
    count: int  # rows made
    lead: int  # of these, before the batch
    batch: int
    group: int

    @classmethod
    def around(cls, position: int, batch: int, group: int) -> BatchRows:
        """For a batch that begins at a position."""
        first = position - position % group
        last = position + batch
        return cls(first, last + -last % group - first, position - first, batch, group)

    @property
    def positions(self) -> np.ndarray:
        """Of the rows made."""
        return np.arange(self.first, self.first + self.count, dtype=np.int64)

    @property
    def own(self) -> slice:
        """The batch's, among the rows made."""
        return slice(self.lead, self.lead + self.batch)

    def chunks(self, most: int) -> list[tuple[int, int]]:
        """[first, last) of the rows made, whole groups each, about `most` in one."""
        step = max(self.group, most - most % self.group)
        return [(first, min(first + step, self.count)) for first in range(0, self.count, step)]

    def within(self, first: int, last: int) -> tuple[int, int]:
        """The part of a chunk that is the batch's: [first, last) of the batch's own rows."""
        return max(first - self.lead, 0), min(last - self.lead, self.batch)

    @property
    def members(self) -> np.ndarray:
        """Rows made, per row of the batch: its own, then the others of its group in turn. int64 (batch, group)."""
        return member_rows(self.positions[self.own], self.group, self.first)
