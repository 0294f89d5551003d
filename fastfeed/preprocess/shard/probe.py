"""Images that are processed and not written: bad ones that may be good now, and some of a new job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastfeed.decode.base import DecodeFailure
from fastfeed.faults import Failure
from fastfeed.preprocess.inputs.labels import labels_of
from fastfeed.preprocess.model.record import Entry, ProcessedImage
from fastfeed.preprocess.model.task import TaskContext
from fastfeed.preprocess.shard.build import ShardTask


@dataclass(frozen=True, eq=False)
class ProbeTask:
    """Finds bad images that are good now; pieces are indexes of `parts`."""

    task: ShardTask
    parts: Sequence[Sequence[int]]  # ids

    def run(
        self, piece: int, context: TaskContext, poison: Mapping[int, DecodeFailure]
    ) -> dict[str, Any]:
        """As in Task: the summary has the ids that are good."""
        ids = self.parts[piece]
        task = self.task
        labels = labels_of(task.planned.source, ids)
        rows = zip(ids, labels, task.planned.notes(ids, earlier=True), strict=True)
        known = {i: task.known(i, label, n) for i, label, n in rows if not isinstance(n, Failure)}
        good = []
        with task.images.read([i for i in known if i not in poison], context) as blobs:
            for i, blob, _ in blobs:
                if isinstance(task.images.make(i, blob, context, known[i]), ProcessedImage):
                    good.append(i)
        context.begin(-1)
        return {"samples": len(ids), "good": good}

    def alone(self, sample: int, context: TaskContext) -> None:
        """As in Task."""
        self.task.alone(sample, context)


@dataclass(frozen=True, eq=False)
class ColumnsTask:
    """Calls the function in `Metadata.extras` for a few images, to see which columns it returns."""

    task: ShardTask
    ids: Sequence[int]
    calls_function = True  # on Ray, where it has its GPU

    def run(
        self, piece: int, context: TaskContext, poison: Mapping[int, DecodeFailure]
    ) -> dict[str, Any]:
        """As in Task: the summary has the columns of each sample that is not dropped."""
        task = self.task
        ids = [i for i in self.ids if i not in poison]
        labels = labels_of(task.planned.source, ids)
        rows = zip(ids, labels, task.planned.notes(ids, earlier=True), strict=True)
        known = {i: (label, note) for i, label, note in rows if not isinstance(note, Failure)}
        entries = []
        with task.images.read(list(known), context) as blobs:
            for i, blob, _ in blobs:
                image = task.images.make(i, blob, context)
                if isinstance(image, ProcessedImage):
                    entries.append(task.entry(i, *known[i], image))
        results = task.extend(entries, context, ids[0] if ids else -1)
        context.begin(-1)
        columns = [
            sorted({*entry.meta.get("columns", {}), *entry.arrays})
            for entry in results
            if isinstance(entry, Entry)
        ]
        return {"samples": len(ids), "columns": columns}

    def alone(self, sample: int, context: TaskContext) -> None:
        """As in Task."""
        self.task.alone(sample, context)
