"""Samples of several images, each from its own source: pairs, stereo, before and after."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, Literal

import numpy as np

from fastfeed.arguments import checked_early
from fastfeed.errors import ConfigError
from fastfeed.printable import printable
from fastfeed.runtime.batch import column_field
from fastfeed.sources.base import Optionals, Source, check_source, has_boxes_or_masks
from fastfeed.sources.derived import Derived
from fastfeed.sources.methods import SourceMethods
from fastfeed.sources.notes import source_notes, with_notes
from fastfeed.spec import CLASS_NUMBER, LabelSpec

_MOST = 15  # images of a sample; the ops of each have 4096 slots of random numbers
_AT_ONCE = 4096  # labels checked in one call; the first ones mostly tell


@checked_early
class Together(Derived, SourceMethods):
    """Samples of several images: sample i is image i of every source.

    A batch has the images by name, `batch["left"]` and `batch["right"]`; `batch.images` are those
    of the first source. If one image cannot be read or decoded the sample is bad, and replaced as a
    whole. Address, boxes, masks and the shares of a mixture are those of the first source; labels
    are of the first one with labels, weights of the first one with weights. Columns of the first
    source keep their names, those of others are `right.NAME`.

    `Feed` takes one list of ops for all images, or a list for each:
    `{"left": [...], "right": [...]}`. The n-th random op of every list draws the same numbers.
    Geometry is computed for the size of the first image; crops of images of other sizes are the
    same shares of them. They must have the same proportions, to within a pixel; a sample is bad if
    they have not.

    Args:
        sources (Mapping[str, Source]): Two or more by name, up to 15.
        by (str): "order" takes image i of every source, and needs sources of equal length. "name"
            takes images of the same name below their roots, without suffix, for each image of the
            first source; `notes` count images that are left. Default: "order".
        geometry (str): "same" crops, flips and turns the images of a sample alike; "own" draws
            other numbers for each, whatever their sizes. Default: "same".

    Raises:
        ConfigError: If an image has no partner, or a name is not a plain one.

    Example:
        >>> before, after = (ff.Arrays(np.full((4, 8, 8, 3), n, np.uint8)) for n in (1, 2))
        >>> pairs = ff.Together({"before": before, "after": after})
        >>> batch = next(iter(ff.Feed(pairs, [ff.RandomFlip()], batch=2)))
        >>> batch["before"].max(), batch["after"].max()
        (np.uint8(1), np.uint8(2))
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
        *,
        by: Literal["order", "name"] = "order",
        geometry: Literal["same", "own"] = "same",
    ) -> None:
        if not isinstance(sources, Mapping) or not 2 <= len(sources) <= _MOST:
            got = f"{len(sources)}" if isinstance(sources, Mapping) else printable(repr(sources))
            raise ConfigError(
                f'Together needs 2 to {_MOST} sources by name, such as {{"left": a, "right": b}},'
                f" got {got}; pass a single source to Feed as it is"
            )
        for k, (name, source) in enumerate(sources.items()):
            _check_name(name, first=k == 0)
            check_source(source, f"Together: source {name!r}")
            if k and has_boxes_or_masks(source):
                raise ConfigError(
                    f"Together: only the first source may have boxes or masks, got some of {name!r};"
                    " name that source first"
                )
        if geometry not in ("same", "own"):
            raise ConfigError.of("Together: geometry", '"same" or "own"', geometry)
        if by not in ("order", "name"):
            raise ConfigError.of("Together: by", '"order" or "name"', by)
        roots = [getattr(source, "root", None) for source in sources.values()]
        self._left: list[str] = []
        if by == "name":
            sources, self._left = _by_name(sources)
        lengths = {name: len(source) for name, source in sources.items()}
        if len({*lengths.values()}) > 1:
            raise ConfigError(
                f"Together: all sources must have as many samples, got {lengths}; sample i is made"
                ' of image i of each; pass by="name" for images of the same name'
            )
        Derived.__init__(self, next(iter(sources.values())))
        self.geometry = geometry
        self.root = _common_folder(roots)
        self._first = next(iter(sources))
        self._images = dict(sources)
        self._columns = {name: Optionals(source) for name, source in sources.items()}
        self._labeled = next(filter(_has_labels, sources.values()), self.source)
        self.classes = self._labeled.classes
        taken = [name for name in self.columns(np.empty(0, np.int64)) if name in sources]
        if taken:
            raise ConfigError(
                f"Together: {taken[0]!r} is an image and a column of {self._first!r}; name the image"
                " otherwise"
            )

    @property
    def together(self) -> dict[str, Source]:
        """The sources of the images by name."""
        return self._images

    def label(self, ids: np.ndarray) -> np.ndarray:
        """Labels of the first source that has any."""
        return self._labeled.label(ids)

    @property
    def label_reads(self) -> bool:
        """True if these labels are read with the samples."""
        return getattr(self._labeled, "label_reads", False)

    @property
    def label_spec(self) -> LabelSpec:
        """Shape and dtype of these labels."""
        return Optionals(self._labeled).label_spec

    def weights(self, ids: np.ndarray) -> np.ndarray | None:
        """Weights of the first source that has any; None if no source has."""
        weights = (source.weights(ids) for source in self._columns.values())
        return next((found for found in weights if found is not None), None)

    def columns(self, ids: np.ndarray) -> dict[str, np.ndarray]:
        """Columns of all sources, those of the first one by their own names."""
        return {
            self._column(image, name): values
            for image, source in self._columns.items()
            for name, values in source.columns(ids).items()
        }

    def column_values(self, ids: Sequence[int]) -> list[dict[str, Any]] | None:
        """Values of the same columns, if any source reads its columns from storage."""
        if all(source.column_values([]) is None for source in self._columns.values()):
            return None
        merged: list[dict[str, Any]] = [{} for _ in ids]
        for image, source in self._columns.items():
            rows = source.column_values(ids)
            if rows is None:
                columns = source.columns(np.asarray(ids, np.int64))
                rows = [{name: columns[name][row] for name in columns} for row in range(len(ids))]
            for values, row in zip(merged, rows, strict=True):
                values.update({self._column(image, name): value for name, value in row.items()})
        return merged

    def _column(self, image: str, name: str) -> str:
        return name if image == self._first else f"{image}.{name}"

    def expect(self, samples: int) -> None:
        """Reserve room in every source."""
        for source in self._images.values():
            Derived(source).expect(samples)

    @property
    def fingerprint(self) -> str:
        """The fingerprints of all sources, joined by +."""
        own = ["own geometry"] if self.geometry == "own" else []
        return " + ".join([source.fingerprint for source in self._images.values()] + own)

    @property
    def notes(self) -> list[str]:
        """The notes of all sources, each after the name of the image."""
        images = self._images.items()
        notes = [f"{name}: {note}" for name, source in images for note in source_notes(source)]
        return self._left + notes

    def __str__(self) -> str:
        return with_notes(repr(self), self.notes)

    def __repr__(self) -> str:
        images = ", ".join(f"{name}={source!r}" for name, source in self._images.items())
        return f"Together({images}{', geometry=own' if self.geometry == 'own' else ''})"


