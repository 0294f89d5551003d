"""Checks that a job's source is still the same: its list of images, and some contents."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import unicodedata
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.faults import Failure
from fastfeed.preprocess.inputs.inputs import Input
from fastfeed.preprocess.inputs.kept_listing import listing_prefix
from fastfeed.preprocess.inputs.plan_ids import is_multi, label_names, read_labels
from fastfeed.preprocess.inputs.readahead import read_sums
from fastfeed.preprocess.model.edits import REPAIRED
from fastfeed.preprocess.model.layout import JOB
from fastfeed.preprocess.model.plan import JobPlan, plan_files, saved
from fastfeed.preprocess.model.record import ShardRecord, part_of_sum
from fastfeed.preprocess.targets.target import Target
from fastfeed.sources.base import Sharded, Source
from fastfeed.sources.class_names import nfc
from fastfeed.sources.listing.file_table import unpacked
from fastfeed.sources.listing.listing_file import ARRAYS, read_listing
from fastfeed.sources.shards.extra_columns import HasExtraColumns
from fastfeed.sources.tables.source import TableSource
from fastfeed.sources.tables.string_column import StringColumn
from fastfeed.storage.storage import Storage

NO_IDS = np.zeros(0, np.int64)
_READ = 16  # images whose content is compared, of the job and of those with another version


def planned_ids(target: Target, plan: JobPlan, input: Input) -> np.ndarray | None:
    """Places of the plan's images in the input: int64; None: the same. ConfigError."""
    changes = added_since(target, plan, input)
    return plan.places_in(input.text) if changes is None else changes.new_positions


def added_since(
    target: Target, plan: JobPlan, input: Input, retried: np.ndarray = NO_IDS
) -> Changes | None:
    """Images added since the plan was made, or None. ConfigError if anything else differs.

    Images that were edited may be gone or labeled otherwise. Those in `retried` may be other ones.
    """
    _, last = plan.source_parts(input.text)[-1]
    if input.fingerprint == last.fingerprint:
        return None
    input = replace(input, types=plan.columns)
    changes = compare(load_samples(target, plan), plan, input, retried)
    differences = changes.differences
    if plan.images != input.images:
        was, now = (", ".join(names) or "one image" for names in (plan.images, input.images))
        differences.append(f"images of a sample: {was} -> {now}")
    if not differences and _columns(last.fingerprint) != _columns(input.fingerprint):
        differences = ["captions or columns: this request has others than the job"]
    is_other = not (len(changes.added) or len(plan.edits) or len(retried))
    if differences or is_other:
        added = [f"source: {changes.text}"] if changes.text else []
        raise _different(target, plan, input, [*differences, *added])
    return changes


def _columns(fingerprint: str) -> str:
    """The part of an input's fingerprint that stands for the names of its caption and columns."""
    return fingerprint.partition(" columns ")[2]


def check_content(
    target: Target,
    plan: JobPlan,
    input: Input,
    records: Mapping[int, ShardRecord],
    ids: np.ndarray | None = None,
    listing: str | None = None,
) -> None:
    """ConfigError if a few images have another content than the one that a shard was made of.

    They are the same ones each time, and some of another time of change or ETag in `listing`, the
    prefix of the listing made now. ids: places of the plan's images in `input`; None: the same.
    """
    made_of = {
        i: (part, record.shard)
        for record in records.values()
        for i, part in zip(record.ids, record.parts_of_sums, strict=False)
    }
    known = np.array(sorted(made_of), np.int64)
    places = known if ids is None else ids[known]
    known = known[places >= 0]
    places = places[places >= 0]
    touched = _touched(target, listing, getattr(input.source, "paths", None))
    changed = np.flatnonzero(touched(places))
    chosen = np.unique(np.concatenate([_spread(np.arange(len(known))), _spread(changed)]))
    chosen_places = places[chosen].tolist()
    sums = read_sums(input.source, chosen_places) if len(chosen) else []
    for i, place, sha256 in zip(known[chosen].tolist(), chosen_places, sums, strict=True):
        part, shard = made_of[i]
        if sha256 and part_of_sum(sha256) != part:
            line = f"source: {input.source.uri(place)} has another content than {shard} was made of"
            raise _different(target, plan, input, [line])


def _touched(
    target: Target, listing: str | None, names: StringColumn | None
) -> Callable[[np.ndarray], np.ndarray]:
    """A function of ids in the source: bool, True if the file has another version now."""
    kept = None if listing is None or names is None else listing_prefix(target)
    before = _versions(kept)
    now = _versions(listing)
    if names is None or before is None or now is None:
        return lambda ids: np.zeros(len(ids), bool)
    order = np.argsort(before[0])
    at = order[np.minimum(np.searchsorted(before[0], now[0], sorter=order), len(order) - 1)]
    other = now[0][(before[0][at] == now[0]) & (before[1][at] != now[1])]
    hashes = names.hashes()
    return lambda ids: np.isin(hashes[ids], other)


