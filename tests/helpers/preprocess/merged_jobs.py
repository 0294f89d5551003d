"""Small jobs to merge, and what a merged job holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import fastfeed as ff
from fastfeed.preprocess import Recipe, run
from fastfeed.preprocess.targets.job_state import Job, open_job
from fastfeed.preprocess.targets.target import open_target
from fastfeed.sources.base import Source
from helpers.photos import folder
from helpers.small_jobs import InlineEngine, recipe


def built(root: Path, classes: dict[str, int], how: Recipe | None = None, first: int = 0) -> Path:
    """root/photos to root/shards; `first` makes the images differ from those of other jobs."""
    folder(root / "photos", classes, (40 + first, 56))
    run(str(root / "photos"), root / "shards", how or recipe(), engine=InlineEngine())
    return root / "shards"


def job_in(place: Path) -> Job:
    return open_job(open_target(place, writes=False))


def opened(place: Path, format: str) -> Source:
    if format == "webdataset":
        return ff.TarShards(f"{place}/*.tar")
    if format == "tfrecord":
        return ff.TFRecords(f"{place}/*.tfrecord")
    if format == "parquet":
        return ff.Table(str(place), image="image", label="label")
    return ff.MDSShards(str(place)) if format == "mds" else ff.RawShards(str(place))


def content(source: Source) -> list[bytes]:
    blobs = source.read(range(len(source)))
    return [np.asarray(blob).tobytes() for blob in blobs]
