"""How much memory decoding a photograph will need, from its header."""

from __future__ import annotations

from fastfeed.preprocess.raster import Look

__all__ = ["cost"]


def cost(look: Look, blob_bytes: int, box: tuple[float, float, float, float], size: tuple[int, int]) -> int:
    """Bytes at the peak, beside the file's own: box and size as Rasterizer.pixels takes them."""
    out = 3 * size[0] * size[1]
    return 8_000_000 + 2 * out + int(2.2 * look.held * look.height * look.width) + 4 * look.height * look.width