def _check_name(name: Any, first: bool) -> None:
    """ConfigError for a name that no field of a batch can have."""
    word = isinstance(name, str) and name.isidentifier()
    if not word or (column_field(name) != name and not (first and name == "image")):
        raise ConfigError.of(
            "Together: names",
            "words such as 'left' that no other field of a batch has",
            name,
            "'image' may be the first one",
        )


def _common_folder(roots: Sequence[Any]) -> str | None:
    """Folder or bucket that holds all of these folders; None if they share no part of a path."""
    if not all(roots):
        return None
    levels = zip(*map(_levels, roots), strict=False)
    shared = takewhile(lambda level: len({*level}) == 1, levels)
    return "/".join(level[0] for level in shared) or None


def _levels(root: str | os.PathLike[str]) -> list[str]:
    """Parts of a path; a bucket is one part with its scheme."""
    scheme, colon, path = os.fspath(root).rstrip("/").rpartition("://")
    first, *rest = path.split("/")
    return [scheme + colon + first, *rest]


def _by_name(sources: Mapping[str, Source]) -> tuple[dict[str, Source], list[str]]:
    """The sources with their images in the order of the first one's names, and notes."""
    first, *others = sources
    rows = {name: _rows_by_name(name, source) for name, source in sources.items()}
    paired = {first: sources[first]}
    notes = []
    for name in others:
        alone = [text for text in rows[first] if text not in rows[name]]
        if alone:
            raise ConfigError(
                f"Together: {len(alone):,} of {len(rows[first]):,} images of {first!r} have no"
                f" partner in {name!r}, such as {printable(alone[0])}; add them, or leave these"
                " out with ff.take"
            )
        ids = np.array([rows[name][text] for text in rows[first]], np.int64)
        paired[name] = Derived(sources[name], ids)
        if len(ids) < len(sources[name]):
            notes.append(f"{name}: {len(sources[name]) - len(ids):,} images have no partner")
    return paired, notes


def _rows_by_name(image: str, source: Source) -> dict[str, int]:
    """Ids by name without suffix."""
    names = Optionals(source).sample_names(np.arange(len(source)))
    rows = {os.path.splitext(name)[0]: id for id, name in enumerate(names)}
    if len(rows) < len(names):
        twice = next(name for id, name in enumerate(names) if rows[os.path.splitext(name)[0]] != id)
        raise ConfigError(
            f"Together: {image!r} has several images of the name {printable(twice)} without its"
            ' suffix; rename them, or pass by="order"'
        )
    return rows


def _has_labels(source: Source) -> bool:
    """True if any sample has a label, or may have one that is read with it."""
    reads = getattr(source, "label_reads", False)
    if reads or source.classes or Optionals(source).label_spec != CLASS_NUMBER:
        return True
    starts = range(0, len(source), _AT_ONCE)
    ids = (np.arange(first, min(first + _AT_ONCE, len(source))) for first in starts)
    return any((source.label(part) >= 0).any() for part in ids)
