"""A glance at every photograph before the plan is made: bytes, size and looks of each, kept piece by piece."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.decode.base import Bad
from fastfeed.errors import SourceError
from fastfeed.faults import Failure
from fastfeed.preprocess.inputs.readahead import DEFERRED, known_sizes, read_ahead
from fastfeed.preprocess.recipe import Limits
from fastfeed.preprocess.survey.hashes import ImageHasher, sha256_prefix
from fastfeed.preprocess.targets.target import Target
from fastfeed.preprocess.task import FREE_BYTES, MemoryLimitError, TaskContext
from fastfeed.sources.base import Source

__all__ = ["BAD", "GOOD", "PLAIN", "ROW", "Survey", "SurveyTask", "completed_pieces", "load_survey", "piece_name"]

GOOD, BAD, PLAIN = 0, 1, 2  # PLAIN: good, but too little is to be seen for its dHash to mean anything
ROW = np.dtype(
    [
        ("id", "<i8"),
        ("sha", "<u8", (2,)),  # first 16 bytes of the SHA-256; 0 where the bytes could not be read
        ("dhash", "<u8"),  # 0 where pixels were not looked at
        ("height", "<i4"),  # as displayed; 0 of bad ones
        ("width", "<i4"),
        ("state", "u1"),  # GOOD, BAD, PLAIN
    ]
)
MAX_PIXELS = Limits().max_pixels
_NOBODY = -1  # no photograph's fault
Room = Callable[[int], AbstractContextManager[None]]
_MARK = b"\n#survey "  # behind the array, which NumPy reads without it: what the piece was made of


@dataclass(frozen=True, slots=True)
class SurveyTask:
    """Looks at ids [bounds[piece], bounds[piece + 1]) and writes `_job/survey/000012.npy`."""

    source: Source
    target: Target
    bounds: np.ndarray  # int64, shape (pieces + 1,), ascending
    need_pixels: bool  # dHashes too; without, files are read and their headers looked at
    max_pixels: int = MAX_PIXELS  # larger ones are bad
    fingerprint: str = ""  # of the source; asked for once, since that may take a while

    def __post_init__(self) -> None:
        if not self.fingerprint:
            object.__setattr__(self, "fingerprint", self.source.fingerprint)

    def run(self, piece: int, watch: TaskContext, poison: Mapping[int, Bad]) -> dict[str, Any]:
        """As in Task: how many "samples", and how many of them are "bad"."""
        ids = range(int(self.bounds[piece]), int(self.bounds[piece + 1]))
        rows = np.zeros(len(ids), ROW)
        rows["id"] = ids
        rows["state"] = BAD
        eye = ImageHasher(self.max_pixels)
        with read_ahead(self.source, [i for i in ids if i not in poison], lambda: watch.begin(_NOBODY)) as found:
            for i, blob, _ in found:
                self._look(rows[i - ids.start], blob, eye, watch)
        watch.begin(_NOBODY)
        about = _about(self.fingerprint, ids.start, ids.stop, self.need_pixels, self.max_pixels)
        self.target.write(piece_name(piece), _packed(rows, about))
        return {"samples": len(ids), "bad": int((rows["state"] == BAD).sum())}

    def alone(self, sample: int, watch: TaskContext) -> None:
        """As in Task."""
        row = np.zeros(1, ROW)[0]
        row["id"] = sample
        self._look(row, DEFERRED, ImageHasher(self.max_pixels), watch)

    def _look(self, row: Any, found: Any, eye: ImageHasher, watch: TaskContext) -> None:
        """Fills in a row of which `reading` gave this."""
        sample = int(row["id"])
        try:
            if found is not DEFERRED:
                watch.begin(sample)
                self._see(row, found, eye, watch.room)
                return
            held, free = known_sizes(self.source, [sample])[0], FREE_BYTES
            while free:  # with room for its bytes from before they are read, and for what decoding them usually takes
                watch.begin(_NOBODY)  # waiting for room is not its fault
                with watch.room(held + free):
                    (found,) = self.source.read([sample])
                    watch.begin(sample)
                    free = self._see(row, found, eye, _enough, free)
                    del found
        except MemoryLimitError:  # its shard says so, too
            row["state"] = BAD

    def _see(self, row: Any, blob: Any, eye: ImageHasher, room: Room, free: int = 1 << 62) -> int:
        """What decoding it needs, where that is more than is `free`, and nothing was done; else 0."""
        row["state"] = BAD
        if isinstance(blob, Failure):
            return 0
        row["sha"] = sha256_prefix(blob)
        seen = eye.inspect(blob)
        if isinstance(seen, Bad):
            return 0
        looks: tuple[int, bool] | Bad = (0, True)
        if self.need_pixels:
            need = eye.need(blob, seen)
            if need > free:
                return need
            with room(need):
                looks = eye.dhash(blob, seen)
        if not isinstance(looks, Bad):
            row["height"], row["width"], row["dhash"] = seen.height, seen.width, looks[0]
            row["state"] = PLAIN if looks[1] else GOOD
        return 0


@dataclass(frozen=True, slots=True, eq=False)
class Survey:
    """All that is known of the photographs: 41 bytes each."""

    rows: np.ndarray  # ROW, shape (n,); row i is of id i

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def bad(self) -> np.ndarray:
        """Which could not be read or decoded: bool, shape (n,). Their shards say why."""
        return self.rows["state"] == BAD


def _enough(need: int) -> AbstractContextManager[None]:
    """Room that is there already."""
    return nullcontext()


def piece_name(piece: int) -> str:
    """Of a piece's file, below the target."""
    return f"_job/survey/{piece:06d}.npy"


