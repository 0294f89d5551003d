"""Bad images of a job, read and processed again to see which of them are good now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastfeed.decode.base import DecodeFailure
from fastfeed.faults import Failure
from fastfeed.preprocess.inputs.labels import labels_of
from fastfeed.preprocess.model.record import ProcessedImage
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
        rows = zip(ids, labels, task.planned.notes(ids), strict=True)
        known = {i: task.known(i, label, n) for i, label, n in rows if not isinstance(n, Failure)}
        good = []
        with task.read_samples([i for i in known if i not in poison], context) as blobs:
            for i, blob, _ in blobs:
                if isinstance(task.make(i, blob, context, known[i]), ProcessedImage):
                    good.append(i)
        context.begin(-1)
        return {"samples": len(ids), "good": good}

    def alone(self, sample: int, context: TaskContext) -> None:
        """As in Task."""
        self.task.alone(sample, context)
