"""The contact sheet of `show --ops`: the source image at the top, and below it a row per op."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from fastfeed.cli.show.strengths import PAPER, Picture

_INK = (34, 36, 40)
_GRAY = (112, 116, 122)
_LINE = (222, 222, 218)
_PLATE = (241, 241, 238)
_BOX = (255, 200, 0)
_BOX_EDGE = (40, 30, 0)
# pixels: around the sheet, between pictures
_MARGIN = 28
_GAP = 10
_LABEL = 176  # width of the column of names
_HEAD = 46  # height of a heading
_SCALE = 3  # small images are enlarged with visible pixels from here on


@dataclass(frozen=True, slots=True)
class OpRow:
    """The pictures of one op, or of several without random numbers."""

    name: str
    arguments: str
    pictures: list[Picture]


def draw(
    title: str,
    below: str,
    original: Picture,
    sections: Sequence[tuple[str, Sequence[OpRow]]],
    headings: Sequence[str],
) -> Image.Image:
    """Draw the contact sheet of all ops.

    All pictures are fitted into the size of the first image, and keep their aspect ratio.
    """
    height, width = original.image.shape[:2]
    width = max(width, 96)  # room for a line of words
    fonts = {size: ImageFont.load_default(size) for size in (11, 12, 15, 18, 22)}
    step_x = width + _GAP
    step_y = height + 15 + _GAP + 4
    columns = len(headings)
    sheet_width = 2 * _MARGIN + _LABEL + columns * step_x - _GAP
    heads = sum(_HEAD for heading, _ in sections if heading)
    top = _MARGIN + height + 18
    count = sum(len(rows) for _, rows in sections)
    sheet_height = top + 24 + heads + count * step_y + _MARGIN - _GAP
    sheet = Image.new("RGB", (sheet_width, sheet_height), PAPER)
    pen = ImageDraw.Draw(sheet)

    left = _MARGIN + _LABEL
    _paste(sheet, pen, original, (_MARGIN, _MARGIN), (height, original.image.shape[1]))
    text_x = _MARGIN + original.image.shape[1] + 20
    room = sheet_width - text_x - _MARGIN
    title = _cut(pen, title, fonts[22], room)
    pen.text((text_x, _MARGIN + height / 2 - 26), title, _INK, fonts[22])
    for i, line in enumerate(_wrapped(pen, below, fonts[12], room)[:2]):
        pen.text((text_x, _MARGIN + height / 2 + 6 + 17 * i), line, _GRAY, fonts[12])

    y = top
    for i, heading in enumerate(headings):
        pen.text((left + i * step_x + width / 2, y + 8), heading, _GRAY, fonts[12], anchor="mm")
    y += 24
    for heading, rows in sections:
        if heading:
            pen.line((_MARGIN, y, sheet_width - _MARGIN, y), _LINE)
            pen.text((_MARGIN, y + 9), heading, _INK, fonts[18])
            y += _HEAD
        for row in rows:
            _label(pen, row, (_MARGIN, y), (height + 12, _LABEL - 16), fonts)
            for i, picture in enumerate(row.pictures):
                x = left + i * step_x
                _paste(sheet, pen, picture, (x, y), (height, width))
                words = _cut(pen, picture.words, fonts[11], width)
                pen.text((x + width / 2, y + height + 9), words, _GRAY, fonts[11], anchor="mm")
            y += step_y
    return sheet


def _label(
    pen: ImageDraw.ImageDraw,
    row: OpRow,
    at: tuple[int, int],
    room: tuple[int, int],
    fonts: dict[int, ImageFont.FreeTypeFont],
) -> None:
    """Write the name of the op, and as many lines of its arguments as fit."""
    (x, y) = at
    (height, width) = room
    lines = _wrapped(pen, row.arguments, fonts[12], width)
    limit = max(1, (height - 20) // 15)
    if len(lines) > limit:
        lines = [*lines[: limit - 1], _cut(pen, lines[limit - 1] + " …", fonts[12], width)]
    if not row.name:
        y -= 18
    size = 15 if pen.textlength(row.name, fonts[15]) <= width else 12
    pen.text((x, y - 2), row.name, _INK, fonts[size])
    for i, line in enumerate(lines):
        pen.text((x, y + 19 + 15 * i), line, _GRAY, fonts[12])


def _paste(
    sheet: Image.Image,
    pen: ImageDraw.ImageDraw,
    picture: Picture,
    at: tuple[int, int],
    room: tuple[int, int],
) -> None:
    """Paste a picture in the middle of its cell, as large as it fits."""
    (x, y) = at
    (height, width) = room
    own_height, own_width = picture.image.shape[:2]
    by = min(height / own_height, width / own_width)
    size = max(1, round(own_width * by)), max(1, round(own_height * by))
    is_rgb = picture.image.shape[2] == 3
    image = Image.fromarray(picture.image if is_rgb else np.repeat(picture.image, 3, axis=2))
    if size != image.size:
        filter = Image.Resampling.NEAREST if by >= _SCALE else Image.Resampling.LANCZOS
        image = image.resize(size, filter)
    if size != (width, height):
        pen.rectangle((x, y, x + width - 1, y + height - 1), _PLATE)
    x = x + (width - size[0]) // 2
    y = y + (height - size[1]) // 2
    sheet.paste(image, (x, y))
    if picture.box is not None:
        edges = [round(edge * by) for edge in picture.box]
        left = x + edges[0]
        top = y + edges[1]
        right = max(x + edges[2] - 1, left + 2)
        bottom = max(y + edges[3] - 1, top + 2)
        pen.rectangle((left, top, right, bottom), outline=_BOX_EDGE, width=4)
        pen.rectangle((left + 1, top + 1, right - 1, bottom - 1), outline=_BOX, width=2)


def _wrapped(
    pen: ImageDraw.ImageDraw, text: str, font: ImageFont.FreeTypeFont, width: float
) -> list[str]:
    """Wrap the text to a width at spaces; a longer word is cut."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and pen.textlength(longer, font) <= width:
            lines[-1] = longer
        else:
            lines.append(_cut(pen, word, font, width))
    return lines


def _cut(pen: ImageDraw.ImageDraw, text: str, font: ImageFont.FreeTypeFont, width: float) -> str:
    """The longest beginning of the text that fits the width."""
    while len(text) > 1 and pen.textlength(text, font) > width:
        text = text[:-2].rstrip(" ,…") + "…"
    return text
