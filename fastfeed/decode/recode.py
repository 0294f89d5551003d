"""Recodes images as smaller JPEGs: decode, crop, scale and encode in one native call per batch."""

from __future__ import annotations

import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from threading import Event

import numpy as np
from PIL import Image

from fastfeed.decode.base import DECLINED, DecodeFailure, Header, Request, Stop
from fastfeed.decode.native import NativeEngine, is_built
from fastfeed.decode.pillow import PillowEngine
from fastfeed.distributed.cores import cores_for
from fastfeed.distributed.world import World
from fastfeed.errors import ConfigError
from fastfeed.ops.base import Op, check_integer
from fastfeed.ops.decode import Decode
from fastfeed.ops.program.compile import fuse
from fastfeed.printable import log
from fastfeed.runtime.extension import formats
from fastfeed.spec import ENCODED

__all__ = ["Recoder"]


SUBSAMPLINGS = ("4:2:0", "4:4:4")
_MAX_SIDE = 65_500  # pixels of a JPEG that libjpeg writes


class Recoder:
    """Recodes files as upright baseline JPEGs of RGB pixels, without metadata.

    The same file gives the same bytes for any number of threads and any batch. The native extension
    scales luma and chroma of a JPEG one by one, where at least half of the picture is kept; Pillow
    scales RGB pixels: luma differs by a level or so, fine detail in saturated colors by more. Safe
    to call from several threads.

    Args:
        ops (Sequence[Op]): Geometry without randomness and borders; sizes may differ from file to
            file.
        quality (int): In [1, 100], on libjpeg's scale. Default: 90.
        subsampling (str): "4:2:0" halves chroma both ways, "4:4:4" keeps it. Default: "4:2:0".
        optimize (bool): Huffman tables made for each file: the same pixels in fewer bytes, more
            slowly. Default: False.
        threads (int | None): At least 1. Default: None, this process's share of the cores.
        decode (str): "auto" (the native extension if built, and Pillow for what it does not
            decode), "native" (an error if it is not built) or "pillow". Default: "auto".

    Raises:
        ConfigError: If an argument is out of range, or an op is random or no geometry.

    Example:
        >>> from pathlib import Path
        >>> from fastfeed.decode import Recoder
        >>> recoder = Recoder([ff.Resize(16, filter="lanczos")], quality=90)
        >>> small, bad = recoder([Path("photos/cat/0000.jpg").read_bytes(), b"no image"])
        >>> small[:3], bad.reason
        (b'\\xff\\xd8\\xff', 'not_image')
    """

    def __init__(
        self,
        ops: Sequence[Op],
        *,
        quality: int = 90,
        subsampling: str = "4:2:0",
        optimize: bool = False,
        threads: int | None = None,
        decode: str = "auto",
    ) -> None:
        check_integer("quality", quality, 1, 100)
        if subsampling not in SUBSAMPLINGS:
            raise ConfigError.of("subsampling", f"one of {', '.join(SUBSAMPLINGS)}", subsampling)
        if threads is not None:
            check_integer("threads", threads, 1)
        if decode not in ("auto", "native", "pillow"):
            raise ConfigError.of("decode", "auto, native or pillow", decode)
        self._program = fuse(ops, ENCODED, fixed=False)
        for step in self._program.steps:
            if step.op.draws:
                raise ConfigError(
                    f"{step.op} is random, but recoding must be deterministic", field="ops"
                )
            if (
                step.op.kind not in ("decode", "geometry")
                or getattr(step.op, "border", None) is not None
            ):
                raise ConfigError(
                    "a recoder's ops must be geometry without a border, such as Resize(512), got"
                    f" {step.op}",
                    field="ops",
                )
        self.quality = quality
        self.subsampling = subsampling
        self.optimize = optimize
        self.threads = threads or cores_for(World.detect())
        self._decode = self._program.decode or Decode()
        self._pillow = PillowEngine(self._decode)
        self._native = None
        if decode == "native" or (decode == "auto" and is_built()):
            self._native = NativeEngine(self._decode, self.threads)
        elif decode == "auto":
            _warn_not_built()

    def __repr__(self) -> str:
        tables = ", optimized" if self.optimize else ""
        engine = (
            f"native for {', '.join(formats())}, Pillow for the rest" if self._native else "Pillow"
        )
        return (
            f"Recoder(JPEG, quality {self.quality}, {self.subsampling}{tables}, {engine},"
            f" {self.threads} threads)"
        )

    def __call__(
        self, blobs: Sequence[bytes], stop: Stop | None = None
    ) -> list[bytes | DecodeFailure]:
        """Recode the files: the new bytes of each, or the reason for a failure.

        Never raises for the content of a file.

        Once `stop` is set the call returns early, and its result is meaningless.
        """
        stop = stop or Event()
        results: list[bytes | DecodeFailure] = [DecodeFailure("cancelled")] * len(blobs)
        remaining = list(range(len(blobs)))
        if self._native:
            rows, request = self._request(blobs, self._native.probe(blobs), results)
            subsampled = self.subsampling == "4:2:0"
            files = self._native.recode(request, self.quality, subsampled, self.optimize, stop)
            for i, file in zip(rows, files, strict=True):
                results[i] = file
            remaining = [
                i
                for i, result in enumerate(results)
                if isinstance(result, DecodeFailure) and result.reason in DECLINED
            ]
        if remaining and not stop.is_set():
            with ThreadPoolExecutor(self.threads) as pool:
                for i, file in zip(
                    remaining,
                    pool.map(lambda i: self._recode_one(blobs[i], stop), remaining),
                    strict=True,
                ):
                    results[i] = file
        return results

    def _request(
        self,
        blobs: Sequence[bytes],
        headers: Sequence[Header | DecodeFailure],
        results: list[bytes | DecodeFailure],
    ) -> tuple[list[int], Request]:
        """The samples that can be recoded, and their request.

        Reasons of the others go to `results`.
        """
        good = [i for i, header in enumerate(headers) if isinstance(header, Header)]
        for i, header in enumerate(headers):
            if isinstance(header, DecodeFailure):
                results[i] = header
        valid = [header for header in headers if isinstance(header, Header)]
        sizes = np.array([(header.height, header.width) for header in valid], np.int64).reshape(
            -1, 2
        )
        windows = self._program.windows(
            self._program.draw(lambda slot, n: np.empty((len(good), n))), sizes
        )
        fits = np.all(windows.sizes <= _MAX_SIDE, axis=1) & (
            windows.sizes.prod(axis=1) <= self._decode.max_pixels
        )
        for row in np.flatnonzero(~fits):
            height, width = windows.sizes[row]
            limits = (
                f"a JPEG has at most {_MAX_SIDE} a side, and the limit is {self._decode.max_pixels}"
            )
            results[good[row]] = DecodeFailure(
                "bomb", f"would become {width}x{height} pixels; {limits}"
            )
        request = Request([blobs[i] for i in good], valid, windows, self._program.filter)
        rows = np.flatnonzero(fits).tolist()
        return [good[row] for row in rows], request[rows]

    def _recode_one(self, blob: bytes, stop: Stop) -> bytes | DecodeFailure:
        results: list[bytes | DecodeFailure] = [DecodeFailure("cancelled")]
        rows, request = self._request([blob], self._pillow.probe([blob]), results)
        if not rows or stop.is_set():
            return results[0]
        height, width = request.windows.sizes[0]
        try:
            out = np.empty((1, height, width, 3), np.uint8)
            (bad,) = self._pillow.decode(request, out, stop)
            return bad or self._written(out[0])
        except MemoryError:
            return DecodeFailure("oom", f"no memory for {width}x{height} pixels")

    def _written(self, pixels: np.ndarray) -> bytes:
        file = io.BytesIO()
        Image.fromarray(pixels).save(
            file,
            "JPEG",
            quality=self.quality,
            subsampling=self.subsampling,
            optimize=self.optimize,
            progressive=False,
        )
        return file.getvalue()


@lru_cache(maxsize=1)
def _warn_not_built() -> None:
    log.warning(
        "The native extension is not part of this installation: JPEGs are decoded by Pillow, which"
        ' is slower. `fastfeed doctor` says what to install; decode="pillow" silences this.'
    )
