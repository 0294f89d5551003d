"""Samples of a shard, read back from it, for a contact sheet."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from fastfeed.contact_sheet import Cell
from fastfeed.errors import SourceError
from fastfeed.faults import Failure
from fastfeed.preprocess.inputs.formats import ColumnNames, open_shards
from fastfeed.preprocess.inputs.labels import label_names, labels_of
from fastfeed.preprocess.inputs.previous_job import KINDS, NAMES, image_names
from fastfeed.preprocess.model.layout import SUFFIXES
from fastfeed.preprocess.model.record import Record
from fastfeed.preprocess.targets.job_state import Job
from fastfeed.preprocess.targets.ranges import location_of
from fastfeed.sources.base import Source


def draw_cells(job: Job, record: Record, count: int, side: int) -> list[Cell]:
    """The first samples of a shard, at most `side` pixels per side, read back from it."""
    ids = record.ids[:count]
    if not ids:
        return []
    try:
        # for the index, not in the target
        with tempfile.TemporaryDirectory(prefix="fastfeed-preview-") as scratch:
            source = open_shard(job, record, os.path.join(scratch, "shard.ffindex"))
            positions = np.arange(min(len(ids), len(source)))
            samples = source.read([int(position) for position in positions])
            labels = labels_of(source, positions)
    except (SourceError, ValueError) as error:
        return [Cell(None, str(error))]
    classes = job.plan.classes
    class_names = [", ".join(label_names(label, classes)) for label in labels]
    return [
        Cell(*_thumbnail(sample, side, f"{name}  #{id}".strip()))
        for sample, name, id in zip(samples, class_names, ids, strict=False)
    ]


def _thumbnail(sample: Any, side: int, title: str) -> tuple[Image.Image | None, str]:
    if isinstance(sample, Failure):
        return None, f"{title} {sample.reason}"
    try:
        if not isinstance(sample, np.ndarray) and bytes(sample[:6]) == b"\x93NUMPY":
            sample = np.load(io.BytesIO(sample), allow_pickle=False)
        image = (
            Image.fromarray(np.asarray(sample))
            if isinstance(sample, np.ndarray)
            else Image.open(io.BytesIO(sample))
        )
        image.draft("RGB", (side, side))  # decodes fewer pixels of JPEGs
        image = image.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        return None, f"{title} {error}"
    image.thumbnail((side, side))
    return image, title


def open_shard(job: Job, record: Record, index: str, columns: Sequence[str] = ()) -> Source:
    """Open one shard as a source with these columns; `index` is a file. SourceError."""
    recipe, (root, storage) = job.plan.recipe, location_of(job.target)
    image, extension = image_names(job.plan)
    kind = KINDS.get(recipe.packing.format, recipe.packing.format)
    path = f"{root}/{record.shard}{SUFFIXES[recipe.packing.format]}"
    classes = job.plan.classes
    label = None if classes else ""
    if job.plan.multi:
        label = NAMES.get(kind)
    return open_shards(
        kind,
        path if kind == "table" else [path],
        ColumnNames(label, image, caption=""),
        columns,
        storage,
        progress=False,
        classes=classes or None,
        label_kind="multi" if job.plan.multi else "index",
        more={"index": index, "images": [extension]},
    )[0]
