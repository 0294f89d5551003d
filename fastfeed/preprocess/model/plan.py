"""The plan of a job: which images go into which shard.

It changes when images are appended: it gets more ids and shards, and earlier shards keep the hash
of the plan that they were made by. Edits (removed images, other labels) are part of the hashes of
those shards alone that hold the images.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.preprocess.model.edits import NO_EDITS, UNCHANGED, Edits
from fastfeed.preprocess.model.layout import JOB
from fastfeed.preprocess.model.recipe import SPLIT_NAME, Recipe, digest
from fastfeed.preprocess.model.record import Label
from fastfeed.sources.tables.column_types import ColumnType, words

# of shards, below the target
_FOLDER = re.compile(rf"(?:{SPLIT_NAME}(?:/[0-9]+x[0-9]+)?|[0-9]+x[0-9]+)?")
PLAN = f"{JOB}/plan.json"
ORDER = f"{JOB}/order.npy"
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard: a slice of the plan's order."""

    index: int
    name: str  # without suffix: "shard-000012", "val/shard-000003", "train/512x768/shard-000000"
    first: int  # in the order
    last: int


@dataclass(frozen=True, slots=True)
class Earlier:
    """A plan before images were appended."""

    hash: str  # of that plan: the records of its shards have it
    shards: int
    length: int  # images in the source
    fingerprint: str  # of the source


@dataclass(frozen=True, slots=True)
class MergedJob:
    """A job whose shards a plan took over, or images that were appended to one of these later.

    Its ids follow those of the ones before.
    """

    target: str  # as the user named it; "" for appended images
    source: str
    fingerprint: str  # of the source
    first_uri: str  # "" for appended images
    length: int  # images in the source, or those that were appended
    request: dict[str, Any] = field(default_factory=dict)  # of the source: SourceSpec.document

    @property
    def row(self) -> list[Any]:
        """The fields in a plan's file; earlier versions know no options."""
        *fields, request = astuple(self)
        return [*fields, request] if request else fields


