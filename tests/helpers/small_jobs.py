"""Jobs of preprocess over a few small pictures, done in this process: a second for all that a test
needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fastfeed.decode.base import DecodeFailure
from fastfeed.preprocess import Encoding, Packing, Recipe, Scaling, run
from fastfeed.preprocess.engines import Outcome
from fastfeed.preprocess.model.task import Task
from fastfeed.preprocess.targets.job_state import Job, open_job
from fastfeed.preprocess.targets.target import open_target
from helpers.photos import broken, folder

FORMATS = ("webdataset", "tfrecord", "parquet", "mds", "raw")
# for tests of what is above the writers; update/test_update_histories.py has all in every run
IN_TURN = [
    pytest.param(name, marks=[] if name in ("webdataset", "parquet") else [pytest.mark.slow])
    for name in FORMATS
]


class InlineEngine:
    """An engine without processes: for photographs that do no harm."""

    workers = 1

    def run(self, task: Task, pieces: Sequence[int]) -> Iterator[Outcome]:
        poison: Mapping[int, DecodeFailure] = {}
        for piece in pieces:
            try:
                summary: dict[str, Any] = task.run(piece, _UnlimitedContext(), poison)
            except OSError as error:
                yield Outcome(piece, error=error)
            else:
                yield Outcome(piece, summary)


class _UnlimitedContext:
    def begin(self, sample: int) -> None:
        pass

    @contextmanager
    def room(self, need: int) -> Iterator[None]:
        yield


def source(
    root: Path, good: int = 9, reasons: Sequence[str] = ("empty", "truncated", "not_image")
) -> Path:
    """`good` pictures in each of two classes, and a broken file for each reason in the first
    one.
    """
    folder(root, {"cats": good, "dogs": good}, (40, 56))
    for k, reason in enumerate(reasons):
        (root / "cats" / f"0000_{k}.jpg").write_bytes(broken(reason))
    return root


def recipe(format: str = "webdataset", samples: int = 6) -> Recipe:
    """Small pictures, in shards of this format."""
    if format == "raw":
        return Recipe(
            Scaling((16, 24), "cover", enlarge=True),
            Encoding("raw"),
            packing=Packing(format, samples),
        )
    return Recipe(Scaling(24), packing=Packing(format, samples))


def finished_job(root: Path, format: str = "webdataset") -> Job:
    """21 photographs, 18 good ones, in four shards: root/source to root/shards."""
    run(str(source(root / "source")), root / "shards", recipe(format), engine=InlineEngine())
    return open_job(open_target(root / "shards", writes=False))
