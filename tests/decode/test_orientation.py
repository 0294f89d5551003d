"""All eight orientations, against Pillow's own exif_transpose."""

import io

import numpy as np
import pytest
from PIL import Image, ImageOps

from fastfeed.decode.orientation import displayed, displayed_size, stored_box

STORED = np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3)  # height 5, width 7


def turned(orientation: int) -> np.ndarray:
    """What a viewer shows for the stored pixels."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    Image.fromarray(STORED).save(file, "PNG", exif=exif)
    return np.asarray(ImageOps.exif_transpose(Image.open(file)))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_displayed_is_what_a_viewer_shows(orientation):
    shown = displayed(orientation, STORED)
    assert np.array_equal(shown, turned(orientation))
    assert displayed_size(orientation, STORED.shape[:2]) == shown.shape[:2]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_displayed_box_is_found_in_the_stored_pixels(orientation):
    shown = turned(orientation)
    for top, left, height, width in [(0, 0, *shown.shape[:2]), (1, 2, 3, 2), (2, 0, 1, 1)]:
        box = stored_box(orientation, (top, left, height, width), shown.shape[:2])
        y, x, h, w = (int(v) for v in box)
        cut = displayed(orientation, STORED[y : y + h, x : x + w])
        assert np.array_equal(cut, shown[top : top + height, left : left + width])
