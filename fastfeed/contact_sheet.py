"""Contact sheets: images in a grid, each with a title below."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont

# pixels
_MARGIN = 8
_TEXT = 12
_PAPER = (250, 250, 248)
_EMPTY = (238, 238, 234)
_INK = (40, 40, 40)
_BAD = (176, 32, 32)


@dataclass(frozen=True, slots=True)
class Cell:
    """One sample of a contact sheet."""

    image: Image.Image | None  # RGB; None: unreadable
    title: str


def draw_sheet(cells: Sequence[Cell], side: int) -> Image.Image:
    """Arrange cells in a grid of about 4:3, squares of `side` pixels with titles below."""
    columns = max(1, min(len(cells), round(math.sqrt(len(cells) * 4 / 3))))
    rows = max(1, -(-len(cells) // columns))
    step_x = side + _MARGIN
    step_y = side + _MARGIN + _TEXT + 6
    picture = Image.new("RGB", (columns * step_x + _MARGIN, rows * step_y + _MARGIN), _PAPER)
    pen = ImageDraw.Draw(picture)
    font = ImageFont.load_default(_TEXT)
    for k, cell in enumerate(cells):
        left = _MARGIN + k % columns * step_x
        top = _MARGIN + k // columns * step_y
        pen.rectangle((left, top, left + side - 1, top + side - 1), fill=_EMPTY)
        if cell.image is not None:
            inset = ((side - cell.image.width) // 2, (side - cell.image.height) // 2)
            picture.paste(cell.image, (left + inset[0], top + inset[1]))
        title = " ".join(cell.title.split())  # on one line
        while len(title) > 1 and pen.textlength(title, font) > side:
            title = title[:-2] + "…"
        pen.text((left, top + side + 3), title, _INK if cell.image is not None else _BAD, font)
    return picture
