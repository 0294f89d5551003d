"""The picture of `fastfeed plan --out`: which rank reads which shard when."""

from __future__ import annotations

import colorsys

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from fastfeed.feed.cluster_plan import Simulation

__all__ = ["draw"]

_LEFT, _TOP, _GAP = 90, 66, 54  # pixels around the panels
_WIDTH, _RANKS, _TRACE = 1000, 420, 120  # of the panels; heights
_PAPER, _INK, _PALE = (255, 255, 255), (32, 36, 44), (236, 238, 242)
_DOT = (38, 84, 160)


def draw(simulation: Simulation) -> Image.Image:
    """Ranks over time, colored by the shard each reads most from; below, the shards of single ranks over time."""
    traces = simulation.traces
    height = _TOP + _RANKS + _GAP + len(traces) * (_TRACE + _GAP) + 10
    picture = Image.new("RGB", (_LEFT + _WIDTH + 30, height), _PAPER)
    pen, font, large = ImageDraw.Draw(picture), ImageFont.load_default(13), ImageFont.load_default(18)
    plan = simulation.plan
    pen.text((_LEFT, 10), f"{plan.world.size} ranks, {simulation.units:,} shards, shuffle {plan.shuffle}", _INK, large)
    pen.text((_LEFT, 38), "color: the shard that a rank reads most from, by its position in storage", _INK, font)
    _legend(picture, pen, font, simulation.units)

    hues = simulation.most_read * 255 // max(simulation.units - 1, 1)
    picture.paste(_stretched(_COLORS[hues], _RANKS), (_LEFT, _TOP))
    _axes(pen, font, _TOP, _RANKS, "rank", plan.world.size - 1, plan.steps)
    at = _TOP + _RANKS + _GAP
    for rank, trace in traces.items():
        dots = np.where(trace[..., None], np.array(_DOT, np.uint8), np.array(_PALE, np.uint8))
        picture.paste(_stretched(dots, _TRACE), (_LEFT, at))
        share = simulation.units_read[rank] / max(simulation.units, 1)
        pen.text((_LEFT, at - 18), f"rank {rank}: reads from {share:.1%} of the shards", _INK, font)
        _axes(pen, font, at, _TRACE, "shard", simulation.units - 1, plan.steps)
        at += _TRACE + _GAP
    return picture


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


def _legend(picture: Image.Image, pen: ImageDraw.ImageDraw, font: object, units: int) -> None:
    left, width = _LEFT + _WIDTH - 220, 160
    picture.paste(Image.fromarray(_COLORS[None, :]).resize((width, 12)), (left, 42))
    pen.text((left - 6, 48), "0", _INK, font, anchor="rm")  # type: ignore[arg-type]
    pen.text((left + width + 6, 48), f"{units - 1:,}", _INK, font, anchor="lm")  # type: ignore[arg-type]


# the hue runs from red to violet and not around to red again; lightness waves, so that neighbors differ in gray as well
_COLORS = np.array(
    [
        [round(255 * c) for c in colorsys.hls_to_rgb(0.8 * i / 255, 0.5 + 0.12 * np.sin(i / 8), 0.75)]
        for i in range(256)
    ],
    np.uint8,
)