def _versions(prefix: str | None) -> tuple[np.ndarray, np.ndarray] | None:
    """Hashes of the paths and versions in a listing, if there is one."""
    path = None if prefix is None else prefix + "listing" + ARRAYS
    if path is None or not os.path.exists(path):
        return None
    try:
        rows, _, _ = read_listing(path, Storage(), True, "preprocess")
    except SourceError:  # damaged; listing the source again did not need it
        return None
    if rows.versions is None or not len(rows):
        return None
    return rows.paths.hashes(), rows.versions.hashes()


def _spread(items: np.ndarray) -> np.ndarray:
    """The first, the last, and others between them."""
    return items[np.linspace(0, len(items) - 1, min(len(items), _READ)).astype(np.int64)]


def _different(
    target: Target, plan: JobPlan, input: Input, differences: Sequence[str]
) -> ConfigError:
    """The error for a source that is not that of the plan."""
    now = len(input.source)
    length = len(plan.image_ids(input.text))
    has = f"has {now} now" if now != length else "differs"
    lines = "".join(f"  {line}\n" for line in differences or _other_kind_of_labels(plan, input))
    return ConfigError(
        f"{target.text} holds a job of {plan.source} with {plan.length} images; {input.text}"
        f" {has}:\n{lines}use the same source and options for it, or choose another, empty target"
    )


def _other_kind_of_labels(plan: JobPlan, input: Input) -> list[str]:
    """The difference between class names and indices; else, possible differences."""
    kept = bool(plan.classes)
    now = bool(input.source.classes)
    if plan.multi != is_multi(input.source):
        one = "one class of each image"
        several = "lists of classes"
        was, now_has = (several, one) if plan.multi else (one, several)
        return [f"labels: this job has {was}, the source has {now_has} (label_kind, --label-kind)"]
    if kept == now:
        return ["its images, their order, labels, captions or columns are other ones"]
    was, kind = ("class names", "name") if kept else ("indices, as they are", "index")
    return [
        f"labels: this job takes integers for {was}; pass label_kind='{kind}' (--label-kind {kind})"
    ]


ROW = np.dtype(
    [
        ("name", "<u8"),  # hash of the path below the source
        ("size", "<u4"),  # of its bytes' number; 0: not known
        ("label", "<u4"),  # hash of the class's name, of several, or of the number; 0: none
        ("note", "<u4"),  # hash of caption and columns; 0: none, or not compared
    ]
)
# of samples of several images: also a hash of the paths of all but the first
_SEVERAL = np.dtype([*ROW.descr, ("others", "<u8")])
_AT_ONCE = 1 << 14  # samples
_MAGIC = re.compile(r"[*?\[{]")
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # tells samples of one name apart: 2^64 / golden ratio


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """Differences between a job's source and the source now; ids are of now."""

    now: Input
    before: int  # images of the job that are of this source
    added: np.ndarray  # int64: not in the job
    new_positions: (
        np.ndarray
    )  # int64 (before,): where the job's images are now; -1: gone, or of another source
    resized: np.ndarray  # int64: of another size
    relabeled: np.ndarray  # int64
    unlabeled: bool  # the job has labels, this request has none
    noted: np.ndarray  # int64: with another caption, or other columns
    regrouped: np.ndarray  # int64: with other images next to the first
    gone: np.ndarray  # int64: ids of the job whose images are gone, but those that it lacks itself

    @property
    def differences(self) -> list[str]:
        """Differences that are not additions, one line each, after the name of the part."""
        lines = []
        removed = len(self.gone)
        if removed == self.before:
            return [f"source: none of the job's {self.before:,} images is in {self.now.text}"]
        if removed:
            lines.append(f"source: {removed:,} of the job's {self.before:,} images are gone")
        if len(self.resized):
            lines.append(f"source: {self._count(self.resized)} another size now")
        if self.unlabeled and len(self.relabeled):
            lines.append("labels: the job has labels, this request has none")
        elif len(self.relabeled):
            lines.append(f"labels: {self._count(self.relabeled)} another label")
        if len(self.noted):
            lines.append(f"captions or columns: {self._count(self.noted)} other ones")
        if len(self.regrouped):
            lines.append(f"other images: {self._count(self.regrouped)} other ones")
        return lines

    @property
    def text(self) -> str:
        """`12 more images than this job, such as photos/a.jpg`; "" without additions."""
        if not len(self.added):
            return ""
        noun = "image" if len(self.added) == 1 else "images"
        first = self.now.source.uri(int(self.added[0]))
        return f"{len(self.added):,} more {noun} than this job, such as {first}"

    def _count(self, ids: np.ndarray) -> str:
        first = self.now.source.uri(int(ids[0]))
        return f"{first} has" if len(ids) == 1 else f"{len(ids):,} images, such as {first}, have"


