"""nvImageCodec: decodes batches on a GPU, or on the CPU without one, with a status per image."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastfeed.errors import MissingExtra
from fastfeed.ops.program.compile import Windows
from fastfeed.proven import runs_on_gpu

try:
    from nvidia import nvimgcodec as nv
except ImportError as error:
    raise MissingExtra(
        "GPU decoding needs nvImageCodec: pip install 'fastfeed[cuda13]', or 'fastfeed[cuda12]' for an older driver"
    ) from error

__all__ = ["NvImageCodec", "regions"]

_RADIUS = {"box": 0.5, "bilinear": 1.0, "bicubic": 2.0, "lanczos": 3.0}  # of the filters, in pixels of the result
_WORTH = 0.7  # above this share of the image, the whole image is decoded instead of a region


@runs_on_gpu
class NvImageCodec:
    """Decodes one batch at a time.

    NVIDIA's hardware JPEG engine was observed to write without waiting for its stream, over memory that was still in
    use. So it writes only to images that this decoder owns: they are reused by the next call, and only after the
    caller has waited for everything that reads them (`decode` must not be called before).
    """

    def __init__(self, device: int | None, threads: int) -> None:
        self._xp: Any = np if device is None else importlib.import_module("cupy")
        if device is None:
            kinds = {"device_id": nv.NVIMGCODEC_DEVICE_CPU_ONLY, "backends": [nv.Backend(nv.BackendKind.CPU_ONLY)]}
        else:
            kinds = {"device_id": device}
        # fancy upsampling, as in the CPU decoder
        self._decoder = nv.Decoder(max_num_cpu_threads=threads, options=":fancy_upsampling=1", **kinds)
        self._params = nv.DecodeParams(sample_format=nv.SampleFormat.I_RGB, color_spec=nv.ColorSpec.SRGB)
        self._images: list[Any] = []  # that this decoder may write to

    def decode(self, blobs: Sequence[Any], corners: np.ndarray, sizes: np.ndarray) -> list[Any]:
        """Pixels of one region each, uint8 (height, width, 3), valid until the next call; None for images not decoded.

        corners, sizes: int64 (n, 2), as `regions` gives them, in displayed coordinates.
        """
        streams, rows, decoded = [], [], [None] * len(blobs)
        for row, blob in enumerate(blobs):
            stream = self._stream(blob, corners[row], sizes[row])
            if stream is not None:
                streams.append(stream)
                rows.append(row)
        if not streams:
            return decoded
        reuse = {"images": self._images[: len(streams)]} if len(self._images) >= len(streams) else {}
        stream = 0 if self._xp is np else self._xp.cuda.get_current_stream().ptr  # the stream that reads the images
        images = self._decoder.decode(streams, params=self._params, cuda_stream=stream, **reuse)
        if not reuse:
            self._images = [image for image in images if image is not None]
        for row, image in zip(rows, images, strict=True):
            if image is not None and tuple(image.shape[:2]) == tuple(sizes[row]):
                decoded[row] = self._xp.ascontiguousarray(self._xp.asarray(image))  # rows may be padded
        return decoded

    @staticmethod
    def _stream(blob: Any, corner: np.ndarray, size: np.ndarray) -> Any:
        try:
            stream = nv.CodeStream(blob)
            stored_size = {stream.height, stream.width}  # as stored: turned images have the two exchanged
        except RuntimeError:
            return None
        (top, left), (height, width) = corner.tolist(), size.tolist()
        if (top, left) == (0, 0) and {height, width} == stored_size:
            return stream
        return stream.get_sub_code_stream(0, nv.Region(top, left, top + height, left + width))


def regions(windows: Windows, sizes: np.ndarray, filter: str) -> tuple[np.ndarray, np.ndarray]:
    """What to decode of each image so that its window can be scaled: corners and sizes, int64 (n, 2), in pixels.

    The window and what the antialiasing filter reads beyond it, or the whole image if that is most of it.
    sizes: of the images as displayed, int64 (n, 2).
    """
    boxes = windows.boxes
    scale = np.maximum(boxes[:, 2:] / windows.sizes, 1.0)
    margin = np.ceil(scale * _RADIUS[filter]) + 1
    first = np.clip(np.floor(boxes[:, :2] - margin), 0, sizes).astype(np.int64)
    last = np.clip(np.ceil(boxes[:, :2] + boxes[:, 2:] + margin), 0, sizes).astype(np.int64)
    use_all = ((last - first).prod(axis=1) > _WORTH * sizes.prod(axis=1))[:, None]
    first, last = np.where(use_all, 0, first), np.where(use_all, sizes, last)
    return first, last - first