def completed_pieces(
    target: Target,
    bounds: np.ndarray,
    fingerprint: str,
    need_pixels: bool = False,
    max_pixels: int = MAX_PIXELS,
) -> set[int]:
    """Pieces that are there and were made of this source, by these bounds, with the pixels that are needed."""
    done = set()
    for piece in range(len(bounds) - 1):
        first, last = int(bounds[piece]), int(bounds[piece + 1])
        found = _unpacked(target.read(piece_name(piece)))
        if found is not None and any(
            found[1] == _about(fingerprint, first, last, pixels, max_pixels) for pixels in {need_pixels, True}
        ):
            done.add(piece)
    return done


def load_survey(target: Target, pieces: Iterable[int]) -> Survey:
    """All pieces, in this order. SourceError where one is missing or they are not of one survey."""
    parts = []
    for piece in pieces:
        found = _unpacked(target.read(piece_name(piece)))
        if found is None:
            raise SourceError(f"{piece_name(piece)} in {target.text} is missing or damaged; run the same command again")
        parts.append(found[0])
    rows = np.concatenate(parts) if parts else np.zeros(0, ROW)
    if not np.array_equal(rows["id"], np.arange(len(rows))):
        raise SourceError(
            f"the pieces of _job/survey in {target.text} do not fit together: remove that folder and run again"
        )
    return Survey(rows)


def _about(fingerprint: str, first: int, last: int, pixels: bool, max_pixels: int) -> dict[str, Any]:
    bounds = [first, last]
    return {"version": 1, "fingerprint": fingerprint, "bounds": bounds, "pixels": pixels, "max_pixels": max_pixels}


def _packed(rows: np.ndarray, about: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, rows)
    array = file.getvalue()
    return array + _MARK + json.dumps(about | {"crc32": zlib.crc32(array)}, sort_keys=True).encode() + b"\n"


def _unpacked(content: bytes | None) -> tuple[np.ndarray, dict[str, Any]] | None:
    """Rows, and what they were made of; None where that is not one whole piece."""
    array, _, end = (content or b"").rpartition(_MARK)
    try:
        about = json.loads(end)
        if not isinstance(about, dict) or about.pop("crc32", None) != zlib.crc32(array):
            return None
        rows = np.load(io.BytesIO(array), allow_pickle=False)
    except (ValueError, EOFError):
        return None
    return (rows, about) if rows.dtype == ROW else None
