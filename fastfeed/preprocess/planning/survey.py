"""Content hash, size and dHash of all images, before the plan is made; written in pieces."""

from __future__ import annotations

import hashlib
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any

import numpy as np

from fastfeed.decode.base import DecodeFailure
from fastfeed.decode.pillow_warnings import named
from fastfeed.errors import SourceError
from fastfeed.faults import Failure
from fastfeed.preprocess.inputs.readahead import DEFERRED, known_sizes, read_ahead, read_each
from fastfeed.preprocess.model.layout import JOB
from fastfeed.preprocess.model.recipe import SOURCE_FORMATS, Limits
from fastfeed.preprocess.model.task import (
    FREE_BYTES,
    MemoryLimitError,
    TaskContext,
    to_decode_failure,
)
from fastfeed.preprocess.pixels.decode import Rasterizer, cost
from fastfeed.preprocess.pixels.image_info import ImageInfo, image_info
from fastfeed.preprocess.targets.target import Target
from fastfeed.sources.base import Source

# PLAIN: good, but too uniform for a meaningful dHash
GOOD = 0
BAD = 1
PLAIN = 2
ROW = np.dtype(
    [
        ("id", "<i8"),
        ("sha", "<u8", (2,)),  # first 16 bytes of the SHA-256; 0 if the bytes could not be read
        ("dhash", "<u8"),  # 0 if pixels were not decoded
        ("height", "<i4"),  # as displayed; 0 of bad ones
        ("width", "<i4"),
        ("state", "u1"),  # GOOD, BAD, PLAIN
        ("format", "u1"),  # see `format_name`
        ("bytes", "<i8"),  # of the file
    ]
)
MAX_PIXELS = Limits().max_pixels
_NO_SAMPLE = -1  # no sample is being processed
Reserve = Callable[[int], AbstractContextManager[object]]
_SAVE_S = 0.25  # seconds between two saves of a piece's progress, at least
_SAVE_SHARE = 20.0  # and this many times as long as a save takes
_DONE = "done"  # in the metadata of a piece that is not complete: rows that are filled in
_FAILED = "failed"  # in the metadata: [id, detail] of images that raised an exception
_SEPARATOR = b"\n#survey "  # follows the array, where NumPy ignores it: metadata of the piece