@dataclass(frozen=True, eq=False)
class JobPlan:
    """The recipe, the source, and the ids of each shard."""

    recipe: Recipe
    source: str  # as the user named it, without storage options, which may hold secrets
    fingerprint: str  # of the source
    length: int  # images in the source
    classes: tuple[str, ...]  # class names by label
    order: np.ndarray  # int64, shape (planned,): ids in the source, shard by shard
    groups: tuple[tuple[str, int], ...]  # folder ("" is the target itself) and its number of ids
    # images left out by the plan, by reason (duplicates)
    left_out: dict[str, int] = field(default_factory=dict)
    # library versions that bytes depend on; {}: any
    made_with: dict[str, str] = field(default_factory=dict)
    # URI of the first image: later runs may spell the source's path differently
    first_uri: str = ""
    earlier: tuple[Earlier, ...] = ()  # one for each time that images were appended
    # int64, shape (length,): where the plan's ids are in the source; None: the same
    source_ids: np.ndarray | None = None
    # detail by id of images that the survey failed on
    failed: dict[int, str] = field(default_factory=dict)
    # what the split and the duplicates came to: survey/shares.py
    shares: dict[str, Any] = field(default_factory=dict)
    # options that opened the source: SourceSpec.document
    request: dict[str, Any] = field(default_factory=dict)
    edits: Edits = NO_EDITS  # of samples, since their shards were built
    edit_classes: tuple[str, ...] = ()  # those of `classes` that only edits brought
    merged: tuple[MergedJob, ...] = ()  # of jobs that were merged: each of them
    # images of each shard where these are cut by bytes, and what they are expected from:
    # planning/shard_sizes.py
    cuts: tuple[int, ...] = ()
    rates: tuple[int, ...] = ()
    # types of metadata columns; {} in plans of earlier versions, whose columns are JSON only
    columns: dict[str, ColumnType] = field(default_factory=dict)
    multi: bool = False  # True if samples have several classes
    # by value of an edit: the classes that it gives a sample
    edit_sets: dict[int, tuple[int, ...]] = field(default_factory=dict)
    images: tuple[str, ...] = ()  # names of the images of a sample, if it has several

    def __len__(self) -> int:
        return len(self.order)

    @property
    def parts(self) -> list[tuple[int, MergedJob]]:
        """The parts of a merged job, or the whole of another one, each with its first id."""
        about = self.source, self.fingerprint, self.first_uri, self.length, self.request
        parts = self.merged or (MergedJob("", *about),)
        starts = accumulate((part.length for part in parts), initial=0)
        return list(zip(starts, parts, strict=False))

    @property
    def sources(self) -> list[str]:
        """The sources of all parts."""
        return list({_place(part.source): part.source for _, part in self.parts}.values())

    def source_parts(self, source: str) -> list[tuple[int, MergedJob]]:
        """Those of the `parts` that are of a source. ConfigError if a merged job has none."""
        parts = self.parts
        if not self.merged:
            return parts
        own = [(start, part) for start, part in parts if _place(part.source) == _place(source)]
        if not own:
            names = "".join(f"\n  {name}" for name in self.sources)
            raise ConfigError(
                f"{source} is none of the sources that this job was merged from; pass one of"
                f" these:{names}"
            )
        return own

    def image_ids(self, source: str) -> np.ndarray:
        """Ids of the images of a source: int64. ConfigError as of `source_parts`."""
        parts = self.source_parts(source)
        return np.concatenate([np.arange(start, start + part.length) for start, part in parts])

    def places_in(self, source: str) -> np.ndarray | None:
        """Places of the ids in a source: int64, -1 for those of other sources; None: the same."""
        if not self.merged or self.source_ids is None:
            return self.source_ids
        own = self.image_ids(source)
        places = np.full(self.length, -1, np.int64)
        places[own] = self.source_ids[own]
        return places

    @property
    def planned(self) -> int:
        """Images of the shards, good or bad, without those that updates took out."""
        return len(self.order) - int(np.isin(self.order, self.edits.gone).sum())

    @cached_property
    def shards(self) -> list[Shard]:
        """All shards, numbered from 0 in each folder."""
        shards: list[Shard] = []
        numbers = Counter[str]()
        counts = iter(self.counts)
        start = 0
        for folder, count in self.groups:
            end = start + count
            while start < end:
                k = numbers[folder]
                numbers[folder] += 1
                last = start + next(counts)
                name = f"{folder}/shard-{k:06d}" if folder else f"shard-{k:06d}"
                shards.append(Shard(len(shards), name, start, last))
                start = last
        return shards

    @property
    def counts(self) -> Sequence[int]:
        """Images of each shard, group by group."""
        if self.cuts:
            return self.cuts
        most = self.recipe.packing.samples
        return [
            min(most, count - first) for _, count in self.groups for first in range(0, count, most)
        ]

    @cached_property
    def hash(self) -> str:
        """Hash of everything that determines the shards' bytes, but edits."""
        return digest({**self._header(), "order": _digest_of_ids(self.order.tobytes())})

    @property
    def edited_hash(self) -> str:
        """Hash of the plan with its edits."""
        edits = self._edits_header()
        return digest([self.hash, edits]) if edits else self.hash

    @cached_property
    def shard_hashes(self) -> list[str]:
        """Hash of the plan that each shard was made by, and of its edits, which its record has."""
        hashes: list[str] = []
        for before in self.earlier:
            hashes += [before.hash] * (before.shards - len(hashes))
        shards = self.shards
        hashes += [self.hash] * (len(shards) - len(hashes))
        bounds = [*(shard.first for shard in shards), len(self.order)]
        for k, edited in self.edits.hashes(self.order, bounds).items():
            hashes[k] += f".{edited}"
        return hashes

    def ids(self, shard: Shard) -> np.ndarray:
        """Ids of a shard's images, without those that updates took out: int64."""
        ids = self.order[shard.first : shard.last]
        return ids[~np.isin(ids, self.edits.gone)]

    def labels(self, ids: np.ndarray, of_source: Sequence[Label]) -> list[Label]:
        """Labels of these ids, which the source has as `of_source`."""
        values = self.edits.at(ids).tolist()
        pairs = zip(values, of_source, strict=True)
        return [own if value == UNCHANGED else self.label(value) for value, own in pairs]

    def label(self, value: int) -> Label:
        """The label that an edit of this value gives a sample."""
        if self.multi:
            return self.edit_sets.get(value, ())
        return value if value >= 0 else None

    def _edits_header(self) -> dict[str, Any]:
        if not len(self.edits) and not self.edit_classes:
            return {}
        sets = {"sets": [[value, list(own)] for value, own in sorted(self.edit_sets.items())]}
        about = {"hash": self.edits.hash, "classes": list(self.edit_classes)}
        return about | (sets if self.edit_sets else {})

    def _header(self) -> dict[str, Any]:
        appended: dict[str, Any] = {}
        if self.earlier:
            assert self.source_ids is not None
            appended = {
                "earlier": [list(astuple(part)) for part in self.earlier],
                "source_ids": _digest_of_ids(self.source_ids.tobytes()),
            }
        optional = {
            "cuts": list(self.cuts),
            "rates": list(self.rates),
            "failed": [[i, detail] for i, detail in sorted(self.failed.items())],
            "columns": self.columns,
            "multi": self.multi,
            "images": list(self.images),
        }
        appended |= {name: value for name, value in optional.items() if value}
        return appended | {
            "version": 1,
            "recipe": self.recipe.document(),
            "fingerprint": self.fingerprint,
            "length": self.length,
            "classes": [name for name in self.classes if name not in self.edit_classes],
            "groups": [list(group) for group in self.groups],
            "made_with": self.made_with,
        }

    @property
    def head(self) -> bytes:
        """Content of the file PLAN."""
        hash = self.hash
        about: dict[str, Any] = {
            "hash": hash,
            "source": self.source,
            "first_uri": self.first_uri,
            "left_out": self.left_out,
        }
        about |= {name: value for name in ("shares", "request") if (value := getattr(self, name))}
        if self.merged:
            about["merged"] = [job.row for job in self.merged]
        edited: dict[str, Any] = {}
        if edits := self._edits_header():
            # versions without edits take the plan for a damaged one, not the samples for missing
            edited = {"classes": list(self.classes), "edits": edits, "base": hash}
            edited["hash"] = digest([hash, edits])
        return json.dumps({**about, **self._header(), **edited}, indent=1).encode() + b"\n"

    def files(self) -> dict[str, bytes]:
        """Content of the plan's files by name; write PLAN last."""
        head = self.head
        arrays = (self.order, self.source_ids)
        contents = [saved(array) for array in arrays if array is not None]
        files = dict(zip(plan_files(head), contents, strict=True))
        if name := edits_file(head):
            files[name] = saved(self.edits.table)
        return {**files, PLAN: head}

    @classmethod
    def read(cls, read: Callable[[str], bytes | None], where: str) -> JobPlan | None:
        """The plan whose files `read` returns by name, if there is one."""
        head = read(PLAN)
        files = [] if head is None else [read(name) for name in plan_files(head)]
        if head is None or not files or files[0] is None:
            return None
        edits = read(name) if (name := edits_file(head)) else None
        return cls.load(head, files[0], where, files[1] if len(files) > 1 else None, edits)

    @classmethod
    def load(
        cls,
        plan: bytes,
        order: bytes,
        where: str,
        source_ids: bytes | None = None,
        edits: bytes | None = None,
    ) -> JobPlan:
        """Parse PLAN, the `plan_files` and the `edits_file`. SourceError if they are damaged."""
        try:
            header = json.loads(plan)
            loaded = cls(
                Recipe.of(header["recipe"]),
                header["source"],
                header["fingerprint"],
                header["length"],
                tuple(header["classes"]),
                np.load(io.BytesIO(order), allow_pickle=False),
                tuple((name, count) for name, count in header["groups"]),
                header["left_out"],
                header["made_with"],
                header.get("first_uri", ""),
                tuple(Earlier(*part) for part in header.get("earlier", ())),
                None if source_ids is None else np.load(io.BytesIO(source_ids), allow_pickle=False),
                {int(i): str(detail) for i, detail in header.get("failed", ())},
                header.get("shares", {}),
                header.get("request", {}),
                NO_EDITS if edits is None else Edits.of(np.load(io.BytesIO(edits))),
                tuple(header.get("edits", {}).get("classes", ())),
                tuple(MergedJob(*job) for job in header.get("merged", ())),
                tuple(header.get("cuts", ())),
                tuple(header.get("rates", ())),
                header.get("columns", {}),
                header.get("multi", False),
                {value: tuple(own) for value, own in header.get("edits", {}).get("sets", ())},
                tuple(header.get("images", ())),
            )
            loaded._check()
            if header["hash"] != (hash := loaded.edited_hash):
                raise ValueError(f"its hash is {hash}, not {header['hash']}")
        except _DAMAGE as error:
            why = f"the plan in {where} is damaged: {error}; start in an empty folder"
            raise SourceError(why) from error
        return loaded

    def _check(self) -> None:
        """Raise ValueError for folders outside of the target, wrong types and numbers."""
        texts = [self.source, self.fingerprint, self.first_uri]
        texts += [*self.classes, *self.edit_classes, *self.made_with.values(), *self.images]
        texts += [text for job in self.merged for text in astuple(job)[:4]]
        numbers = [self.length, *self.left_out.values(), *(job.length for job in self.merged)]
        numbers += [k for value, own in self.edit_sets.items() for k in (value, *own)]
        if self.earlier and self.source_ids is None:
            raise ValueError("it has no ids in the source")
        if {*map(type, texts)} != {str} or {*map(type, numbers)} != {int}:
            raise ValueError("a text or a number is something else")
        for kind in self.columns.values():
            words(kind)
        for value in (value for _, part in self.parts for value in part.request.values()):
            if {*map(type, value if isinstance(value, list) else [value])} - {str}:
                raise ValueError("an option of its source is not text")
        for folder, count in self.groups:
            if not _FOLDER.fullmatch(folder) or type(count) is not int or count < 0:
                raise ValueError(f"{folder!r} with {count!r} images is not a folder of shards")
        self._check_cuts()
        # in the source, those of edited samples may be gone: -1
        for ids, lowest in ((self.order, 0), (self.source_ids, -1)):
            if ids is None:
                continue
            if ids.ndim != 1 or ids.dtype != np.int64 or ids.min(initial=0) < lowest:
                raise ValueError("its order must be ids")
        if sum(count for _, count in self.groups) != len(self.order):
            raise ValueError(f"its order has {len(self.order)} ids, which its folders do not")
        if len(self.order) and not int(self.order.max()) < self.length:
            raise ValueError(f"its order has id {self.order.max()}, of {self.length} images")

    def _check_cuts(self) -> None:
        """Raise ValueError unless the shards make up the groups."""
        if {*map(type, (*self.cuts, *self.rates))} - {int} or min(self.cuts, default=1) < 1:
            raise ValueError("the images of a shard are not a number")
        if bool(self.cuts) != bool(self.recipe.packing.shard_bytes and self.order.size):
            raise ValueError("its recipe and its shards do not fit")
        ends = {0, *accumulate(self.cuts)}
        if self.cuts and not ends.issuperset(accumulate(count for _, count in self.groups)):
            raise ValueError("its shards are not those of its folders")

    def differences(self, other: JobPlan) -> str:
        """Differences from `other`, the plan requested now, one line each."""
        lines = [f"  {line}" for line in self.recipe.difference(other.recipe)]
        if self.fingerprint != other.fingerprint:
            lines.append(
                f"  source: {self.source} with {self.length} images -> {other.source} with"
                f" {other.length}"
            )
        lines += [f"  {line}" for line in version_differences(self.made_with, other.made_with)]
        return "\n".join(lines)


