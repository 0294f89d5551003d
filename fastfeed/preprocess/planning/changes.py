"""What differs between the source of a job and the source now: photographs, labels, captions and
columns.
"""

from __future__ import annotations

import io
import json
import os
import re
import unicodedata
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from fastfeed.faults import Failure
from fastfeed.preprocess.inputs.inputs import Input
from fastfeed.preprocess.model.layout import JOB
from fastfeed.preprocess.model.plan import JobPlan, plan_files
from fastfeed.sources.base import Sharded
from fastfeed.sources.listing.file_table import unpacked
from fastfeed.sources.shards.extra_columns import HasExtraColumns

__all__ = ["Changes", "compare", "describe", "load_samples", "samples_file"]

_ROW = np.dtype(
    [
        ("name", "<u8"),  # hash of the path below the source
        ("size", "<u4"),  # of its bytes' number; 0: not known
        ("label", "<u4"),  # hash of the class's name, or of the number; 0: none
        ("note", "<u4"),  # hash of caption and columns; 0: none, or not compared
    ]
)
_AT_ONCE = 1 << 14  # samples
_FORMS = ("NFC", "NFD")  # of Unicode
_MAGIC = re.compile(r"[*?\[{]")
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # tells samples of one name apart: 2^64 / golden ratio


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """Ids are those of the source now."""

    now: Input
    before: int  # photographs of the job
    added: np.ndarray  # int64: not in the job
    kept: np.ndarray  # int64 (before,): where the job's photographs are now; -1: gone
    resized: np.ndarray  # int64: of another size
    relabeled: np.ndarray  # int64
    unlabeled: bool  # the job has labels, this request has none
    noted: np.ndarray  # int64: with another caption, or other columns

    @property
    def removed(self) -> int:
        """Photographs that are gone."""
        return int(np.count_nonzero(self.kept < 0))

    @property
    def differences(self) -> list[str]:
        """What is not merely added, one line each, after the name of the part that differs."""
        lines = []
        if self.removed == self.before:
            return [f"source: none of the job's {self.before:,} photographs is in {self.now.text}"]
        if self.removed:
            lines.append(
                f"source: {self.removed:,} of the job's {self.before:,} photographs are gone"
            )
        if len(self.resized):
            lines.append(f"source: {self._count(self.resized)} another size now")
        if self.unlabeled and len(self.relabeled):
            lines.append("labels: the job has labels, this request has none")
        elif len(self.relabeled):
            lines.append(f"labels: {self._count(self.relabeled)} another label")
        if len(self.noted):
            lines.append(f"captions or columns: {self._count(self.noted)} other ones")
        return lines

    @property
    def text(self) -> str:
        """`12 more photographs than this job, such as photos/a.jpg`; "" if there are none."""
        if not len(self.added):
            return ""
        noun = "photograph" if len(self.added) == 1 else "photographs"
        return (
            f"{len(self.added):,} more {noun} than this job, such as"
            f" {self.now.source.uri(int(self.added[0]))}"
        )

    def _count(self, ids: np.ndarray) -> str:
        first = self.now.source.uri(int(ids[0]))
        return (
            f"{first} has" if len(ids) == 1 else f"{len(ids):,} photographs, such as {first}, have"
        )


def describe(input: Input) -> np.ndarray:
    """A row for each sample of the source: what it is called, and hashes of what is known of it
    without reading it.
    """
    rows = np.zeros(len(input.source), _ROW)
    names = _names(input)
    for first in range(0, len(rows), _AT_ONCE):
        part = rows[first : first + _AT_ONCE]
        last = first + len(part)
        part["name"] = [_name_hash(next(names)) for _ in part]
        part["size"] = _sizes(input, first, last)
        part["label"] = _labels(input, first, last)
        part["note"] = _notes(input, first, last)
    return rows


def compare(before: np.ndarray, input: Input) -> Changes:
    """From what `describe` returned when the plan was made."""
    now = describe(input)
    _spell_as_before(now, before, input)
    old_keys, new_keys = _keys(before), _keys(now)
    order = np.argsort(new_keys, kind="stable")
    at = np.minimum(np.searchsorted(new_keys, old_keys, sorter=order), len(new_keys) - 1)
    kept = np.where(new_keys[order[at]] == old_keys, order[at], -1).astype(np.int64)
    is_old = np.zeros(len(now), bool)
    is_old[kept[kept >= 0]] = True
    rows, ids = before[kept >= 0], kept[kept >= 0]
    there = now[ids]
    sized = (rows["size"] != there["size"]) & (rows["size"] > 0) & (there["size"] > 0)
    unlabeled = bool(before["label"].any()) and not bool(now["label"].any())
    return Changes(
        input,
        len(before),
        np.flatnonzero(~is_old),
        kept,
        ids[sized],
        ids[rows["label"] != there["label"]],
        unlabeled,
        ids[rows["note"] != there["note"]],
    )


