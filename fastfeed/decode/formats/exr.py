"""Opens OpenEXR images of one layer with the package OpenEXR, imported for the first such file."""

from __future__ import annotations

import importlib
import io
from typing import Any

import numpy as np

from fastfeed.errors import MissingExtra

_COLORS = (("R", "G", "B"), ("R", "G", "B", "A"))
_DTYPES = ("float16", "float32")
_OWN_THREAD = {"num_threads": 0}  # the feed has threads


class ExrFile:
    """One image as numbers: `array` (height, width, channels), the data window of the file."""

    format = "OpenEXR"
    mode = "numbers"

    def __init__(self, file: io.BytesIO, name: str = "") -> None:
        self._file = file
        self._library = _library()
        parts = self._library.File(file, header_only=True, **_OWN_THREAD).parts
        if len(parts) != 1:
            raise OSError(f"unsupported: {len(parts)} parts, an image has one")
        header = parts[0].header
        (left, top), (right, bottom) = (corner.tolist() for corner in header["dataWindow"])
        channels = {channel.name: channel for channel in header["channels"]}
        names = next((own for own in _COLORS if {*own} == {*channels}), tuple(channels))
        is_image = names in _COLORS or len(names) == 1
        sampled = {(each.xSampling, each.ySampling) for each in channels.values()}
        if not is_image or sampled != {(1, 1)}:
            raise OSError(
                f"unsupported: channels {', '.join(names)}, an image has R, G, B, with A or without,"
                " or one channel, none of them subsampled"
            )
        self._names = names
        self.height = bottom - top + 1
        self.width = right - left + 1
        self.info: dict[str, Any] = {}

    @property
    def array(self) -> np.ndarray:
        """The numbers as stored; read by each call."""
        self._file.seek(0)
        with self._library.File(self._file, separate_channels=True, **_OWN_THREAD) as file:
            if not file.parts:  # it has printed why
                raise OSError("damaged or truncated pixel data")
            stored = file.channels()
            planes = [stored[name].pixels for name in self._names]
        if planes[0].dtype.name not in _DTYPES:
            raise OSError(f"unsupported: samples of {planes[0].dtype}, an image has floats")
        return np.stack(planes, axis=2)


def open_exr(file: io.BytesIO, name: str = "") -> Any:
    """Refuse floats where bytes are asked for."""
    raise OSError('unsupported: floats of OpenEXR; Decode(dtype="float32") takes them')


def _library() -> Any:
    try:
        return importlib.import_module("OpenEXR")
    except ModuleNotFoundError as error:
        raise MissingExtra.of("OpenEXR", "OpenEXR", "exr") from error
