"""Opens NumPy's `.npy` files of one image."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
from PIL import Image

_DTYPES = ("uint8", "uint16", "float16", "float32", "float64")
_MOST_HEADER = 10_000  # bytes: NumPy's own limit for headers that it has not written
_READ = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


class NpyFile:
    """One image as numbers: `array` (height, width, channels)."""

    format = "NPY"
    mode = "numbers"

    def __init__(self, file: io.BytesIO, name: str = "") -> None:
        version = np.lib.format.read_magic(file)
        if version not in _READ:
            raise OSError(f"unsupported: version {version} of .npy")
        shape, is_fortran, dtype = _READ[version](file, max_header_size=_MOST_HEADER)
        if dtype.name not in _DTYPES:
            raise OSError(f"unsupported: an array of {dtype}, an image has {', '.join(_DTYPES)}")
        if len(shape) not in (2, 3) or not math.prod(shape) or (shape[2:] or (1,))[0] > 4:
            raise OSError(
                f"unsupported: an array of shape {shape}, an image has (height, width) or (height,"
                " width, 1 to 4)"
            )
        data = file.getbuffer()[file.tell() :]
        if len(data) != math.prod(shape) * dtype.itemsize:
            raise OSError(f"truncated: {len(data)} bytes for an array of {dtype}{list(shape)}")
        array = np.frombuffer(data, dtype).reshape(shape, order="F" if is_fortran else "C")
        self.array = array.reshape(*shape[:2], -1)
        self.height = shape[0]
        self.width = shape[1]
        self.info: dict[str, Any] = {}


def open_npy(file: io.BytesIO, name: str = "") -> Image.Image:
    """An image of bytes for Pillow."""
    array = NpyFile(file).array
    if array.dtype != np.uint8 or array.shape[2] == 2:
        raise OSError(
            f'unsupported: an array of {array.dtype}{list(array.shape)}; Decode(dtype="float32")'
            ' or, of 16 bits, "uint16" takes numbers'
        )
    image = Image.fromarray(np.ascontiguousarray(array[..., 0] if array.shape[2] == 1 else array))
    image.format = "NPY"
    return image
