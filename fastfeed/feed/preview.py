"""Samples of a feed as pictures: `ff.show`, and a feed in a notebook."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import io
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from fastfeed import html_page
from fastfeed.arguments import check_count, checked
from fastfeed.contact_sheet import Cell, draw_sheet
from fastfeed.distributed.world import World
from fastfeed.errors import ConfigError, FastfeedError
from fastfeed.faults import Failure, FaultPolicy, Outage
from fastfeed.feed.config import MOST_THREADS, FeedConfig
from fastfeed.feed.producer import ThreadProducer, open_builders
from fastfeed.feed.session import FeedSession
from fastfeed.html_page import Markup, bullets, escape
from fastfeed.printable import printable
from fastfeed.runtime.batch import Batch
from fastfeed.runtime.timeline import Timeline
from fastfeed.sampling import resolve_order

_SIDE = 112  # pixels of a thumbnail, at most
_SMALL = 56  # images whose sides are no longer are enlarged, with visible pixels
_BOX = (255, 200, 0)
_BAD_SHOWN = 5
_PICTURES = (".png", ".jpg", ".webp")
_FIGURE = "display:inline-block;vertical-align:top;margin:0 8px 8px 0;width:112px"
_CAPTION = "font-size:12px;overflow:hidden;text-overflow:ellipsis;white-space:nowrap"
_IMAGE = "display:block;width:112px;height:112px;object-fit:contain"
_ABSENT = "height:112px;border:1px dashed #c8272d;box-sizing:border-box"


@checked
@dataclass(frozen=True, slots=True)
class Preview:
    """The first samples of an epoch, as a trainer gets them; made by `ff.show`.

    In a notebook it is a row of images.

    Args:
        title (str): Which samples these are.
        cells (tuple[Cell, ...]): Images with the labels and ids of their samples; of a bad sample
            its reason.

    Example:
        >>> feed = ff.Feed(ff.Arrays(np.zeros((4, 8, 8, 3), np.uint8), np.arange(4)), [], batch=4)
        >>> ff.show(feed, n=2)
        2 samples of epoch 0, seed 0: 0 #0, 2 #2
    """

    title: str
    cells: tuple[Cell, ...]

    def __repr__(self) -> str:
        return f"{self.title}: {', '.join(printable(cell.title) for cell in self.cells)}"

    def _repr_html_(self) -> Markup:
        return Markup(f"<div>{''.join(map(_figure, self.cells))}</div>")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a contact sheet, or a page that loads nothing from elsewhere.

        Args:
            path (str | os.PathLike[str]): Its suffix is .png, .jpg, .webp or .html.

        Raises:
            ConfigError: If it has another suffix.

        Example:
            >>> ff.show(feed, n=24).save("samples.png")  # doctest: +SKIP
        """
        file = Path(path)
        suffix = file.suffix.lower()
        if suffix == ".html":
            body = f"<h1>{escape(self.title)}</h1>{self._repr_html_()}"
            file.write_text(html_page.page(self.title, repr(self), body), "utf-8")
        elif suffix in _PICTURES:
            cells = [Cell(cell.image and _thumbnail(cell.image), cell.title) for cell in self.cells]
            draw_sheet(cells, _SIDE).save(file)
        else:
            must = f"a file {', '.join(_PICTURES)} or .html"
            raise ConfigError.of("path", must, str(file))


@checked
def show(feed: Any, n: int = 8, epoch: int = 0) -> Preview:
    """Show the first samples of an epoch: in a notebook as a row of images.

    They are read apart from the feed's batches, on the CPU, and shown before `Normalize`. The
    feed's position, counters and bad samples stay as they are. Under an order or a `MixUp` that
    depends on the size of a batch, the samples next to each other are not those of the feed's own
    batches.

    Args:
        feed (Any): A Feed, or what one of its `to_...` methods returned.
        n (int): Samples, at least 1; fewer if the source has fewer. Default: 8.
        epoch (int): Counts from 0. Default: 0.

    Returns:
        What a notebook shows, and `save(path)` writes.

    Raises:
        ConfigError: If `feed` is not a feed, or `n` or `epoch` is out of range.

    Example:
        >>> feed = ff.Feed(ff.Arrays(np.zeros((4, 8, 8, 3), np.uint8)), [ff.RandomFlip()], batch=4)
        >>> len(ff.show(feed, n=3).cells)
        3
    """
    check_count("n", n, 1, MOST_THREADS)
    return preview(FeedSession.of(feed).config, n, epoch)


def preview(config: FeedConfig, n: int = 8, epoch: int = 0) -> Preview:
    """The first samples of an epoch of a feed of this configuration."""
    n = min(n, config.plan.length)
    config = _small(config, n)
    program = config.program
    is_raw = not program.maps_images
    layouts = [
        part.raw().spec.layout if is_raw else part.spec.layout
        for part in (program, *program.others)
    ]
    quarantine = config.open_quarantine(tells=False)
    builder, raw = open_builders(config, quarantine, Timeline())
    cells: list[Cell] = []
    left = n
    with (
        contextlib.closing(ThreadProducer(builder, raw, config.prefetch)) as producer,
        contextlib.closing(producer.start(epoch, 0, raw=is_raw)) as stream,
    ):
        while left:
            batch = next(stream)
            failures = {failure.id: failure for failure in quarantine.failures}
            rows = min(left, len(batch))
            cells += batch_cells(batch, config.source.classes, layouts, failures, rows)
            left -= rows
    title = f"{n} sample{'s' * (n != 1)} of epoch {epoch}, seed {config.plan.seed}"
    return Preview(title, tuple(cells))


