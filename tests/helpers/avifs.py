"""AVIF files with containers made by hand around pictures that libaom has coded."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image, ImageCms

from helpers.heics import boxed, container, ispe

_PRIMARIES = {1: "bt709", 9: "bt2020", 12: "smpte432"}  # by number of H.273, as libaom names them
_TRANSFERS = {1: "bt709", 13: "srgb", 16: "smpte2084", 18: "hlg"}
_SRGB_PROFILE = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


@dataclass
class Coded:
    """An AV1 stream and the properties that its item needs."""

    stream: bytes = field(repr=False)
    properties: list[bytes] = field(repr=False)


def saved(pixels: np.ndarray, **options: Any) -> bytes:
    """As Pillow writes it."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "AVIF", **{"quality": 90, "speed": 10} | options)
    return file.getvalue()


def coded(pixels: np.ndarray, signal: tuple[int, int] | None = None, **options: Any) -> Coded:
    """A picture whose sequence header names colors by primaries and transfer; None: none, as with
    an ICC profile.
    """
    if signal is None:
        options |= {"icc_profile": _SRGB_PROFILE}
    else:
        names = {
            "color-primaries": _PRIMARIES[signal[0]],
            "transfer-characteristics": _TRANSFERS[signal[1]],
        }
        options |= {"codec": "aom", "advanced": names}
    parts = dict(boxes(saved(pixels, **options)))
    properties = dict(boxes(dict(boxes(dict(boxes(parts[b"meta"][4:]))[b"iprp"]))[b"ipco"]))
    return Coded(
        parts[b"mdat"], [boxed(kind, properties[kind]) for kind in (b"av1C", b"ispe", b"pixi")]
    )


def nclx(primaries: int, transfer: int, matrix: int = 6) -> bytes:
    """A `colr` box of numbers, full range."""
    numbers = b"".join(number.to_bytes(2, "big") for number in (primaries, transfer, matrix))
    return boxed(b"colr", b"nclx" + numbers + b"\x80")


def avif(
    pictures: Sequence[Coded],
    *,
    grid: tuple[int, int, int, int] | None = None,
    more: Sequence[bytes] = (),
    on_tiles: Sequence[bytes] = (),
    metadata: Sequence[tuple[bytes, bytes]] = (),
) -> bytes:
    """A file of one image.

    Args:
        pictures: the image, or the tiles of a grid.
        grid: (rows, columns, height, width) of the image that the pictures are tiles of.
        more: properties of the image; the last ones.
        on_tiles: the same of each tile.
        metadata: kind and content of items that describe the image: b"Exif", b"mime".
    """
    items = [(b"av01", picture.stream, [*picture.properties, *on_tiles]) for picture in pictures]
    references: list[tuple[bytes, int, list[int]]] = []
    if grid is not None:
        rows, columns, height, width = grid
        references.append((b"dimg", len(items) + 1, list(range(1, len(items) + 1))))
        sides = height.to_bytes(2, "big"), width.to_bytes(2, "big")
        content = bytes([0, 0, rows - 1, columns - 1]) + sides[1] + sides[0]
        items.append((b"grid", content, [ispe(height, width), pictures[0].properties[2]]))
    shown = len(items)
    items[-1] = (*items[-1][:2], [*items[-1][2], *more])
    for kind, content in metadata:
        items.append((kind, content, []))
        references.append((b"cdsc", len(items), [shown]))
    return container(items, references, shown, (b"avif", b"mif1", b"miaf"), hidden=shown - 1)


def boxes(data: bytes) -> list[tuple[bytes, bytes]]:
    """Kind and content of each box, one after the other."""
    result, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        result.append((data[at + 4 : at + 8], data[at + 8 : at + size]))
        at += size
    return result
