"""Edits of a job's plan: names of images to ids, labels to class numbers, and the removed list."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import unicodedata
from collections.abc import Callable, Container, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.preprocess.inputs.inputs import Input
from fastfeed.preprocess.inputs.readahead import read_sums
from fastfeed.preprocess.model.edits import NO_LABEL, REMOVED, REPAIRED, hash_classes
from fastfeed.preprocess.model.layout import JOB, PREVIEWS
from fastfeed.preprocess.model.plan import JobPlan, relative_uri
from fastfeed.preprocess.model.record import content_sum, part_of_sum
from fastfeed.preprocess.planning.check_source import name_hash, name_prefix
from fastfeed.preprocess.planning.shares import counted, recounted
from fastfeed.preprocess.shard.stored import DamagedShard, stored_shard
from fastfeed.preprocess.targets.job_state import Job
from fastfeed.preprocess.targets.target import Target
from fastfeed.printable import printable
from fastfeed.sources.class_names import canonical_integers, class_names, class_numbers, nfc
from fastfeed.sources.label_values import MOST_CLASSES
from fastfeed.sources.tables.column_types import listed

REMOVED_LIST = f"{JOB}/removed.jsonl"
_SHOWN = 10  # names in an error
_SKIP = ", or pass ignore_unknown=True (--ignore-unknown) to skip them"
_AT_ONCE = 16  # images read at once
_OF_A_ROW = re.compile(r"#row \d+$")  # of a path that a table has twice
_ESCAPED = re.compile(r"\\x([89a-f][0-9a-f])")


def read_names(path: str | os.PathLike[str]) -> list[str]:
    """Names of a text file, one per line; empty lines are skipped. ConfigError."""
    lines = (line.removesuffix("\r") for line in _text(path, "remove").split("\n"))
    return [line for line in lines if line.strip()]


def read_labels(path: str | os.PathLike[str]) -> dict[str, str]:
    """Labels by name from a CSV file with two columns and a header, such as "uri,label".

    ConfigError.
    """
    try:
        rows = list(csv.reader(io.StringIO(_text(path, "relabel"), newline="")))
    except csv.Error as error:
        text = f"{os.fspath(path)} is not a CSV file: {error}; correct the file"
        raise ConfigError(text, field="relabel") from error
    header = rows[0] if rows else []
    if len(header) != 2 or header[1].strip().lower() not in ("label", "class"):
        raise ConfigError(
            f"{path} must begin with a header of two columns, uri,label, got"
            f" {printable(','.join(header)) or 'an empty file'}",
            field="relabel",
        )
    labels: dict[str, str] = {}
    for number, row in enumerate(rows[1:], 2):
        if not row:
            continue
        if len(row) != 2 or labels.get(row[0], row[1]) != row[1]:
            problem = "has two labels" if len(row) == 2 else "is not a name and a label"
            text = f"{path}, line {number}: {printable(','.join(row))} {problem}"
            raise ConfigError(f"{text}; correct the file", field="relabel")
        labels[row[0]] = row[1]
    return labels


def _text(path: str | os.PathLike[str], field: str) -> str:
    try:
        with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            return file.read()
    except OSError as error:
        text = f"{os.fspath(path)} cannot be read: {error.strerror}"
        raise ConfigError(f"{text}; pass a file of names", field=field) from error


def edited(
    job: Job,
    rows: np.ndarray,
    place: str,
    remove: Sequence[str],
    relabel: Mapping[str, str | Sequence[str]],
    ignore_unknown: bool,
) -> tuple[JobPlan, dict[int, str]]:
    """The job's plan with these changes, and the names by id of the images that are removed.

    rows: `describe` of the plan's images. place: the source as it is named now. ConfigError for
    names that the job does not have, labels for images that are removed, and several labels for one.
    """
    plan = job.plan
    names = [*remove, *relabel]
    which, ids = _find(job, rows, place, names)
    unknown = np.setdiff1d(np.arange(len(names)), which)
    if len(unknown) and not ignore_unknown:
        raise _refused(
            names, unknown, f"not in the job in {plan.source}", f"correct these names{_SKIP}"
        )
    is_removal = which < len(remove)
    removed = ids[is_removal]
    labeled = ids[~is_removal]
    edits = plan.edits.merged(removed, np.full(len(removed), REMOVED, np.int64))
    is_gone = np.isin(labeled, edits.with_value(REMOVED))
    if is_gone.any() and not ignore_unknown:
        those = np.unique(which[~is_removal][is_gone])
        raise _refused(
            names, those, "removed, and have new labels", f"leave their labels out{_SKIP}"
        )
    numbers, classes, sets = _values(plan, list(relabel.values()))
    values = numbers[which[~is_removal] - len(remove)]
    merged = edits.merged(labeled, values)
    is_other = ~is_gone & (merged.at(labeled) != values)
    if is_other.any():
        those = np.unique(which[~is_removal][np.isin(labeled, labeled[is_other])])
        raise _refused(names, those, "of images with two labels", "leave one label for each image")
    known = plan.edit_sets | sets
    grown = replace(
        plan,
        edits=merged,
        edit_sets={value: known[value] for value in known.keys() & set(merged.values.tolist())},
        classes=(*plan.classes, *classes),
        edit_classes=(*plan.edit_classes, *classes),
    )
    grown = replace(grown, shares=shares_after(job, plan, grown, rows))
    pairs = zip(removed.tolist(), which[is_removal].tolist(), strict=True)
    places = [place, plan.source, *(part.source for part in plan.merged)]
    return grown, {i: _relative(plan, places, names[k]) for i, k in pairs}


def shares_after(job: Job, before: JobPlan, plan: JobPlan, rows: np.ndarray) -> dict[str, Any]:
    """The shares of a plan that has more edits than `before`, which has those of the job or more.

    rows: `describe` of the plan's images.
    """
    if not plan.multi or "by_label" not in before.shares:
        return counted(plan, rows)
    new = np.setdiff1d(plan.edits.ids, before.edits.ids)
    sets = _sets_in_shards(job, rows["label"], np.unique(rows["label"][new]))
    return counted(plan, rows, recounted(before, plan, rows, sets))


def _sets_in_shards(job: Job, codes: np.ndarray, wanted: np.ndarray) -> dict[int, tuple[int, ...]]:
    """Classes by the `wanted` codes of them, each from one sample in the shards.

    codes: those of all images, by id.
    """
    ids = np.array([i for record in job.records.values() for i in record.ids], np.int64)
    ids = np.sort(ids[~np.isin(ids, job.plan.edits.ids)])
    known, first = np.unique(codes[ids], return_index=True)
    chosen = frozenset(ids[first[np.isin(known, wanted)]].tolist())
    sets: dict[int, tuple[int, ...]] = {0: ()}
    for record in job.records.values():
        if chosen.isdisjoint(record.ids):
            continue
        with suppress(DamagedShard):
            metas = stored_shard(job.target, job.plan, record).metas(
                chosen.intersection(record.ids)
            )
            sets |= {int(codes[i]): tuple(meta.get("label", ())) for i, meta in metas.items()}
    return sets


def _refused(names: Sequence[str], which: np.ndarray, problem: str, advice: str) -> ConfigError:
    shown = "".join(f"\n  {printable(names[k])}" for k in which[:_SHOWN])
    more = f"\n  and {len(which) - _SHOWN:,} more" if len(which) > _SHOWN else ""
    verb = "name is" if len(which) == 1 else "names are"
    return ConfigError(
        f"{len(which):,} {verb} {problem}:{shown}{more}\n{advice}; nothing was changed"
    )


def _relative(plan: JobPlan, places: Sequence[str], name: str) -> str:
    """A name as in the metadata of samples: below the innermost of the places that hold it."""
    if plan.recipe.metadata.absolute_uri:
        return name
    names = filter(None, (relative_uri(name, place) for place in places))
    return min(names, key=len, default=name)


def _find(
    job: Job, rows: np.ndarray, place: str, names: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of an index of `names` and the id of an image of that name: int64, int64."""
    if job.plan.merged:
        return _find_in_jobs(job.plan, rows, names)
    which, ids = _find_in_source(job.plan.source, rows, place, names)
    left = np.setdiff1d(np.arange(len(names)), which)
    of_rows = any(_OF_A_ROW.search(names[int(k)]) for k in left)
    if of_rows or (len(left) and _has_other_names(job, rows, place)):
        stored = _stored_names(job, {names[int(k)] for k in left})
        pairs = [(int(k), i) for k in left for i in stored.get(names[int(k)], ())]
        more = np.array(pairs, np.int64).reshape(-1, 2)
        which = np.concatenate([which, more[:, 0]])
        ids = np.concatenate([ids, more[:, 1]])
    is_own = ~np.isin(ids, job.plan.edits.with_value(REPAIRED))
    return which[is_own].astype(np.int64), ids[is_own].astype(np.int64)