def _small(config: FeedConfig, n: int) -> FeedConfig:
    """A configuration with batches of n samples or a few more, or of one run of its order.

    It marks bad samples.
    """
    plan = config.plan
    mix = config.program.mix
    run = getattr(resolve_order(plan.shuffle), "run", 1)
    least = math.lcm(1 if mix is None else mix.op.group, run)
    batch = least if run > 1 else -(-n // least) * least
    return dataclasses.replace(
        config,
        plan=dataclasses.replace(plan, global_batch=batch, world=World(), tail="pad"),
        backend="cpu",
        decode="auto",
        threads=min(config.threads, batch),
        prefetch=0,
        policy=FaultPolicy("mask", max_share=1, max_run=batch + 1, on_error="bad"),
        outage=Outage(0),
        memory=None,
        quarantine=None,
        side_process=False,
    )


def batch_cells(
    batch: Batch,
    classes: tuple[str, ...],
    layouts: list[str],
    failures: Mapping[int, Failure],
    n: int,
) -> Iterator[Cell]:
    """Cells of the first n samples of a batch, one for each image or view.

    Args:
        batch: The batch.
        classes: Names of the source's classes.
        layouts: "HWC" or "CHW", of each array of images.
        failures: Bad samples by id.
        n: Number of samples.
    """
    for row in range(n):
        id = int(batch.ids[row])
        title = f"{label_text(batch.labels[row], classes)} #{id}".strip()
        if id in failures and not batch.weights[row]:
            yield Cell(None, f"bad: {failures[id].reason} #{id}")
            continue
        for name, image, layout in _images(batch, row, layouts):
            picture = _picture(image, layout)
            if batch.objects is not None:
                _draw_boxes(picture, batch.objects.boxes[row][: batch.objects.counts[row]])
            yield Cell(picture, f"{name} {title}".strip())


def _images(batch: Batch, row: int, layouts: list[str]) -> Iterator[tuple[str, np.ndarray, str]]:
    """Images of a sample with their names and layouts: one, views, or those of a `Together`."""
    if not batch.views:
        yield "", batch.images[row], layouts[0]
        return
    for k, (images, layout) in enumerate(zip(batch.views, layouts, strict=True)):
        if batch.image_names:
            yield batch.image_names[k], images[row], layout
        else:
            for view in images[row]:
                yield "", view, layout


def _picture(image: np.ndarray, layout: str) -> Image.Image:
    """An image as RGB; values other than bytes are scaled to the range of bytes."""
    if layout == "CHW":
        image = image.transpose(1, 2, 0)
    if image.dtype != np.uint8:
        values = np.nan_to_num(image.astype(np.float32))
        low = values.min()
        high = values.max()
        image = np.rint((values - low) * (255 / max(high - low, 1e-12))).astype(np.uint8)
    image = image[:, :, :3] if image.shape[2] > 2 else np.repeat(image[:, :, :1], 3, axis=2)
    return Image.fromarray(np.ascontiguousarray(image))


def _draw_boxes(picture: Image.Image, boxes: np.ndarray) -> None:
    pen = ImageDraw.Draw(picture)
    for left, top, right, bottom in boxes.tolist():
        pen.rectangle((left, top, max(left, right - 1), max(top, bottom - 1)), outline=_BOX)


def label_text(label: Any, classes: tuple[str, ...]) -> str:
    """One label of a batch: the name of its class, or of several, numbers, or a text."""
    if isinstance(label, str):
        return label
    if label.dtype.kind == "f":
        shares = np.ravel(label).tolist()
        if not classes:
            return ", ".join(f"{number:g}" for number in shares)
        return ", ".join(name for name, share in zip(classes, shares, strict=True) if share)
    if label < 0:
        return ""
    return classes[label] if label < len(classes) else str(label)


def _thumbnail(image: Image.Image) -> Image.Image:
    longest = max(image.size)
    if longest <= _SMALL:
        by = _SIDE // longest
        return image.resize((image.width * by, image.height * by), Image.Resampling.NEAREST)
    thumbnail = image.copy()
    thumbnail.thumbnail((_SIDE, _SIDE))
    return thumbnail


def _figure(cell: Cell) -> Markup:
    """A cell as HTML with its image in it."""
    title = escape(cell.title)
    image = f'<div style="{_ABSENT}"></div>'
    if cell.image is not None:
        file = io.BytesIO()
        _thumbnail(cell.image).save(file, "JPEG", quality=90)
        data = base64.b64encode(file.getvalue()).decode()
        image = f'<img style="{_IMAGE}" alt="{title}" src="data:image/jpeg;base64,{data}">'
    caption = f'<div style="{_CAPTION}" title="{title}">{title}</div>'
    return Markup(f'<div style="{_FIGURE}">{image}{caption}</div>')


def feed_html(session: FeedSession) -> Markup:
    """A feed in a notebook: its plan, samples, statistics, and bad samples so far."""
    try:
        samples = preview(session.config)._repr_html_()
    except FastfeedError as error:
        samples = Markup(f"<p>No samples are shown: {escape(error)}</p>")
    stats = session.stats()
    counted = f"<pre>{escape(stats)}</pre>" if stats.batches else ""
    bad = [str(failure) for failure in stats.bad[:_BAD_SHOWN]]
    if len(stats.bad) > _BAD_SHOWN:
        bad.append(f"and {len(stats.bad) - _BAD_SHOWN:,} more, in feed.stats().bad")
    return Markup(f"<pre>{escape(session.explain())}</pre>{samples}{counted}{bullets(bad)}")
