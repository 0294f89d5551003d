"""The picture of `fastfeed plan --out`: shards read by ranks, or classes in batches."""

from __future__ import annotations

import itertools

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from fastfeed.cli.plan.cluster import Simulation
from fastfeed.cli.plan.files import SampleGroups
from fastfeed.printable import format_size, plural

# pixels around the panels
_LEFT = 110
_TOP = 66
_GAP = 54
# of the panels; heights
_WIDTH = 1000
_RANKS = 420
_TRACE = 120
# width of the bars, height of a line, characters of a name
_BARS = 160
_LINE = 16
_NAME = 14
_MOST = 2.0  # times an even mix: the brightest color
# samples that most cells count; columns kept in any case
_PER_CELL = 8
_FEWEST = 24
_RANGES = 100  # columns of the panel of bytes
_PAPER = (255, 255, 255)
_INK = (32, 36, 44)
_PALE = (236, 238, 242)
_DOT = (38, 84, 160)
_BAND = (178, 198, 228)


def draw(simulation: Simulation, groups: SampleGroups | None = None) -> Image.Image:
    """Draw reads of shards by rank or, with groups of samples, the contents of batches."""
    return _shards(simulation) if groups is None else _files(simulation, groups)


def _shards(simulation: Simulation) -> Image.Image:
    """Ranks over time, colored by the shard each reads most; below, shards of single ranks."""
    plan = simulation.plan
    traces = simulation.traces
    picture, pen, font = _sheet(
        len(traces),
        f"{plural(plan.world.size, 'rank')}, {simulation.units:,} shards, shuffle {plan.shuffle}",
        "color: the shard that a rank reads most from, by its position in storage",
    )
    _legend(picture, pen, font, _VIRIDIS, "0", f"{simulation.units - 1:,}")
    colors = _VIRIDIS[simulation.most_read * 255 // (simulation.units - 1)]
    picture.paste(_stretched(colors, _RANKS), (_LEFT, _TOP))
    _axes(pen, font, _TOP, _RANKS, "0", "rank", f"{plan.world.size - 1:,}", plan.steps)
    at = _TOP + _RANKS + _GAP
    for rank, trace in traces.items():
        picture.paste(_stretched(_BLUES[trace * 255], _TRACE), (_LEFT, at))
        share = simulation.units_read[rank] / simulation.units
        pen.text((_LEFT, at - 18), f"rank {rank}: reads from {share:.1%} of the shards", _INK, font)
        _axes(pen, font, at, _TRACE, "0", "shard", f"{simulation.units - 1:,}", plan.steps)
        at += _TRACE + _GAP
    return picture


def _files(simulation: Simulation, groups: SampleGroups) -> Image.Image:
    """Samples of each class, their frequency in batches over time, and bytes per step."""
    plan = simulation.plan
    counts = groups.counts
    kind = "class" if groups.names else "part of the listing"
    picture, pen, font = _sheet(
        1,
        f"{plural(plan.world.size, 'rank')}, {len(simulation.source):,} samples, shuffle"
        f" {plan.shuffle}",
        f"color: share of each {kind} in the batches, relative to its share of all samples",
    )
    _legend(picture, pen, font, _VIRIDIS, "0", f"{_MOST:g}x", "1x")
    left = _LEFT + (_BARS + _GAP // 2 if groups.names else 0)
    shades = _shades(_joined(simulation.mix), counts)
    picture.paste(_stretched(_VIRIDIS[shades], _RANKS, _LEFT + _WIDTH - left), (left, _TOP))
    _axes(pen, font, _TOP, _RANKS, "", "", "", plan.steps, left)
    _bars(pen, font, groups)
    _bytes(pen, font, simulation, _TOP + _RANKS + _GAP, left)
    return picture


def _joined(mix: np.ndarray) -> np.ndarray:
    """Sums of neighboring columns, so that most cells count several samples, not noise."""
    groups, columns = mix.shape
    enough = int(mix.sum()) // (groups * _PER_CELL)
    kept = min(columns, max(enough, _FEWEST))
    return np.add.reduceat(mix, np.arange(kept) * columns // kept, axis=1)


def _shades(mix: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Color indices, int64 like mix: 0 for no sample, 255 for _MOST times an even mix or more."""
    expected = mix.sum(axis=0) * counts[:, None] / counts.sum()
    return np.minimum(mix / expected * 255 / _MOST, 255).astype(int)


def _bars(pen: ImageDraw.ImageDraw, font: ImageFont.FreeTypeFont, groups: SampleGroups) -> None:
    """Row names and, for classes, a bar with the number of samples."""
    counts = groups.counts
    rows = len(groups.counts)
    edges = _TOP + np.arange(rows + 1) * _RANKS // rows
    every = max(1, -(-_LINE * rows // _RANKS))  # rows with room for a line
    if groups.names:
        pen.text((_LEFT, _TOP + _RANKS + 4), "samples", _INK, font)
    for row, (top, bottom) in enumerate(itertools.pairwise(edges.tolist())):
        gap = 1 if bottom - top > 3 else 0
        length = max(1, int(counts[row]) * _BARS // int(counts.max()))
        if groups.names:
            pen.rectangle((_LEFT, top + gap, _LEFT + length, bottom - 1 - gap), _DOT)
        if row % every:
            continue
        name = groups.names[row] if groups.names else f"from #{counts[:row].sum():,}"
        count = f"{counts[row]:,}"
        name = name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
        middle = (top + bottom) // 2
        pen.text((_LEFT - 8, middle), name, _INK, font, anchor="rm")
        if every == 1 and groups.names:
            inside = pen.textlength(count, font) + 12 < length
            place = _LEFT + (6 if inside else length + 6), middle
            pen.text(place, count, _PAPER if inside else _INK, font, "lm")


def _bytes(
    pen: ImageDraw.ImageDraw,
    font: ImageFont.FreeTypeFont,
    simulation: Simulation,
    top: int,
    left: int,
) -> None:
    """Bytes read per rank and step: the mean over time, and the range."""
    read = simulation.step_bytes
    if not read.any():
        text = "bytes per step: not drawn, since not all sizes are known"
        pen.text((left, top - 18), text, _INK, font)
        return
    columns = min(len(read), _RANGES)
    width = _WIDTH - (left - _LEFT)
    first = np.arange(columns) * len(read) // columns
    mean = np.add.reduceat(read.mean(axis=1), first) / np.diff(np.append(first, len(read)))
    least = np.minimum.reduceat(read.min(axis=1), first)
    most = np.maximum.reduceat(read.max(axis=1), first)
    scale = (_TRACE - 4) / float(most.max())
    low, middle, high = (top + _TRACE - values * scale for values in (least, mean, most))
    for column in range(columns):
        x = left + column * width // columns
        end = left + (column + 1) * width // columns - 1
        pen.rectangle((x, high[column], end, low[column]), _BAND)
        pen.line((x, middle[column], end, middle[column]), _DOT, 2)
    text = "bytes that a rank reads in a step: mean and range"
    if read.shape[1] > 1:
        text += f"; the busiest rank reads {simulation.imbalance:.1%} more than the mean"
    pen.text((left, top - 18), text, _INK, font)
    highest = format_size(float(most.max()))
    _axes(pen, font, top, _TRACE, highest, "", "0", simulation.plan.steps, left)


def _sheet(
    traces: int, title: str, legend: str
) -> tuple[Image.Image, ImageDraw.ImageDraw, ImageFont.FreeTypeFont]:
    height = _TOP + _RANKS + _GAP + traces * (_TRACE + _GAP) + 10
    picture = Image.new("RGB", (_LEFT + _WIDTH + 30, height), _PAPER)
    pen = ImageDraw.Draw(picture)
    font = ImageFont.load_default(13)
    pen.text((_LEFT, 10), title, _INK, ImageFont.load_default(18))
    pen.text((_LEFT, 38), legend, _INK, font)
    return picture, pen, font


def _stretched(pixels: np.ndarray, height: int, width: int = _WIDTH) -> Image.Image:
    """A panel of uint8 (rows, columns, 3), first row on top."""
    return Image.fromarray(np.ascontiguousarray(pixels, np.uint8)).resize(
        (width, height), Image.Resampling.NEAREST
    )


def _axes(
    pen: ImageDraw.ImageDraw,
    font: ImageFont.FreeTypeFont,
    top: int,
    height: int,
    first: str,
    what: str,
    last: str,
    steps: int,
    left: int = _LEFT,
) -> None:
    """A frame, the texts at its left from top to bottom, and the first and the last step below."""
    right = _LEFT + _WIDTH
    pen.rectangle((left - 1, top - 1, right, top + height), outline=_INK)
    pen.text((left - 8, top), first, _INK, font, anchor="ra")
    pen.text((left - 8, top + height // 2), what, _INK, font, anchor="rm")
    pen.text((left - 8, top + height), last, _INK, font, anchor="rd")
    pen.text((left, top + height + 4), "step 0", _INK, font)
    pen.text((right, top + height + 4), f"step {steps - 1:,}", _INK, font, anchor="ra")


def _legend(
    picture: Image.Image,
    pen: ImageDraw.ImageDraw,
    font: ImageFont.FreeTypeFont,
    colors: np.ndarray,
    least: str,
    most: str,
    middle: str = "",
) -> None:
    left = _LEFT + _WIDTH - 220
    width = 160
    picture.paste(Image.fromarray(colors[None, :]).resize((width, 12)), (left, 42))
    pen.text((left - 6, 48), least, _INK, font, anchor="rm")
    pen.text((left + width + 6, 48), most, _INK, font, anchor="lm")
    if middle:
        pen.line((left + width // 2, 42, left + width // 2, 53), _PAPER)
        pen.text((left + width // 2, 40), middle, _INK, font, anchor="md")


def _ramp(*anchors: tuple[int, int, int]) -> np.ndarray:
    """256 colors, uint8 (256, 3), through evenly spaced anchors."""
    places = np.linspace(0, 255, len(anchors))
    at = np.arange(256)
    channels = [np.interp(at, places, levels) for levels in zip(*anchors, strict=True)]
    return np.round(np.stack(channels, axis=-1)).astype(np.uint8)


# lightness grows evenly, also in gray and for the color-blind: van der Walt and Smith, viridis,
# 2015
_VIRIDIS = _ramp(
    (68, 1, 84),
    (72, 40, 120),
    (62, 74, 137),
    (49, 104, 142),
    (38, 130, 142),
    (31, 158, 137),
    (53, 183, 121),
    (109, 205, 89),
    (180, 222, 44),
    (253, 231, 37),
)
_BLUES = _ramp(_PALE, _DOT)
