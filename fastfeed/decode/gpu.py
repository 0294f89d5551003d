"""nvImageCodec: decodes batches on a GPU, or on the CPU without one, with a status per image."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastfeed.errors import MissingExtra
from fastfeed.gpu_support import runs_on_gpu
from fastfeed.ops.program.compile import Windows

try:
    from nvidia import nvimgcodec as nv
except ImportError as error:
    raise MissingExtra(
        "GPU decoding needs nvImageCodec: pip install 'fastfeed[cuda13]', or 'fastfeed[cuda12]' for"
        " an older driver"
    ) from error

__all__ = ["NvImageCodec", "regions"]

# of the filters, in pixels of the result
_RADIUS = {
    "box": 0.5,
    "bilinear": 1.0,
    "bicubic": 2.0,
    "lanczos": 3.0,
}
# Fancy upsampling, as in the CPU decoder. nvJPEG before 13.2 then errs in the outermost pixel of a
# region, which no filter reads; without the second option nvImageCodec would leave such regions to
# the CPU.
_OPTIONS = ":fancy_upsampling=1 :enable_roi_fancy_upsampling=1"
_WORTH = 0.7  # above this share of the image, the whole image is decoded instead of a region


@runs_on_gpu("dali")
class NvImageCodec:
    """Decodes one batch at a time.

    NVIDIA's hardware JPEG engine was observed to write without waiting for its stream, over memory
    that was still in use. So it writes only to images that this decoder owns: they are reused by
    the next call, and only after the caller has waited for everything that reads them (`decode`
    must not be called before).
    """

    def __init__(self, device: int | None, threads: int, hw_load: float | None = None) -> None:
        """hw_load: share of JPEGs for the hardware engine of a GPU, in [0, 1]; None: all that it
        decodes.
        """
        self._xp: Any = np if device is None else importlib.import_module("cupy")
        if device is None:
            kinds = {
                "device_id": nv.NVIMGCODEC_DEVICE_CPU_ONLY,
                "backends": [nv.Backend(nv.BackendKind.CPU_ONLY)],
            }
        else:
            kinds = {"device_id": device} | (
                {} if hw_load is None else {"backends": _backends(hw_load)}
            )
        self._decoder = nv.Decoder(max_num_cpu_threads=threads, options=_OPTIONS, **kinds)
        self._params = nv.DecodeParams(
            sample_format=nv.SampleFormat.I_RGB, color_spec=nv.ColorSpec.SRGB
        )
        self._images: list[Any] = []  # that this decoder may write to
        # the stream on which these images free their memory, so it must outlive them
        self._reader: Any = None

    def decode(self, blobs: Sequence[Any], corners: np.ndarray, sizes: np.ndarray) -> list[Any]:
        """Pixels of one region each, uint8 (height, width, 3), valid until the next call; None for
        images not decoded.

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
        reuse = (
            {"images": self._images[: len(streams)]} if len(self._images) >= len(streams) else {}
        )
        self._reader = None if self._xp is np else self._xp.cuda.get_current_stream()
        on = 0 if self._reader is None else self._reader.ptr
        images = self._decoder.decode(streams, params=self._params, cuda_stream=on, **reuse)
        if not reuse:
            self._images = [image for image in images if image is not None]
        for row, image in zip(rows, images, strict=True):
            if image is not None and tuple(image.shape[:2]) == tuple(sizes[row]):
                # rows may be padded
                decoded[row] = self._xp.ascontiguousarray(self._xp.asarray(image))
        return decoded

    @staticmethod
    def _stream(blob: Any, corner: np.ndarray, size: np.ndarray) -> Any:
        try:
            stream = nv.CodeStream(blob)
            # as stored: turned images have the two exchanged
            stored_size = {
                stream.height,
                stream.width,
            }
        except RuntimeError:
            return None
        (top, left), (height, width) = corner.tolist(), size.tolist()
        if (top, left) == (0, 0) and {height, width} == stored_size:
            return stream
        return stream.get_sub_code_stream(0, nv.Region(top, left, top + height, left + width))


def _backends(hw_load: float) -> list[Any]:
    """All that nvImageCodec has for a GPU.

    The engine takes its share of the first batch, in whole mini-batches, and no more than so many
    of those after it; the others take the rest, and what it cannot decode.
    """
    kind = nv.BackendKind
    others = (kind.GPU_ONLY, kind.HYBRID_CPU_GPU, kind.CPU_ONLY)
    return [nv.Backend(kind.HW_GPU_ONLY, load_hint=hw_load), *map(nv.Backend, others)]


def regions(windows: Windows, sizes: np.ndarray, filter: str) -> tuple[np.ndarray, np.ndarray]:
    """What to decode of each image so that its window can be scaled: corners and sizes, int64 (n,
    2), in pixels.

    The window and what the antialiasing filter reads beyond it, or the whole image if that is most
    of it. sizes: of the images as displayed, int64 (n, 2).
    """
    boxes = windows.boxes
    scale = np.maximum(boxes[:, 2:] / windows.sizes, 1.0)
    margin = np.ceil(scale * _RADIUS[filter]) + 1
    first = np.clip(np.floor(boxes[:, :2] - margin), 0, sizes).astype(np.int64)
    last = np.clip(np.ceil(boxes[:, :2] + boxes[:, 2:] + margin), 0, sizes).astype(np.int64)
    use_all = ((last - first).prod(axis=1) > _WORTH * sizes.prod(axis=1))[:, None]
    first, last = np.where(use_all, 0, first), np.where(use_all, sizes, last)
    return first, last - first
