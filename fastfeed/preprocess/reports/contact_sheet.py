"""Draws contact sheets: samples of a shard, read back from it, in one picture."""

from __future__ import annotations

import io
import math
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

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

_MARGIN, _TEXT = 8, 12  # pixels
_PAPER = (250, 250, 248)
_EMPTY = (238, 238, 234)
_INK = (40, 40, 40)
_BAD = (176, 32, 32)


@dataclass(frozen=True, slots=True)
class Cell:
    """One sample of a contact sheet."""

    image: Image.Image | None  # RGB; None: unreadable
    title: str


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


def draw_sheet(cells: Sequence[Cell], side: int) -> Image.Image:
    """Arrange cells in a grid of about 4:3, squares of `side` pixels with titles below."""
    columns = max(1, min(len(cells), round(math.sqrt(len(cells) * 4 / 3))))
    rows = max(1, -(-len(cells) // columns))
    step_x, step_y = side + _MARGIN, side + _MARGIN + _TEXT + 6
    picture = Image.new("RGB", (columns * step_x + _MARGIN, rows * step_y + _MARGIN), _PAPER)
    pen, font = ImageDraw.Draw(picture), ImageFont.load_default(_TEXT)
    for k, cell in enumerate(cells):
        left, top = _MARGIN + k % columns * step_x, _MARGIN + k // columns * step_y
        pen.rectangle((left, top, left + side - 1, top + side - 1), fill=_EMPTY)
        if cell.image is not None:
            inset = ((side - cell.image.width) // 2, (side - cell.image.height) // 2)
            picture.paste(cell.image, (left + inset[0], top + inset[1]))
        title = " ".join(cell.title.split())  # on one line
        while len(title) > 1 and pen.textlength(title, font) > side:
            title = title[:-2] + "…"
        pen.text((left, top + side + 3), title, _INK if cell.image is not None else _BAD, font)
    return picture


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