def _has_other_names(job: Job, rows: np.ndarray, place: str) -> bool:
    """True if the source is a job, and its images have the names that the first job read."""
    for record in job.records.values():
        for i, meta in stored_shard(job.target, job.plan, record).metas(record.ids[:1]).items():
            return i not in _find_in_source(job.plan.source, rows, place, [meta["uri"]])[1]
    return False


def _stored_names(job: Job, names: Container[str]) -> dict[str, list[int]]:
    """Ids by name of these images in the shards."""
    found: dict[str, list[int]] = {}
    for record in job.records.values():
        for i, meta in stored_shard(job.target, job.plan, record).metas(record.ids).items():
            if meta["uri"] in names:
                found.setdefault(meta["uri"], []).append(i)
    return found


def _find_in_jobs(
    plan: JobPlan, rows: np.ndarray, names: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """As `_find`, of merged jobs. ConfigError for names that images of several of them have."""
    sources = plan.sources
    found: list[tuple[np.ndarray, np.ndarray]] = []
    jobs = np.zeros(len(names), np.int64)  # that have an image of each name
    for source in sources:
        own = np.setdiff1d(plan.image_ids(source), plan.edits.with_value(REPAIRED))
        which, places = _find_in_source(source, rows[own], source, names)
        found.append((which, own[places]))
        jobs[np.unique(which)] += 1
    if (jobs > 1).any():
        advice = f"write the names in full, below {' or '.join(sources)}"
        problem = "in several of the jobs that were merged"
        raise _refused(names, np.flatnonzero(jobs > 1), problem, advice)
    which, ids = (np.concatenate([pair[k] for pair in found]) for k in (0, 1))
    return which.astype(np.int64), ids.astype(np.int64)


def _find_in_source(
    source: str, rows: np.ndarray, place: str, names: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of an index of `names` and the id of an image that the source has by that name."""
    order = np.argsort(rows["name"], kind="stable")
    known = rows["name"][order]
    left = np.arange(len(names))
    found: list[tuple[np.ndarray, np.ndarray]] = []
    for form in _forms(source, place):
        if not len(left):
            break
        texts = [form(names[int(k)]) for k in left]
        hashes = np.array(
            [0 if text is None else name_hash(os.fsencode(text)) for text in texts], np.uint64
        )
        first = np.searchsorted(known, hashes, side="left")
        counts = np.searchsorted(known, hashes, side="right") - first
        counts[[text is None for text in texts]] = 0
        starts = np.repeat(first, counts)
        within = np.arange(len(starts)) - np.repeat(np.cumsum(counts) - counts, counts)
        found.append((np.repeat(left, counts), order[starts + within]))
        left = left[counts == 0]
    which, ids = (np.concatenate([pair[k] for pair in found] or [left]) for k in (0, 1))
    return which, ids


def _forms(source: str, place: str) -> Iterator[Callable[[str], str | None]]:
    """Spellings of a name that a plan of this source may have: below the source, in full, in Unicode's forms."""
    yield lambda name: name
    yield lambda name: f"/{name}"
    for text in dict.fromkeys((place, source)):
        yield lambda name, text=text: relative_uri(name, text)
        yield (
            lambda name, text=text: (
                None if (below := relative_uri(name, text)) is None else f"/{below}"
            )
        )
        for folder in (text, os.path.abspath(os.path.dirname(text))):
            yield lambda name, folder=folder: f"{folder.rstrip('/')}/{name}"
    prefix = name_prefix(source)
    yield lambda name: name.removeprefix(prefix)  # in full, of images in shards
    for text in dict.fromkeys((place, source)):
        for start in dict.fromkeys((source, prefix, os.path.abspath(source))):
            base = f"{start.rstrip('/')}/".removeprefix(prefix)
            yield lambda name, text=text, base=base: base + (relative_uri(name, text) or name)
    yield _unescaped
    for kind in ("NFC", "NFD"):
        yield lambda name, kind=kind: None if name.isascii() else unicodedata.normalize(kind, name)


def _unescaped(name: str) -> str | None:
    """A name with bytes that are not UTF-8, of which metadata have `\\xe9`."""
    plain = _ESCAPED.sub(lambda byte: os.fsdecode(bytes.fromhex(byte[1])), name)
    return None if plain == name else plain


def _values(
    plan: JobPlan, labels: Sequence[Any]
) -> tuple[np.ndarray, tuple[str, ...], dict[int, tuple[int, ...]]]:
    """Values of edits with these labels, int64, names of new classes, and lists by value.

    ConfigError.
    """
    if not plan.multi:
        return *_numbers(plan, labels), {}
    lists = [_names_in(label) for label in labels]
    numbers, classes = _numbers(plan, [name for names in lists for name in names])
    numbers = iter(numbers.tolist())
    sets = [tuple(sorted({next(numbers) for _ in names})) for names in lists]
    values = list(map(hash_classes, sets))
    return np.array(values, np.int64), classes, dict(zip(values, sets, strict=True))


def _names_in(label: Any) -> list[str]:
    """The names in a list, or in its text in a CSV. ConfigError."""
    try:
        items = listed(label) if isinstance(label, str) else list(label)
    except (ValueError, TypeError):
        items = None
    names = [str(item) if type(item) is int else item for item in items or ()]
    if not isinstance(items, list) or not all(isinstance(name, str) and name for name in names):
        allowed = 'lists of names of classes, such as ["cat", "dog"] or cat;dog, for this job'
        raise ConfigError.of("relabel", allowed, label)
    return names


def _numbers(plan: JobPlan, labels: Sequence[Any]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Class numbers of labels, int64, and the names of new classes. ConfigError."""
    if not all(isinstance(label, str) for label in labels):
        label = next(label for label in labels if not isinstance(label, str))
        allowed = "the name of one class for each image, as in this job"
        raise ConfigError.of("relabel", allowed, label)
    texts = sorted(set(labels) - {""})
    if plan.classes:
        known = class_numbers(plan.classes)
        classes = class_names(text for text in texts if nfc(text) not in known)
        known = class_numbers((*plan.classes, *classes))
    else:
        integers = canonical_integers(texts)
        classes = ()
        if integers is None or not all(0 <= number < MOST_CLASSES for number in integers):
            raise ConfigError(
                f"labels of this job must be class numbers from 0 to {MOST_CLASSES - 1:,}, as it has"
                f" no class names, got {printable(', '.join(texts[:3]))}",
                field="relabel",
            )
        known = dict(zip(texts, integers, strict=True))
    known[""] = NO_LABEL
    return np.array([known[nfc(text)] for text in labels], np.int64), classes


def removed_list(target: Target, plan: JobPlan) -> list[dict[str, Any]]:
    """Images removed from the plan: id, uri, sha256 (maybe a part, "" if unknown), asked (a date).

    The list may have more, of an update that ended before it wrote its plan. SourceError if the
    list is damaged.
    """
    removed = set(plan.edits.with_value(REMOVED).tolist())
    try:
        lines = [json.loads(line) for line in (target.read(REMOVED_LIST) or b"").splitlines()]
        return [line for line in lines if line["id"] in removed]
    except (ValueError, KeyError, TypeError) as error:
        raise SourceError(f"{target.text}: {REMOVED_LIST} is damaged: {error}") from error


def withdraw(job: Job, plan: JobPlan, names: Mapping[int, str], today: date) -> None:
    """List the images that are removed from `plan`, which is written next, and forget their looks.

    Previews are removed: they would show images that were withdrawn. So are pairs of duplicates.
    """
    target = job.target
    removed = set(plan.edits.with_value(REMOVED).tolist())
    lines = {line["id"]: line for line in removed_list(target, plan)}
    new = removed - lines.keys()
    sums = stored_sums(job, new)
    for i in sorted(new):
        line = {"id": i, "uri": names.get(i, ""), "sha256": sums.get(i, "")}
        lines[i] = line | {"asked": today.isoformat()}
    content = "".join(f"{json.dumps(lines[i])}\n" for i in sorted(lines)).encode()
    if content != (target.read(REMOVED_LIST) or b""):
        target.write(REMOVED_LIST, content)
    if removed:
        from fastfeed.preprocess.planning.duplicates_page import forget_duplicates  # draws pictures

        forget_duplicates(target, removed)
        for name in target.files(PREVIEWS):
            target.remove(name)


def stored_sums(job: Job, ids: Set[int]) -> dict[int, str]:
    """The sha256 of these images; of those in damaged shards the part that records have."""
    sums: dict[int, str] = {}
    for record in job.records.values():
        if ids.isdisjoint(record.ids):
            continue
        parts = zip(record.ids, record.parts_of_sums, strict=False)
        sums |= {i: part for i, part in parts if i in ids}
        with suppress(DamagedShard):
            metas = stored_shard(job.target, job.plan, record).metas(ids)
            sums |= {i: content_sum(meta) for i, meta in metas.items() if meta.get("sha256")}
    return sums


def removed_again(
    target: Target, plan: JobPlan, input: Input, rows: np.ndarray, gone: np.ndarray
) -> np.ndarray:
    """Ids after the plan's whose content is that of a removed image: int64.

    rows: `describe` of all images of `input`. Images of another size are not read. gone: ids that
    this update removes because the source lacks them; what it has under another name stays.
    """
    lines = [line for line in removed_list(target, plan) if line["sha256"]]
    lost = set(gone.tolist())
    kept = {part_of_sum(line["sha256"]) for line in lines if line["id"] in lost}
    lines = [line for line in lines if part_of_sum(line["sha256"]) not in kept]
    whole = {line["sha256"] for line in lines}
    sizes = {int(rows["size"][line["id"]]) for line in lines}
    parts = {(line["sha256"], int(rows["size"][line["id"]])) for line in lines}
    new = np.arange(plan.length, len(rows))
    if 0 not in sizes:
        new = new[np.isin(rows["size"][new], [*sizes, *([0] if sizes else [])])]
    again: list[int] = []
    for first in range(0, len(new), _AT_ONCE):
        ids = new[first : first + _AT_ONCE].tolist()
        for i, sha256 in zip(ids, read_sums(input.source, ids), strict=True):
            if not sha256:
                continue
            # of damaged shards a part is known, which is compared together with the size
            own = {0, int(rows["size"][i])}
            part = part_of_sum(sha256)
            if sha256 in whole or any(
                (part, size) in parts for size in (own if own != {0} else sizes)
            ):
                again.append(i)
    return np.array(again, np.int64)
