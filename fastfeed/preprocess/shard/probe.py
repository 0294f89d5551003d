"""Images that are processed and not written: bad ones that may be good now, and some of a new job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastfeed.decode.base import DecodeFailure
from fastfeed.faults import Failure
from fastfeed.preprocess.inputs.plan_ids import read_labels
from fastfeed.preprocess.model.condition import UNKNOWN
from fastfeed.preprocess.model.record import Entry, Label, ProcessedImage
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
        good = [i for i, *_ in _made(self.task, ids, context, poison)]
        context.begin(-1)
        return {"samples": len(ids), "good": good}

    def alone(self, sample: int, context: TaskContext) -> None:
        """Run one sample and discard the result, as in Task."""
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
        made = _made(task, self.ids, context, poison, keeps_all=True)
        entries = [task.entry(i, label, note, image) for i, label, note, image in made]
        results = task.extend(entries, context, self.ids[0])
        context.begin(-1)
        columns = [
            sorted({*entry.meta.get("columns", {}), *entry.arrays})
            for entry in results
            if isinstance(entry, Entry)
        ]
        return {"samples": len(self.ids), "columns": columns}

    def alone(self, sample: int, context: TaskContext) -> None:
        """Run one sample and discard the result, as in Task."""
        self.task.alone(sample, context)


def _made(
    task: ShardTask,
    ids: Sequence[int],
    context: TaskContext,
    poison: Mapping[int, DecodeFailure],
    keeps_all: bool = False,
) -> Iterator[tuple[int, Label, dict[str, Any], ProcessedImage]]:
    """Id, label, note and image of the samples that are good.

    keeps_all: whatever `Limits.where` drops.
    """
    labels = read_labels(task.planned.source, ids)
    rows = zip(ids, labels, task.planned.notes(ids, earlier=True), strict=True)
    known = {
        i: (label, note)
        for i, label, note in rows
        if i not in poison and not isinstance(note, Failure)
    }
    with task.images.read(list(known), context) as blobs:
        for i, blob, _ in blobs:
            values = UNKNOWN if keeps_all else task.known(i, *known[i])
            image = task.images.make(i, blob, context, values)
            if isinstance(image, ProcessedImage):
                yield i, *known[i], image
