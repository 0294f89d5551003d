"""Whether the source of a job is still the same: its list of photographs, and the content of a few
of them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.preprocess.inputs.inputs import Input, listing_prefix
from fastfeed.preprocess.inputs.readahead import read_each
from fastfeed.preprocess.model.plan import JobPlan
from fastfeed.preprocess.model.record import Record, part_of_sum
from fastfeed.preprocess.planning.changes import Changes, compare, load_samples, samples_file
from fastfeed.preprocess.targets.target import Target
from fastfeed.sources.listing.listing_file import ARRAYS, read_listing
from fastfeed.sources.tables.string_column import StringColumn
from fastfeed.storage.storage import Storage

__all__ = ["added_since", "check_content", "planned_ids"]

# photographs whose content is compared, spread over the job; and as many of those with another
# version
_READ = 16


def planned_ids(target: Target, plan: JobPlan, input: Input) -> np.ndarray | None:
    """Where the plan's photographs are in the input, which may have more: int64, shape
    (plan.length,). None: the same.

    ConfigError, with the differences, if they are not all there as they were.
    """
    changes = added_since(target, plan, input)
    return plan.source_ids if changes is None else changes.kept


def added_since(target: Target, plan: JobPlan, input: Input) -> Changes | None:
    """What was added to the source since the plan was made; None: nothing.

    ConfigError if anything else differs.
    """
    if input.fingerprint == plan.fingerprint:
        return None
    changes = _changes(target, plan, input)
    differences = [] if changes is None else changes.differences
    if not differences and _columns(plan.fingerprint) != _columns(input.fingerprint):
        differences = ["captions or columns: this request has others than the job"]
    if changes is None or differences or not len(changes.added):
        added = [f"source: {changes.text}"] if changes is not None and changes.text else []
        raise _different(target, plan, input, [*differences, *added])
    return changes


def _columns(fingerprint: str) -> str:
    """The part of an input's fingerprint that stands for the names of its caption and columns."""
    return fingerprint.partition(" columns ")[2]


def check_content(
    target: Target,
    plan: JobPlan,
    input: Input,
    records: Mapping[int, Record],
    ids: np.ndarray | None = None,
    listing: str | None = None,
) -> None:
    """ConfigError if a photograph has another content than the one that a shard was made of.

    Names and sizes do not show that. A few are read, the same ones each time, and a few of those
    whose time of change or ETag is another one now; those that cannot be read say nothing.

    Args:
        target: The job's.
        plan: The job's.
        input: The source as it is now.
        records: Of the shards that are done.
        ids: Where the plan's photographs are in `input`: int64, shape (plan.length,). None: the
            same ids.
        listing: Prefix of the listing that was made now. Default: None, of none.
    """
    made_of = {
        i: (part, record.shard)
        for record in records.values()
        for i, part in zip(record.ids, record.parts_of_sums, strict=False)
    }
    known = np.array(sorted(made_of), np.int64)
    places = known if ids is None else ids[known]
    touched = _touched(target, listing, getattr(input.source, "paths", None))
    chosen = np.unique(
        np.concatenate([_spread(np.arange(len(known))), _spread(np.flatnonzero(touched(places)))])
    )
    contents = read_each(input.source, places[chosen].tolist()) if len(chosen) else []
    for i, place, content in zip(
        known[chosen].tolist(), places[chosen].tolist(), contents, strict=True
    ):
        part, shard = made_of[i]
        if isinstance(content, bytes) and part_of_sum(hashlib.sha256(content).hexdigest()) != part:
            line = f"source: {input.source.uri(place)} has another content than {shard} was made of"
            raise _different(target, plan, input, [line])


def _touched(
    target: Target, listing: str | None, names: StringColumn | None
) -> Callable[[np.ndarray], np.ndarray]:
    """A function of ids in the source: bool, whether a file has another version than in the job's
    own listing.
    """
    kept = None if listing is None or names is None else listing_prefix(target)
    before, now = _versions(kept), _versions(listing)
    if names is None or before is None or now is None:
        return lambda ids: np.zeros(len(ids), bool)
    order = np.argsort(before[0])
    at = order[np.minimum(np.searchsorted(before[0], now[0], sorter=order), len(order) - 1)]
    other = now[0][(before[0][at] == now[0]) & (before[1][at] != now[1])]
    hashes = names.hashes()
    return lambda ids: np.isin(hashes[ids], other)


def _versions(prefix: str | None) -> tuple[np.ndarray, np.ndarray] | None:
    """Hashes of paths, and of what changes with the content, in a listing; None where there is
    none.
    """
    path = None if prefix is None else prefix + "listing" + ARRAYS
    if path is None or not os.path.exists(path):
        return None
    try:
        rows, _, _ = read_listing(path, Storage(), True, "preprocess")
    except SourceError:  # damaged; listing the source again did not need it
        return None
    return (
        None
        if rows.versions is None or not len(rows)
        else (rows.paths.hashes(), rows.versions.hashes())
    )


def _spread(items: np.ndarray) -> np.ndarray:
    """The first, the last, and others between them."""
    return items[np.linspace(0, len(items) - 1, min(len(items), _READ)).astype(np.int64)]


def _changes(target: Target, plan: JobPlan, input: Input) -> Changes | None:
    """How the input differs from the source of the plan; None where the plan's version kept no list
    to compare with.
    """
    before = load_samples(target.read(samples_file(plan)))
    return None if before is None else compare(before, input)


def _different(
    target: Target, plan: JobPlan, input: Input, differences: Sequence[str]
) -> ConfigError:
    """The error for a source that is not that of the plan."""
    now = len(input.source)
    has = f"has {now} now" if now != plan.length else "differs"
    lines = differences or _other_kind_of_labels(plan, input)
    return ConfigError(
        f"{target.text} holds a job of {plan.source} with {plan.length} images; {input.text}"
        f" {has}:\n"
        + "".join(f"  {line}\n" for line in lines)
        + "use the same source and options for it, or choose another, empty target"
    )


def _other_kind_of_labels(plan: JobPlan, input: Input) -> list[str]:
    """What differs where nothing else does: whether integers are names of classes; else, what
    may.
    """
    kept, now = bool(plan.classes), bool(input.source.classes)
    if kept == now:
        return ["its photographs, their order, labels, captions or columns are other ones"]
    was, kind = ("class names", "name") if kept else ("indices, as they are", "index")
    return [
        f"labels: this job takes integers for {was}; pass label_kind='{kind}' (--label-kind {kind})"
    ]
