"""A glance at every photograph before the plan is made: bytes, size and looks of each, kept piece by piece."""

from __future__ import annotations

import io
import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.decode.base import Bad
from fastfeed.errors import SourceError
from fastfeed.faults import Failure
from fastfeed.ops.decode import Decode
from fastfeed.preprocess.hashes import Eye, sha
from fastfeed.preprocess.target import Target
from fastfeed.preprocess.work import Watch
from fastfeed.sources.base import Fetching, Source

__all__ = ["BAD", "GOOD", "PLAIN", "ROW", "Survey", "SurveyTask", "load_survey", "piece_name", "survey_done"]

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
MAX_PIXELS = Decode().max_pixels
_AHEAD = 16  # reads from storage that are under way
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

    def run(self, piece: int, watch: Watch, poison: Mapping[int, Bad]) -> dict[str, Any]:
        """As in Task: how many "samples", and how many of them are "bad"."""
        ids = range(int(self.bounds[piece]), int(self.bounds[piece + 1]))
        rows = np.zeros(len(ids), ROW)
        rows["id"] = ids
        rows["state"] = BAD
        eye = Eye(Decode(max_pixels=self.max_pixels))
        for i, blob in _blobs(self.source, [i for i in ids if i not in poison], watch):
            self._look(rows[i - ids.start], blob, eye, watch)
        about = _about(self.fingerprint, ids.start, ids.stop, self.need_pixels, self.max_pixels)
        self.target.write(piece_name(piece), _packed(rows, about))
        return {"samples": len(ids), "bad": int((rows["state"] == BAD).sum())}

    def alone(self, sample: int, watch: Watch) -> None:
        """As in Task."""
        for _, blob in _blobs(self.source, [sample], watch):
            self._look(np.zeros(1, ROW)[0], blob, Eye(Decode(max_pixels=self.max_pixels)), watch)

    def _look(self, row: Any, blob: Any, eye: Eye, watch: Watch) -> None:
        if isinstance(blob, Failure):
            return
        row["sha"] = sha(blob)
        found = eye.look(blob, self.need_pixels, watch.room)
        if not isinstance(found, Bad):
            row["dhash"], row["height"], row["width"] = found.dhash, found.height, found.width
            row["state"] = PLAIN if found.plain else GOOD


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


def piece_name(piece: int) -> str:
    """Of a piece's file, below the target."""
    return f"_job/survey/{piece:06d}.npy"


def survey_done(
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


def _blobs(source: Source, ids: Sequence[int], watch: Watch) -> Iterator[tuple[int, Any]]:
    """Each id and what was read of it, in their order; what is remote is begun ahead."""
    if not (isinstance(source, Fetching) and source.remote):
        for i in ids:
            watch.begin(i)
            yield i, source.read([i])[0]
        return
    pending = deque(zip(ids[:_AHEAD], source.fetch(ids[:_AHEAD]), strict=True))
    rest = iter(ids[_AHEAD:])
    while pending:
        i, read = pending.popleft()
        watch.begin(i)
        blob = read.result()
        pending.extend((more, source.fetch([more])[0]) for more in [next(rest, None)] if more is not None)
        yield i, blob


def _about(fingerprint: str, first: int, last: int, pixels: bool, max_pixels: int) -> dict[str, Any]:
    bounds = [first, last]
    return {"version": 1, "fingerprint": fingerprint, "bounds": bounds, "pixels": pixels, "max_pixels": max_pixels}


def _packed(rows: np.ndarray, about: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, rows)
    return file.getvalue() + _MARK + json.dumps(about, sort_keys=True).encode() + b"\n"


def _unpacked(content: bytes | None) -> tuple[np.ndarray, dict[str, Any]] | None:
    """Rows, and what they were made of; None where that is not one whole piece."""
    if content is None:
        return None
    array, _, about = content.rpartition(_MARK)
    try:
        rows, known = np.load(io.BytesIO(array), allow_pickle=False), json.loads(about)
    except (ValueError, EOFError, OSError):
        return None
    first, last = known.get("bounds", (0, -1))
    return (rows, known) if rows.dtype == ROW and len(rows) == last - first else None