def plan_files(head: bytes) -> list[str]:
    """Names of the files that a plan's head refers to; other names after images are appended."""
    try:
        header = json.loads(head)
        name = header.get("base", header["hash"]) if header.get("earlier") else ""
        name = name if re.fullmatch("[0-9a-f]*", name) else ""  # a path would lead out of the job
    except (ValueError, KeyError, TypeError, AttributeError):  # damaged: `load` says so
        name = ""
    return [f"{JOB}/order-{name}.npy", f"{JOB}/source-ids-{name}.npy"] if name else [ORDER]


def edits_file(head: bytes) -> str:
    """Name of the file with a plan's edits; "" if it has none."""
    try:
        name = json.loads(head)["edits"]["hash"]
        return f"{JOB}/edits-{name}.npy" if re.fullmatch("[0-9a-f]+", name) else ""
    except (ValueError, KeyError, TypeError):
        return ""


@lru_cache(maxsize=4)
def _digest_of_ids(ids: bytes) -> str:
    """Hash of int64 ids; those of a million take a fifth of a second, and are asked for often."""
    return digest(np.frombuffer(ids, np.int64).tolist())


def saved(array: np.ndarray) -> bytes:
    """The content of an .npy file."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def ordered(
    groups: Sequence[tuple[str, np.ndarray]], about: str
) -> tuple[np.ndarray, tuple[tuple[str, int], ...]]:
    """`order` and `groups` of a plan, from groups of (folder, ids in order). ConfigError."""
    full = [(folder, np.asarray(ids, np.int64)) for folder, ids in groups if len(ids)]
    if not full:
        raise ConfigError(f"no images to process: {about}")
    return np.concatenate([ids for _, ids in full]), tuple((name, len(ids)) for name, ids in full)


def version_differences(planned: Mapping[str, str], here: Mapping[str, str]) -> list[str]:
    """`pillow: 12.0.0 -> 13.0.0`, one line for each library whose version differs."""
    pairs = {n: (planned.get(n, "none"), here.get(n, "none")) for n in planned.keys() | here.keys()}
    return [f"{name}: {was} -> {now}" for name, (was, now) in sorted(pairs.items()) if was != now]


def uri_prefixes(planned: str, here: str) -> tuple[str, str]:
    """Prefixes of one image's URI in the plan and in this run: `photos/`, `/data/photos/`."""
    planned_parts = planned.split("/")
    here_parts = here.split("/")
    while planned_parts and here_parts and planned_parts[-1] == here_parts[-1]:
        planned_parts.pop()
        here_parts.pop()
    return "/".join([*planned_parts, ""]), "/".join([*here_parts, ""])


