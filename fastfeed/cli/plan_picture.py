"""The picture of `fastfeed plan --out`: which rank reads which shard when, or where in a folder batches come from."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from fastfeed.feed.cluster_plan import Simulation

__all__ = ["draw"]

_LEFT, _TOP, _GAP = 90, 66, 54  # pixels around the panels
_WIDTH, _RANKS, _TRACE = 1000, 420, 120  # of the panels; heights
_PAPER, _INK, _PALE = (255, 255, 255), (32, 36, 44), (236, 238, 242)
_DOT = (38, 84, 160)


def draw(simulation: Simulation) -> Image.Image:
    """Of shards, which one each rank reads when; of samples one by one, from where in the listing batches come."""
    return _shards(simulation) if simulation.units > 1 else _files(simulation)


def _shards(simulation: Simulation) -> Image.Image:
    """Ranks over time, colored by the shard each reads most from; below, the shards of single ranks over time."""
    plan, traces = simulation.plan, simulation.traces
    picture, pen, font = _sheet(
        len(traces),
        f"{plan.world.size} ranks, {simulation.units:,} shards, shuffle {plan.shuffle}",
        "color: the shard that a rank reads most from, by its position in storage",
    )
    _legend(picture, pen, font, _VIRIDIS, "0", f"{simulation.units - 1:,}")
    picture.paste(_stretched(_VIRIDIS[simulation.most_read * 255 // (simulation.units - 1)], _RANKS), (_LEFT, _TOP))
    _axes(pen, font, _TOP, _RANKS, "rank", plan.world.size - 1, plan.steps)
    at = _TOP + _RANKS + _GAP
    for rank, trace in traces.items():
        picture.paste(_stretched(_BLUES[trace * 255], _TRACE), (_LEFT, at))
        share = simulation.units_read[rank] / simulation.units
        pen.text((_LEFT, at - 18), f"rank {rank}: reads from {share:.1%} of the shards", _INK, font)
        _axes(pen, font, at, _TRACE, "shard", simulation.units - 1, plan.steps)
        at += _TRACE + _GAP
    return picture


def _files(simulation: Simulation) -> Image.Image:
    """Positions in the listing over time, colored by how many samples of a global batch come from there."""
    plan, listing = simulation.plan, simulation.listing
    per_column = np.maximum(listing.sum(axis=0), 1)
    shares = listing / per_column
    most = max(float(shares.max()), 1e-9)
    picture, pen, font = _sheet(
        0,
        f"{plan.world.size} ranks, {len(simulation.source):,} samples, shuffle {plan.shuffle}",
        "color: share of the samples of all ranks that lie at this place in the listing",
    )
    _legend(picture, pen, font, _BLUES, "0 %", f"{most:.1%}")
    picture.paste(_stretched(_BLUES[(shares / most * 255).astype(int)], _RANKS), (_LEFT, _TOP))
    _axes(pen, font, _TOP, _RANKS, "sample", len(simulation.source) - 1, plan.steps)
    return picture


def _sheet(traces: int, title: str, legend: str) -> tuple[Image.Image, ImageDraw.ImageDraw, object]:
    height = _TOP + _RANKS + _GAP + traces * (_TRACE + _GAP) + 10
    picture = Image.new("RGB", (_LEFT + _WIDTH + 30, height), _PAPER)
    pen, font = ImageDraw.Draw(picture), ImageFont.load_default(13)
    pen.text((_LEFT, 10), title, _INK, ImageFont.load_default(18))
    pen.text((_LEFT, 38), legend, _INK, font)
    return picture, pen, font


def _stretched(pixels: np.ndarray, height: int) -> Image.Image:
    """A panel of uint8 (rows, columns, 3), first row on top."""
    return Image.fromarray(np.ascontiguousarray(pixels, np.uint8)).resize((_WIDTH, height), Image.Resampling.NEAREST)


def _axes(pen: ImageDraw.ImageDraw, font: object, top: int, height: int, what: str, last: int, steps: int) -> None:
    pen.rectangle((_LEFT - 1, top - 1, _LEFT + _WIDTH, top + height), outline=_INK)
    pen.text((_LEFT - 8, top), "0", _INK, font, anchor="ra")  # type: ignore[arg-type]
    pen.text((_LEFT - 8, top + height), f"{last:,}", _INK, font, anchor="rd")  # type: ignore[arg-type]
    pen.text((_LEFT - 8, top + height // 2), what, _INK, font, anchor="rm")  # type: ignore[arg-type]
    pen.text((_LEFT, top + height + 4), "step 0", _INK, font)  # type: ignore[arg-type]
    pen.text((_LEFT + _WIDTH, top + height + 4), f"{steps:,}", _INK, font, anchor="ra")  # type: ignore[arg-type]


def _legend(
    picture: Image.Image, pen: ImageDraw.ImageDraw, font: object, colors: np.ndarray, least: str, most: str
) -> None:
    left, width = _LEFT + _WIDTH - 220, 160
    picture.paste(Image.fromarray(colors[None, :]).resize((width, 12)), (left, 42))
    pen.text((left - 6, 48), least, _INK, font, anchor="rm")  # type: ignore[arg-type]
    pen.text((left + width + 6, 48), most, _INK, font, anchor="lm")  # type: ignore[arg-type]


def _ramp(*anchors: tuple[int, int, int]) -> np.ndarray:
    """256 colors, uint8 (256, 3), through evenly spaced anchors."""
    places, at = np.linspace(0, 255, len(anchors)), np.arange(256)
    channels = [np.interp(at, places, [anchor[channel] for anchor in anchors]) for channel in range(3)]
    return np.round(np.stack(channels, axis=-1)).astype(np.uint8)


# lightness grows evenly, also in gray and for the color-blind: van der Walt and Smith, viridis, 2015
_VIRIDIS = _ramp(
    (68, 1, 84), (72, 40, 120), (62, 74, 137), (49, 104, 142), (38, 130, 142),
    (31, 158, 137), (53, 183, 121), (109, 205, 89), (180, 222, 44), (253, 231, 37),
)  # fmt: skip
_BLUES = _ramp(_PALE, _DOT)