@dataclass(frozen=True, slots=True)
class SurveyTask:
    """Surveys ids [bounds[piece], bounds[piece + 1]) and writes them to `__job/survey`."""

    source: Source
    target: Target
    bounds: np.ndarray  # int64, shape (pieces + 1,), ascending
    need_pixels: bool  # whether to compute dHashes; else only file headers are parsed
    max_pixels: int = MAX_PIXELS  # larger ones are bad
    fingerprint: str = ""  # of the source; computed once, as that may take long

    def __post_init__(self) -> None:
        if not self.fingerprint:
            object.__setattr__(self, "fingerprint", self.source.fingerprint)

    def run(
        self, piece: int, context: TaskContext, poison: Mapping[int, DecodeFailure]
    ) -> dict[str, Any]:
        """As in Task; the summary has "samples" and "bad", both counts."""
        ids = range(int(self.bounds[piece]), int(self.bounds[piece + 1]))
        about = self.fingerprint, ids.start, ids.stop, self.need_pixels, self.max_pixels
        complete = _load_piece(self.target.read(piece_name(piece)))
        if complete is not None and _fits(complete[1], *about):  # by another part of the job
            return _summary(complete[0])
        metadata = _metadata(*about)
        rows, failed, done = self._begun(piece, ids, metadata)
        hasher = ImageHasher(self.max_pixels)
        saves = _Saves()
        remaining = [i for i in ids[done:] if i not in poison]
        with read_ahead(self.source, remaining, lambda: context.begin(_NO_SAMPLE)) as blobs:
            for i, blob, _ in blobs:
                if detail := self._fill_row(rows[i - ids.start], blob, hasher, context):
                    failed[i] = detail
                if saves.due():
                    context.begin(_NO_SAMPLE)  # a slow target must not count against its timeout
                    with saves.timed():
                        count = i - ids.start + 1
                        content = _dump_piece(rows[:count], metadata | {_DONE: count}, failed)
                        self.target.write(begun_name(piece), content)
        context.begin(_NO_SAMPLE)
        self.target.write(piece_name(piece), _dump_piece(rows, metadata, failed))
        return _summary(rows)

    def _begun(
        self, piece: int, ids: range, metadata: dict[str, Any]
    ) -> tuple[np.ndarray, dict[int, str], int]:
        """Rows of a piece, failures, and the number of rows that an interrupted run filled in."""
        rows = np.zeros(len(ids), ROW)
        rows["id"] = ids
        rows["state"] = BAD
        loaded = _load_piece(self.target.read(begun_name(piece)))
        count = 0 if loaded is None else len(loaded[0])
        if loaded is None or count > len(ids) or loaded[1] != metadata | {_DONE: count}:
            return rows, {}, 0
        rows[:count] = loaded[0]
        return rows, loaded[2], count

    def alone(self, sample: int, context: TaskContext) -> None:
        """Run one sample and discard the result, as in Task."""
        row = np.zeros(1, ROW)[0]
        row["id"] = sample
        self._fill_row(row, DEFERRED, ImageHasher(self.max_pixels), context)

    def _fill_row(self, row: Any, blob: Any, hasher: ImageHasher, context: TaskContext) -> str:
        """Fill in a row from a result of `read_ahead`; returns an unforeseen exception's text."""
        sample = int(row["id"])
        try:
            if blob is not DEFERRED:
                context.begin(sample)
                self._inspect(row, blob, hasher, context.room)
                return ""
            blob_bytes = known_sizes(self.source, [sample])[0]
            extra = FREE_BYTES
            while extra:  # reserve memory for the file and for typical decoding before reading it
                context.begin(_NO_SAMPLE)  # waiting for memory must not count against its timeout
                with context.room(blob_bytes + extra):
                    (blob,) = read_each(self.source, [sample])
                    context.begin(sample)
                    extra = self._inspect(row, blob, hasher, nullcontext, extra)
                    del blob
        except (MemoryLimitError, MemoryError):  # reported again by its shard
            row["state"] = BAD
        except Exception as error:
            row["state"] = BAD
            return to_decode_failure(error).detail
        return ""

    def _inspect(
        self, row: Any, blob: Any, hasher: ImageHasher, reserve: Reserve, limit: int = 1 << 62
    ) -> int:
        """Fill in a row and return 0, or return the bytes needed if more than `limit`."""
        row["state"] = BAD
        if isinstance(blob, Failure):
            return 0
        with named(partial(self.source.uri, int(row["id"]))):
            return self._inspect_file(row, blob, hasher, reserve, limit)

    def _inspect_file(
        self, row: Any, blob: Any, hasher: ImageHasher, reserve: Reserve, limit: int
    ) -> int:
        row["sha"] = sha256_prefix(blob)
        info = hasher.inspect(blob)
        if isinstance(info, DecodeFailure):
            return 0
        looks: tuple[int, bool] | DecodeFailure = (0, True)
        if self.need_pixels:
            need = hasher.need(blob, info)
            if need > limit:
                return need
            with reserve(need):
                looks = hasher.dhash(blob, info)
        if not isinstance(looks, DecodeFailure):
            row["height"], row["width"], row["dhash"] = info.height, info.width, looks[0]
            row["state"] = PLAIN if looks[1] else GOOD
            row["bytes"] = len(blob)
            is_named = info.format in SOURCE_FORMATS
            row["format"] = SOURCE_FORMATS.index(info.format) + 1 if is_named else 0
        return 0