def describe(input: Input) -> np.ndarray:
    """A row per sample: its name, and hashes of what is known without reading it."""
    rows = np.zeros(len(input.source), _SEVERAL if input.images else ROW)
    names = _names(input.source, input.text)
    others = [_names(input.source, input.text, image) for image in input.images[1:]]
    for first in range(0, len(rows), _AT_ONCE):
        part = rows[first : first + _AT_ONCE]
        last = first + len(part)
        part["name"] = [name_hash(next(names)) for _ in part]
        found = _sizes(input.source, first, last)
        part["size"] = np.where(found > 0, found % 0xFFFFFFFF + 1, 0)
        part["label"] = _labels(input, first, last)
        part["note"] = _notes(input, first, last)
        if others:
            part["others"] = [name_hash(b"\0".join(map(next, others))) for _ in part]
    return rows


def compare(
    before: np.ndarray, plan: JobPlan, input: Input, retried: np.ndarray = NO_IDS
) -> Changes:
    """Differences between `describe` of the plan's images and the source now.

    Edited images and those in `retried`, ids of the job, are compared by name alone. Images of
    other sources are not compared.
    """
    edits = plan.edits
    now = describe(input)
    of_source = plan.image_ids(input.text)
    _spell_as_before(now, before[of_source], input)
    own = np.setdiff1d(of_source, edits.with_value(REPAIRED))  # others come again
    old_keys = _keys(before[own])
    new_keys = _keys(now)
    order = np.argsort(new_keys, kind="stable")
    at = np.minimum(np.searchsorted(new_keys, old_keys, sorter=order), len(new_keys) - 1)
    kept = np.full(len(before), -1, np.int64)
    kept[own] = np.where(new_keys[order[at]] == old_keys, order[at], -1)
    is_old = np.zeros(len(now), bool)
    is_old[kept[kept >= 0]] = True
    is_gone = np.zeros(len(before), bool)
    is_gone[own] = kept[own] < 0
    is_gone[edits.gone] = False
    is_compared = kept >= 0
    is_compared[edits.ids] = False
    is_compared[retried] = False
    rows = before[is_compared]
    ids = kept[is_compared]
    there = now[ids]
    sized = (rows["size"] != there["size"]) & (rows["size"] > 0) & (there["size"] > 0)
    several = rows.dtype == there.dtype == _SEVERAL
    regrouped = rows["others"] != there["others"] if several else np.zeros(len(rows), bool)
    unlabeled = bool(before["label"][of_source].any()) and not bool(now["label"].any())
    return Changes(
        input,
        len(of_source),
        np.flatnonzero(~is_old),
        kept,
        ids[sized],
        ids[rows["label"] != there["label"]],
        unlabeled,
        ids[rows["note"] != there["note"]],
        ids[regrouped],
        np.flatnonzero(is_gone),
    )


def _spell_as_before(now: np.ndarray, before: np.ndarray, input: Input) -> None:
    """Hash names and classes in the Unicode form that they had, which a copy may change."""

    def as_before(text: str, code: int, known: set[int], hashed: Callable[[str], int]) -> int:
        forms = (hashed(unicodedata.normalize(form, text)) for form in ("NFC", "NFD"))
        return code if code in known else next((form for form in forms if form in known), code)

    known = set(before["name"].tolist())
    for row, name in enumerate(_names(input.source, input.text)):
        if not name.isascii():
            code = int(now["name"][row])
            now["name"][row] = as_before(
                os.fsdecode(name), code, known, lambda text: name_hash(os.fsencode(text))
            )
    known = set(before["label"].tolist())
    for text in input.source.classes:
        code = label_hash(text)
        now["label"][now["label"] == code] = as_before(text, code, known, label_hash)


def samples_file(plan: JobPlan) -> str:
    """Name of the file with the description of a plan's images, in the order of its ids."""
    order = plan_files(plan.head)[0]
    return order.replace(f"{JOB}/order", f"{JOB}/samples")


def load_samples(target: Target, plan: JobPlan) -> np.ndarray:
    """`describe` of the plan's images, as the job keeps it. SourceError if missing or damaged."""
    name = samples_file(plan)
    try:
        rows = np.load(io.BytesIO(target.read(name) or b""), allow_pickle=False)
        if rows.dtype in (ROW, _SEVERAL) and len(rows) == plan.length:
            return rows
    except (ValueError, EOFError):
        pass
    advice = "restore it from a copy, or merge the jobs again into an empty folder"
    if not plan.merged:
        line = shlex.join(["fastfeed", "preprocess", "resume", plan.source, target.text])
        advice = (
            f"if the source has not changed,  {line}  writes it again; else restore a copy of it"
        )
    raise SourceError(
        f"{name} in {target.text}, which describes the job's images, is missing or damaged; {advice}"
    )


