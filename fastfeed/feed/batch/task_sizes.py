"""Rows of a batch per task, number of Python threads, and bytes that they may hold."""

from __future__ import annotations

from dataclasses import dataclass

# of a task of native threads that are mixed afterwards: as bytes they need separate memory
_ROWS_MIXED = 64
_READ_BYTES = 32 << 20  # encoded bytes that a task holds before it decodes them
_READ_BYTES_THREAD = 8 << 20  # the same, of a task of native threads, per thread
# where one task makes a whole batch, for a GPU that wants many images at once
_READ_BYTES_WHOLE = 512 << 20


@dataclass(frozen=True, slots=True)
class TaskSizes:
    """Sizes of tasks: a task is the work of one Python thread without a break."""

    rows: int  # samples
    threads: int  # Python threads
    max_bytes: int  # of encoded samples that a task holds

    @classmethod
    def of(cls, batch: int, group: int, threads: int, native: bool, lanes: int = 0) -> TaskSizes:
        """Sizes for batches whose samples are mixed in groups of `group`; 1 if they are not mixed.

        lanes: whole batches that a GPU makes at once; 0 where threads share a batch.
        """
        # groups at the batch's edges are made completely
        most = batch + (2 * group if group > 1 else 0)
        if native and lanes:
            return cls(most, lanes + 1, _READ_BYTES_WHOLE)  # one reads meanwhile
        # tasks wait for native threads most of the time; these want the next task before one has
        # ended
        if native:
            rows = most if group == 1 else min(most, _ROWS_MIXED)
            return cls(
                rows, 2 + -(-4 * threads // rows), max(_READ_BYTES, _READ_BYTES_THREAD * threads)
            )
        return cls(most, threads, _READ_BYTES_WHOLE)
