"""Samples of a shard, read back, on one picture."""

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
from fastfeed.preprocess.record import Record
from fastfeed.preprocess.reports.verify import location_of
from fastfeed.preprocess.state import Job
from fastfeed.preprocess.writers import SUFFIXES
from fastfeed.sources.base import Source

__all__ = ["Cell", "draw_cells", "draw_sheet"]

_MARGIN, _TEXT = 8, 12  # pixels
_PAPER, _EMPTY, _INK, _BAD = (250, 250, 248), (238, 238, 234), (40, 40, 40), (176, 32, 32)


@dataclass(frozen=True, slots=True)
class Cell:
    """One sample."""

    image: Image.Image | None  # RGB; None: it cannot be read
    title: str


def draw_cells(job: Job, record: Record, count: int, side: int) -> list[Cell]:
    """The first samples of a shard, not larger than (side, side), as fastfeed's reader of the format gives them."""
    ids = record.ids[:count]
    if not ids:
        return []
    try:
        with tempfile.TemporaryDirectory(prefix="fastfeed-preview-") as scratch:  # an index must not lie in the target
            source = _open(job, record, os.path.join(scratch, "shard.ffindex"))
            places = np.arange(min(len(ids), len(source)))
            found, labels = source.read([int(place) for place in places]), source.label(places).tolist()
    except (SourceError, ValueError) as error:
        return [Cell(None, str(error))]
    classes = job.plan.classes
    named = [classes[label] if 0 <= label < len(classes) else "" for label in labels]
    return [
        Cell(*_small(one, side, f"{name}  #{id}".strip())) for one, name, id in zip(found, named, ids, strict=False)
    ]


def draw_sheet(found: Sequence[Cell], side: int) -> Image.Image:
    """In a grid about 4:3, each in a square of `side` pixels with its title below."""
    columns = max(1, min(len(found), round(math.sqrt(len(found) * 4 / 3))))
    rows = max(1, -(-len(found) // columns))
    step_x, step_y = side + _MARGIN, side + _MARGIN + _TEXT + 6
    picture = Image.new("RGB", (columns * step_x + _MARGIN, rows * step_y + _MARGIN), _PAPER)
    pen, font = ImageDraw.Draw(picture), ImageFont.load_default(_TEXT)
    for k, cell in enumerate(found):
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


def _small(found: Any, side: int, title: str) -> tuple[Image.Image | None, str]:
    if isinstance(found, Failure):
        return None, f"{title} {found.reason}"
    try:
        if not isinstance(found, np.ndarray) and bytes(found[:6]) == b"\x93NUMPY":
            found = np.load(io.BytesIO(found), allow_pickle=False)
        image = Image.fromarray(np.asarray(found)) if isinstance(found, np.ndarray) else Image.open(io.BytesIO(found))
        image.draft("RGB", (side, side))  # of JPEGs: fewer pixels to decode
        image = image.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        return None, f"{title} {error}"
    image.thumbnail((side, side))
    return image, title


def _open(job: Job, record: Record, index: str) -> Source:
    """One shard. SourceError."""
    format, (root, storage) = job.plan.recipe.packing.format, location_of(job.target)
    place = f"{root}/{record.shard}{SUFFIXES[format]}"
    labeled = bool(job.plan.classes)
    classes = job.plan.classes or None
    try:
        return _reader(format, place, labeled, classes, storage, index, job.plan.recipe.encoding.extension)
    except SourceError:  # where no sample of this shard has a label
        if not labeled:
            raise
        return _reader(format, place, False, None, storage, index, job.plan.recipe.encoding.extension)


def _reader(format: str, place: str, labeled: bool, classes: Any, storage: Any, index: str, extension: str) -> Source:
    if format == "webdataset":
        from fastfeed.sources.tar import TarShards

        label = "cls" if labeled else None
        return TarShards(
            [place], label=label, images=[extension], classes=classes, storage=storage, index=index, progress=False
        )
    if format == "tfrecord":
        from fastfeed.sources.tfrecord import TFRecords

        label = "image/class/label" if labeled else None
        return TFRecords([place], label=label, classes=classes, storage=storage, index=index, progress=False)
    if format == "mds":
        from fastfeed.sources.mds import MDSShards

        label = "label" if labeled else None
        return MDSShards([place], label=label, classes=classes, storage=storage, index=index, progress=False)
    if format == "raw":
        from fastfeed.sources.raw import RawShards

        return RawShards([place], classes=classes or (), storage=storage)
    from fastfeed.sources.table import Table

    return Table(place, image="image", label="label" if labeled else None, classes=classes, storage=storage)