def restored_samples(
    target: Target, plan: JobPlan, source: Callable[[Target], Input], writes: bool = True
) -> np.ndarray:
    """As `load_samples`; rows that are lost are made of the source, and written.

    SourceError if the job is merged, or the source has changed.
    """
    try:
        return load_samples(target, plan)
    except SourceError:
        if plan.merged:
            raise
        input = replace(source(target), types=plan.columns)
        if input.fingerprint != plan.fingerprint:
            raise
    rows = describe(input)
    if (ids := plan.places_in(input.text)) is not None:
        rows = rows[ids]
        rows[ids < 0] = np.zeros((), rows.dtype)  # gone since: no name is 0
    if writes:
        target.write(samples_file(plan), saved(rows))
    return rows


def _keys(rows: np.ndarray) -> np.ndarray:
    """Names as uint64, made distinct if several samples have the same."""
    names = rows["name"]
    order = np.argsort(names, kind="stable")
    _, counts = np.unique(names, return_counts=True)
    occurrence = np.empty(len(names), np.uint64)
    occurrence[order] = np.arange(len(names)) - np.repeat(np.cumsum(counts) - counts, counts)
    return names + occurrence * _SPREAD


def name_keys(names: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Hashes of names, and parts of the content's, as one uint64 for each image."""
    return names + sums * _SPREAD


def _names(source: Source, text: str, image: str = "") -> Iterator[bytes]:
    """Paths below the source, as they are when it is moved; of several images the first's.

    image: another image than the first.
    """
    images: dict[str, Source] | None = getattr(source, "together", None)
    own = images[image or next(iter(images))] if images else source
    paths = getattr(own, "paths", None)
    if paths is not None and (not images or isinstance(own, TableSource)):
        yield from unpacked(paths)
        return
    root = getattr(source, "root", None) if images else None  # the folder that they share
    prefix = f"{root}/" if root else name_prefix(text)
    for i in range(len(own)):
        yield os.fsencode(own.uri(i).removeprefix(prefix))


def name_prefix(text: str) -> str:
    """The part of URIs that is not in the names of images, if the source is not a folder of files."""
    magic = _MAGIC.search(text)
    return os.path.dirname(text[: magic.start()] if magic else text.rstrip("/"))


def _sizes(source: Source, first: int, last: int) -> np.ndarray:
    """Bytes of samples' files, int64; 0 if unknown."""
    if images := getattr(source, "together", None):
        sizes = np.array([_sizes(image, first, last) for image in images.values()], np.int64)
        return np.where((sizes > 0).all(axis=0), sizes.sum(axis=0), 0)
    if callable(sizes := getattr(source, "file_sizes", None)):
        return np.asarray(sizes(first, last), np.int64)
    if isinstance(source, Sharded) and not isinstance(source, TableSource):  # of row groups
        return np.asarray(source.sizes(np.arange(first, last)), np.int64)
    return np.zeros(last - first, np.int64)


def _labels(input: Input, first: int, last: int) -> np.ndarray:
    if is_multi(input.source):
        classes = list(map(nfc, input.source.classes))
        sets = read_labels(input.source, np.arange(first, last))
        texts = ["\0".join(sorted(label_names(label, classes))) for label in sets]
        return np.array([label_hash(text) if text else 0 for text in texts], np.uint32)
    labels = input.source.label(np.arange(first, last))
    values, which = np.unique(labels, return_inverse=True)
    names = input.source.classes
    texts = [names[label] if 0 <= label < len(names) else str(label) for label in values.tolist()]
    hashes = list(map(label_hash, texts))
    return np.where(labels < 0, 0, np.array(hashes, np.uint32)[which]).astype(np.uint32)


def name_hash(name: bytes) -> int:
    """Hash of a path below the source, as in the rows of `describe`."""
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "little")


def label_hash(text: str) -> int:
    """Hash of a class's name, or of a number, as in a row's label."""
    return zlib.crc32(os.fsencode(text)) or 1


def _notes(input: Input, first: int, last: int) -> np.ndarray:
    """Hashes of captions and columns. Those in shards are not read."""
    in_shards = isinstance(input.source, HasExtraColumns) and isinstance(input.source, Sharded)
    if not (input.caption or input.columns) or in_shards:
        return np.zeros(last - first, np.uint32)
    notes = input.notes(range(first, last))
    hashes = [
        0
        if isinstance(note, Failure)
        else label_hash(json.dumps(note, sort_keys=True, default=bytes.hex))
        for note in notes
    ]
    return np.array(hashes, np.uint32)
