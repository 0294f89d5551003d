"""Number of samples a truncated shard had, from files next to it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fastfeed.printable import log, printable
from fastfeed.runtime.json_file import parse_json
from fastfeed.sources.notes import NOTE
from fastfeed.sources.shards.index import Index, Section
from fastfeed.storage.reads import is_local
from fastfeed.system.descriptors import open_regular

_CUT = ("cut off at ", "empty file", "empty: no records")  # how notes begin
_LOST = ("nothing after it can be ", " are missing", "wids index says ")  # and what they hold
_RECORDS = "__job/records/"  # of `fastfeed preprocess`, below the folder that its shards are in
_LONGEST = 1 << 28  # bytes of a record
_LEVELS = 3  # folders between a shard and that folder, at most: train/512x768
_told: set[str] = set()  # once in a process


def is_cut(note: str) -> bool:
    """True if a note on a shard reports lost samples."""
    return note.startswith(_CUT) or any(words in note for words in _LOST)


def missing(samples: int, count: int, where: str) -> str:
    """Text on missing samples, naming its evidence `where`; "" if none are missing."""
    lost = count - samples
    if lost > 0:
        return f"{lost} of {count} samples {'is' if lost == 1 else 'are'} missing, as {where}"
    return ""


def in_record(uri: str, size: int) -> int | None:
    """Samples of a local shard by the record of `fastfeed preprocess`, if it was longer then."""
    if not is_local(uri):
        return None
    folder, name = os.path.split(os.path.abspath(uri))
    stem = os.path.splitext(name)[0]
    inside = ""
    candidates = [os.path.join(folder, f"{stem}.json")]  # of earlier versions
    for _ in range(_LEVELS):
        candidates.append(os.path.join(folder, _RECORDS, inside, f"{stem}.json"))
        folder, last = os.path.split(folder)
        inside = os.path.join(last, inside)
    for path in candidates:
        try:
            with open(open_regular(path), "rb") as file:
                record = parse_json(file.read(_LONGEST))  # of a longer one a part, which is none
            recorded = {os.path.basename(part["name"]): part["bytes"] for part in record["files"]}
            if recorded[name] > size:
                return len(record["ids"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None


def add_missing(section: Section, earlier: Index, uri: str, has_end: bool) -> Section:
    """Add a note if an earlier index lists the same samples, and more after them.

    `has_end`: the format shows where a shard ends, so that one without a note on its end is whole,
    if shorter.
    """
    if uri not in earlier.uris or any(" missing, as " in note for note in section.notes):
        return section
    before = earlier.section(earlier.uris.index(uri))
    ends = section.columns["offsets"] + section.columns["lengths"]
    whole = int(np.count_nonzero(ends <= section.stat.size))  # the last one may be cut
    names = ("offsets", "lengths", "checks")
    same = all(
        np.array_equal(section.columns[name][:whole], before.columns[name][:whole])
        for name in names
    )
    text = missing(len(section), len(before), "an index lists that was made earlier")
    cut = [k for k, note in enumerate(section.notes) if is_cut(note)]
    notes = list(section.notes)
    if not (whole and same and text and section.stat.size < before.stat.size) or (
        has_end and not cut
    ):
        return section
    if cut:
        notes[cut[-1]] += f"; {text}"
    else:
        notes.append(f"cut off at {section.stat.size}: {text}")
    return replace(section, notes=tuple(notes))


def tell(who: str, uris: Sequence[str], notes: Sequence[Sequence[str]]) -> None:
    """Put the first shard that has lost samples into the log, once."""
    firsts = [next(filter(is_cut, own), "") for own in notes]
    cut = [(uri, note) for uri, note in zip(uris, firsts, strict=True) if note]
    if not cut:
        return
    others = len(cut) - 1
    more = f"; and {others} more such shard{'s' * (others > 1)}, see .notes" if others else ""
    line = f"{who}: {cut[0][0]}: {cut[0][1]}{more}"
    if line not in _told:
        _told.add(line)
        log.warning("%s", printable(line, NOTE))