def _spell_as_before(now: np.ndarray, before: np.ndarray, input: Input) -> None:
    """Hash names and classes in the form they had: a copy made by macOS may spell `é` as two
    characters, or as one.
    """
    known = set(before["name"].tolist())
    for row, name in enumerate(_names(input)):
        if not name.isascii() and int(now["name"][row]) not in known:
            hashes = (
                _name_hash(os.fsencode(unicodedata.normalize(form, os.fsdecode(name))))
                for form in _FORMS
            )
            now["name"][row] = next((code for code in hashes if code in known), now["name"][row])
    known = set(before["label"].tolist())
    for text in input.source.classes:
        if not text.isascii() and _label_hash(text) not in known:
            hashes = (_label_hash(unicodedata.normalize(form, text)) for form in _FORMS)
            code = next((code for code in hashes if code in known), _label_hash(text))
            now["label"][now["label"] == _label_hash(text)] = code


def samples_file(plan: JobPlan) -> str:
    """Name of the file with the description of a plan's photographs, in the order of its ids."""
    order = plan_files(plan.head)[0]
    return order.replace(f"{JOB}/order", f"{JOB}/samples")


def load_samples(content: bytes | None) -> np.ndarray | None:
    """From the content of `samples_file`; None if there is none, or it is damaged."""
    try:
        rows = np.load(io.BytesIO(content or b""), allow_pickle=False)
    except (ValueError, EOFError):
        return None
    return rows if rows.dtype == _ROW else None


def _keys(rows: np.ndarray) -> np.ndarray:
    """Names, made different where several samples have the same: uint64."""
    names = rows["name"]
    order = np.argsort(names, kind="stable")
    ranked = names[order]
    starts = (
        np.flatnonzero(np.concatenate([[True], ranked[1:] != ranked[:-1]]))
        if len(ranked)
        else order
    )
    occurrence = np.empty(len(names), np.uint64)
    occurrence[order] = np.arange(len(names)) - np.repeat(
        starts, np.diff(np.append(starts, len(names)))
    )
    return names + occurrence * _SPREAD


def _names(input: Input) -> Iterator[bytes]:
    """Paths below the source, as they are when it is moved."""
    paths = getattr(input.source, "paths", None)
    if paths is not None:
        yield from unpacked(paths)
        return
    magic = _MAGIC.search(input.text)
    prefix = os.path.dirname(input.text[: magic.start()] if magic else input.text.rstrip("/"))
    for i in range(len(input.source)):
        yield os.fsencode(input.source.uri(i).removeprefix(prefix))


def _sizes(input: Input, first: int, last: int) -> np.ndarray:
    source = input.source
    if callable(sizes := getattr(source, "file_sizes", None)):
        found = np.asarray(sizes(first, last))
    elif isinstance(source, Sharded):
        found = np.asarray(source.sizes(np.arange(first, last)))
    else:
        return np.zeros(last - first, np.uint32)
    return np.where(found > 0, found % 0xFFFFFFFF + 1, 0).astype(np.uint32)


def _labels(input: Input, first: int, last: int) -> np.ndarray:
    labels = input.source.label(np.arange(first, last))
    values, which = np.unique(labels, return_inverse=True)
    names = input.source.classes
    texts = [names[label] if 0 <= label < len(names) else str(label) for label in values.tolist()]
    hashes = list(map(_label_hash, texts))
    return np.where(labels < 0, 0, np.array(hashes, np.uint32)[which]).astype(np.uint32)


def _name_hash(name: bytes) -> int:
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "little")


def _label_hash(text: str) -> int:
    return zlib.crc32(os.fsencode(text)) or 1


def _notes(input: Input, first: int, last: int) -> np.ndarray:
    """Return the notes of samples. Those of shards are in the shards and are not read."""
    in_shards = isinstance(input.source, HasExtraColumns) and isinstance(input.source, Sharded)
    if not (input.caption or input.columns) or in_shards:
        return np.zeros(last - first, np.uint32)
    notes = input.notes(range(first, last))
    texts = [
        "" if isinstance(note, Failure) else json.dumps(note, sort_keys=True) for note in notes
    ]
    return np.array([zlib.crc32(text.encode()) or 1 if text else 0 for text in texts], np.uint32)