class _Saves:
    """Times at which a piece's progress is saved, seldom if writing is slow."""

    def __init__(self) -> None:
        self._next = monotonic() + _SAVE_S

    def due(self) -> bool:
        return monotonic() >= self._next

    @contextmanager
    def timed(self) -> Iterator[None]:
        started = monotonic()
        yield
        ended = monotonic()
        self._next = ended + max(_SAVE_S, _SAVE_SHARE * (ended - started))


@dataclass(frozen=True, slots=True, eq=False)
class Survey:
    """Survey results of all images, 50 bytes each."""

    rows: np.ndarray  # ROW, shape (n,); row i is of id i
    # detail by id of images that raised an exception
    failed: dict[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def bad(self) -> np.ndarray:
        """Images that could not be read or decoded: bool, shape (n,)."""
        return self.rows["state"] == BAD


def format_name(number: int) -> str:
    """The format for a row's number; "" for formats without a name."""
    return SOURCE_FORMATS[number - 1] if number else ""


def piece_name(piece: int) -> str:
    """Name of a complete piece's file below the target."""
    return f"{JOB}/survey/{piece:06d}.npy"


def begun_name(piece: int) -> str:
    """Name of the file that keeps the progress of a piece."""
    return f"{JOB}/survey/{piece:06d}.begun"


def completed_pieces(
    target: Target,
    bounds: np.ndarray,
    fingerprint: str,
    need_pixels: bool = False,
    max_pixels: int = MAX_PIXELS,
    earlier: Iterable[tuple[int, str]] = (),
) -> set[int]:
    """Pieces that are complete, of this source and these bounds, with dHashes if needed.

    `earlier`: (number of images, fingerprint) of the source before images were appended, each time.
    """
    done = set()
    for piece in range(len(bounds) - 1):
        first = int(bounds[piece])
        last = int(bounds[piece + 1])
        loaded = _load_piece(target.read(piece_name(piece)))
        of = next((before for length, before in earlier if last <= length), fingerprint)
        if loaded is not None and _fits(loaded[1], of, first, last, need_pixels, max_pixels):
            done.add(piece)
    return done


def load_survey(target: Target, pieces: Iterable[int]) -> Survey:
    """Load all pieces in order. SourceError if one is missing, or if they are not of one survey."""
    parts = []
    failed: dict[int, str] = {}
    for piece in pieces:
        loaded = _load_piece(target.read(piece_name(piece)))
        if loaded is None or _DONE in loaded[1]:
            raise SourceError(
                f"{piece_name(piece)} in {target.text} is missing or damaged; run the same command"
                " again"
            )
        parts.append(loaded[0])
        failed |= loaded[2]
    rows = np.concatenate(parts) if parts else np.zeros(0, ROW)
    if not np.array_equal(rows["id"], np.arange(len(rows))):
        raise SourceError(
            f"the pieces of {JOB}/survey in {target.text} are not of one survey: remove that folder"
            " and run again"
        )
    return Survey(rows, failed)


def _metadata(
    fingerprint: str, first: int, last: int, pixels: bool, max_pixels: int
) -> dict[str, Any]:
    about = {"version": 1, "fingerprint": fingerprint, "bounds": [first, last]}
    return {**about, "pixels": pixels, "max_pixels": max_pixels}


def _fits(
    metadata: dict[str, Any], fingerprint: str, first: int, last: int, pixels: bool, max_pixels: int
) -> bool:
    """True if a piece is complete, of this source, and with dHashes if needed."""
    have = metadata.get("pixels") or pixels
    return metadata == _metadata(fingerprint, first, last, have, max_pixels)


def _summary(rows: np.ndarray) -> dict[str, Any]:
    return {"samples": len(rows), "bad": int((rows["state"] == BAD).sum())}


def _dump_piece(rows: np.ndarray, metadata: dict[str, Any], failed: dict[int, str]) -> bytes:
    metadata = metadata | ({_FAILED: sorted(failed.items())} if failed else {})
    file = io.BytesIO()
    np.save(file, rows)
    array = file.getvalue()
    footer = json.dumps(metadata | {"crc32": zlib.crc32(array)}, sort_keys=True)
    return array + _SEPARATOR + footer.encode() + b"\n"


def _load_piece(content: bytes | None) -> tuple[np.ndarray, dict[str, Any], dict[int, str]] | None:
    """Rows, metadata and failures of a piece; None if it is incomplete or damaged."""
    array, _, footer = (content or b"").rpartition(_SEPARATOR)
    try:
        metadata = json.loads(footer)
        if not isinstance(metadata, dict) or metadata.pop("crc32", None) != zlib.crc32(array):
            return None
        rows = np.load(io.BytesIO(array), allow_pickle=False)
        failed = {int(i): str(detail) for i, detail in metadata.pop(_FAILED, ())}
    except (ValueError, EOFError, TypeError):
        return None
    return (rows, metadata, failed) if rows.dtype == ROW else None


# cells that are compared; each is the mean of _CELL x _CELL pixels of the reduced image
ROWS = 8
COLUMNS = 9
_CELL = 8
_REDUCED = (ROWS * _CELL, COLUMNS * _CELL)
_LUMA = np.array([299, 587, 114], np.int64)  # BT.601, thousandths
_LEVEL = 1000 * _CELL * _CELL  # a gray level of 255, in sums over a cell
# 20 of 64 differences must be >= 2 levels: else most bits are noise
_MIN_STEP = 2
_MIN_STEPS = 20
_MIN_BORDERS = 16  # of 112 neighboring bits that must differ: else it is a gradient or a vignette


def sha256_prefix(blob: Any) -> np.ndarray:
    """The first 16 bytes of the SHA-256: uint64, shape (2,)."""
    return np.frombuffer(hashlib.sha256(blob).digest(), "<u8", 2)


def dhash(pixels: np.ndarray) -> tuple[int, bool]:
    """64 bits: is a cell brighter than its left neighbor? And True if too uniform.

    pixels: uint8 (64, 72, 3), the image reduced with antialiasing. After Krawetz, "Kind of Like
    That" (2013).
    """
    gray = pixels.astype(np.int64) @ _LUMA
    cells = gray.reshape(ROWS, _CELL, COLUMNS, _CELL).sum(axis=(1, 3))
    steps = np.diff(cells, axis=1)
    bits = steps > 0
    borders = int((bits[1:] != bits[:-1]).sum() + (bits[:, 1:] != bits[:, :-1]).sum())
    plain = int((abs(steps) >= _MIN_STEP * _LEVEL).sum()) < _MIN_STEPS or borders < _MIN_BORDERS
    return int.from_bytes(np.packbits(bits).tobytes(), "big"), plain


class ImageHasher:
    """Computes dHashes of files: upright, on white, in sRGB, downscaled while decoding."""

    def __init__(self, max_pixels: int) -> None:
        self._rasterizer = Rasterizer(filter="area", max_pixels=max_pixels)
        self._max_pixels = max_pixels

    def inspect(self, blob: bytes) -> ImageInfo | DecodeFailure:
        """Information from the file's header."""
        return image_info(blob, self._max_pixels)

    def need(self, blob: bytes, info: ImageInfo) -> int:
        """Peak memory of `dhash` in bytes, in addition to the file."""
        box = (0.0, 0.0, float(info.height), float(info.width))
        return cost(info, len(blob), box, _REDUCED, "area")

    def dhash(self, blob: bytes, info: ImageInfo) -> tuple[int, bool] | DecodeFailure:
        """Compute the hash as the function `dhash`."""
        box = (0.0, 0.0, float(info.height), float(info.width))
        pixels = self._rasterizer.pixels(blob, info, box, _REDUCED)
        return pixels if isinstance(pixels, DecodeFailure) else dhash(pixels)