def _place(source: str) -> str:
    """A source's text, the same for all spellings of a folder, and whatever it holds now."""
    source = re.sub(r"\): \d.*", ")", source.removeprefix("file://"))  # of a repr
    return source.rstrip("/") if "://" in source else os.path.abspath(source)


def relative_uri(uri: str, source: str, root: str | os.PathLike[str] | None = None) -> str | None:
    """An image's URI relative to its source, or to the folder of a pattern; None if outside.

    root: the source's own spelling of its folder.
    """
    is_relative = "://" not in source and not os.path.isabs(source)
    here = os.getcwd() if is_relative else ""
    for base in _bases(source, "" if root is None else os.fspath(root), here):
        if uri.startswith(base):
            return uri.removeprefix(base)
    return None


@lru_cache(maxsize=64)
def _bases(source: str, root: str, here: str) -> tuple[str, ...]:
    """Prefixes of URIs below a source, each with a slash at its end.

    here: the working directory, below which a relative source is.
    """
    source = source.removeprefix("file://")
    folder = re.split(r"[*?\[{]", source, maxsplit=1)[0].rpartition("/")[0]
    bases = [root, source, os.path.normpath(os.path.join(here, source)), folder]
    bases += [] if "://" in source else [os.path.normpath(os.path.join(here, folder))]
    return tuple(base.rstrip("/") + "/" for base in bases if base)
