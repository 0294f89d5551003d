"""Subsets of any source, and the methods that all sources of fastfeed share."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fastfeed.arguments import checked, checked_early
from fastfeed.errors import ConfigError, speaking_for
from fastfeed.sources.base import Source, check_source
from fastfeed.sources.column_arrays import read_columns
from fastfeed.sources.derived import Derived
from fastfeed.sources.filters import SampleFilter, size_limits
from fastfeed.sources.headers import read_headers
from fastfeed.sources.notes import source_notes, with_notes
from fastfeed.sources.sides import assign_sides, check_shares, keras_sides
from fastfeed.spec import CLASS_NUMBER
from fastfeed.storage.fingerprint import SUBSET_SEPARATOR


@checked_early
def take(source: Source, ids: int | Sequence[int] | np.ndarray) -> Subset:
    """Some samples of a source, as a source.

    It keeps all that the source has of them: native reading, shards, labels and their classes,
    columns, boxes, masks and weights. It costs 4 bytes of memory per sample.

    Args:
        source (Source): Any source.
        ids (int | Sequence[int] | np.ndarray): A number takes the first ones, which in a folder are
            those of the first classes; ids take these samples in this order, each once. A subset of
            a Mixture, or of Objects over one, keeps the mixture's order and shares.

    Returns:
        The samples, numbered from 0.

    Raises:
        ConfigError: If ids are out of range, repeated or none, or if a source of a Mixture with
            weights would have no samples.

    Example:
        >>> photos = ff.ImageFolder("photos")
        >>> ff.take(photos, [5, 0]).uris([0])
        ['photos/dog/0002.jpg']
    """
    check_source(source, "take: source", several=True)
    if isinstance(ids, (int, np.integer)) and not isinstance(ids, bool):
        if not 1 <= ids <= len(source):
            raise ConfigError(
                f"take: a number of samples must be in [1, {len(source)}], got {ids}; pass ids to"
                " choose others than the first",
                field="ids",
            )
        return Subset(source, np.arange(int(ids)), f"first {ids:,}")
    chosen = checked_ids(ids, len(source), "take")
    if not len(chosen):
        raise ConfigError(
            "take: ids must be at least one, got none; a source has no length of 0", field="ids"
        )
    values, counts = np.unique(chosen, return_counts=True)
    if len(values) < len(chosen):
        twice = int(values[int(np.argmax(counts))])
        raise ConfigError(
            f"take: ids must be different, got {twice} {counts.max()} times; pass each once, or"
            " Weighted(weights) to a feed to read samples more often",
            field="ids",
        )
    return Subset(source, chosen, "chosen by id")


@checked
def split(
    source: Source,
    shares: Mapping[str, float] | None = None,
    *,
    seed: int | None = 0,
    by: str = "hash",
    keras_split: float | None = None,
) -> dict[str, Subset]:
    """Sources that share the samples of one, such as for training and validation.

    How samples are assigned, each by the seed:

    - "hash": by a hash of the name that a sample has below its source's root. A sample stays on its
      side when data is added or removed and when the folder moves, and no sample leaves a side
      whose share grows at the expense of the next. Sizes are the shares in expectation: 0.2 of n
      is within 0.8 * sqrt(n) in 19 of 20 splits. Names are paths in folders, tables and lists (of
      absolute ones and URLs the last two parts), `file_name` in COCO files, `shard.tar:member` in
      shards, `file#row` of images in Parquet, and positions in arrays; for your own sources
      `sample_names(ids)`, or else `uri(i)`.
    - "random": sizes are the shares to less than one sample.
    - "stratified": so are the sizes of each class; samples without a label count as one class,
      and so does each set of classes under label_kind="multi".
    - "order": contiguous parts in the order of the source, with sizes as under "random"; the seed
      has no effect. `folds` cuts the same parts as scikit-learn's `KFold` without shuffling.
    - "group:COLUMN": samples of equal values of a column are on one side, the largest groups first
      on the side that lacks most. Sizes are as near to the shares as whole groups come, which
      `print` shows. Missing values are one group.

    Args:
        source (Source): Any source.
        shares (Mapping[str, float] | None): Share of each side, such as {"train": 0.8, "val": 0.2};
            they sum to 1. Default: None, with `keras_split`.
        seed (int | None): Another number gives another split. None, which only `keras_split` takes:
            as Keras without shuffling. Default: 0.
        by (str): "hash", "random", "stratified", "order" or "group:COLUMN". Default: "hash".
        keras_split (float | None): In place of `shares`, of an ImageFolder: "training" and
            "validation" with exactly the files of `keras.utils.image_dataset_from_directory` for
            this `validation_split` and `seed` (the same in Keras 2.6 to 3.15). Default: None.

    Returns:
        A source for each side, by name; `classes` stay those of the source.

    Raises:
        ConfigError: If the shares do not sum to 1, a side would be empty, a group does not fit into
            its share, a column is unknown, or labels are no classes.
        SourceError: If columns cannot be read from storage.

    Example:
        >>> photos = ff.ImageFolder("photos")
        >>> sides = ff.split(photos, {"train": 0.67, "val": 0.33}, by="stratified")
        >>> print(sides["val"])
        2 images (val, stratified) of ImageFolder('photos'): 6 images of 2 classes
    """
    check_source(source, "split: source", several=True)
    if (shares is None) == (keras_split is None):
        raise ConfigError(
            'split: pass either shares, such as {"train": 0.8, "val": 0.2}, or keras_split, got'
            f" {'neither' if shares is None else 'both'}"
        )
    if keras_split is not None:
        sides = keras_sides(source, keras_split, by, seed)
        return _subsets(source, ["training", "validation"], sides, "as Keras", "keras_split")
    assert shares is not None
    check_shares(shares)
    sides = assign_sides(source, list(shares), list(shares.values()), by, seed)
    return _subsets(source, list(shares), sides, _about(by), repr(by))


@checked_early
def folds(
    source: Source, count: int, *, seed: int = 0, by: str | None = None, shuffle: bool = True
) -> list[tuple[Subset, Subset]]:
    """Sources for cross-validation: each sample is in one validation part.

    Args:
        source (Source): Any source.
        count (int): Folds, at least 2.
        seed (int): Another number gives other folds. Default: 0.
        by (str | None): As in `split`: "hash", "random", "stratified", "order" or "group:COLUMN".
            Default: None, "hash".
        shuffle (bool): False cuts contiguous folds, as by="order" does. Default: True.

    Returns:
        For each fold the sources of training and validation.

    Raises:
        ConfigError: If a fold would be empty, or as `split` raises it.
        SourceError: If columns cannot be read from storage.

    Example:
        >>> photos = ff.ImageFolder("photos")
        >>> [(len(train), len(val)) for train, val in ff.folds(photos, 3, by="stratified")]
        [(4, 2), (4, 2), (4, 2)]
    """
    check_source(source, "folds: source", several=True)
    if count < 2:
        raise ConfigError(
            f"folds: count must be at least 2, got {count}; use split for one split", field="count"
        )
    if count > len(source):
        raise ConfigError(
            f"folds: {len(source)} samples cannot be on {count} sides; lower count", field="count"
        )
    if not shuffle and by not in (None, "order"):
        raise ConfigError(
            f"folds: shuffle=False cuts contiguous folds, got it with by={by!r}; leave one out",
            field="shuffle",
        )
    by = (by or "hash") if shuffle else "order"
    names = [f"fold {k + 1} of {count}" for k in range(count)]
    with speaking_for("folds", "split"):
        sides = assign_sides(source, names, [1 / count] * count, by, seed)
        validation = _subsets(source, names, sides, _about(by), repr(by))
    return [
        (Subset(source, np.flatnonzero(sides != k), f"all but {name}, {_about(by)}"), val)
        for k, (name, val) in enumerate(validation.items())
    ]


@checked_early
def where(
    source: Source,
    condition: Callable[[dict[str, np.ndarray]], np.ndarray] | None = None,
    *,
    per_sample: Callable[[dict[str, Any], Any], bool] | None = None,
    min_side: int | None = None,
    max_side: int | None = None,
    max_aspect: float | None = None,
    progress: bool | None = None,
) -> Subset:
    """The samples for which all conditions hold, as a source.

    Conditions are evaluated here, once, so that batches stay whole. `min_side`, `max_side`,
    `max_aspect` and `per_sample` need the size of every image: headers are read once, by native
    threads (the first 16 kB, and of longer headers what they need), and their sizes kept in
    FASTFEED_CACHE until the source's fingerprint changes (of a table, its paths do, not the
    content of files). An image whose header cannot be read is left out; of several images per
    sample the first counts. `print` and `notes` say how many images each condition left out. If
    the table has columns of sizes, a condition on these reads no image.

    Args:
        source (Source): Any source.
        condition (Callable[[dict[str, np.ndarray]], np.ndarray] | None): Called with arrays of all
            samples by the names of the source's columns, and "label" (class numbers, unless a
            column has this name); returns bool (n,). Default: None.
        per_sample (Callable[[dict[str, Any], Any], bool] | None): Called for each sample that the
            other conditions keep, with its values by the same names, and its header, which has
            `height` and `width` as displayed and `format`, such as "JPEG". Default: None.
        min_side (int | None): Least length of the shorter side, pixels. Default: None, any.
        max_side (int | None): Greatest length of the longer side, pixels. Default: None, any.
        max_aspect (float | None): Greatest ratio of the longer side to the shorter one, at least 1.
            Default: None, any.
        progress (bool | None): Show how many headers are read. Default: None, on a terminal.

    Returns:
        The samples that are kept, in the order of the source.

    Raises:
        ConfigError: If there is no condition or no sample is kept, a column is unknown, or a
            function returns something else.
        SourceError: If storage fails at a column or at an image.

    Example:
        >>> photos = ff.Table("photos.csv", image="path", columns=["trust"])
        >>> len(ff.where(photos, lambda columns: columns["trust"] > 1))
        3
    """
    check_source(source, "where: source", several=True)
    limits = size_limits(min_side, max_side, max_aspect)
    if condition is None and per_sample is None and not limits:
        raise ConfigError(
            "where: pass a condition on columns, min_side, max_side, max_aspect or per_sample, got"
            " none"
        )
    kept = SampleFilter(len(source))
    columns = {} if condition is None and per_sample is None else read_columns(source)
    if condition is not None:
        kept.by_columns(condition, columns)
    if limits or per_sample is not None:
        kept.by_headers(source, read_headers(source, progress), limits, per_sample, columns)
    if not kept.mask.any():
        raise ConfigError(f"where: no sample is kept, {kept.note}; loosen a condition")
    return Subset(source, np.flatnonzero(kept.mask), "where", [kept.note] if kept.note else [])


class SourceMethods:
    """Base class of sources, without state."""

    take = take
    split = split
    folds = folds
    where = where

    def uris(self: Source, ids: Sequence[int] | np.ndarray) -> list[str]:
        """Addresses of samples, such as those of `batch.ids`.

        Args:
            ids (Sequence[int] | np.ndarray): Sample ids, (n,).

        Returns:
            `uri(i)` of each: a path or address, with what finds the sample in it.

        Raises:
            ConfigError: If an id is not an integer in [0, number of samples).

        Example:
            >>> ff.Files(["cat.jpg", "dog.jpg"]).uris([1, 0])
            ['dog.jpg', 'cat.jpg']
        """
        return [self.uri(i) for i in checked_ids(ids, len(self), "uris").tolist()]

    def sample_names(self: Any, ids: np.ndarray) -> list[str]:
        """Paths below the root, the last two parts of absolute ones, or `file#row`."""
        paths = getattr(self, "paths", None)
        if paths is None:
            return [self.uri(i).rpartition("/")[2] for i in ids.tolist()]
        return [
            "/".join(path.split("/")[-2:]) if path.startswith("/") or "://" in path else path
            for path in paths.take(ids)
        ]


class Subset(Derived, SourceMethods):
    """Some samples of a source, as `take`, `split`, `folds` and `where` make it.

    Args:
        source (Source): Any source; of a subset, its own source is taken.
        ids (np.ndarray): Sample ids, each once: integers (n,).
        about (str): Text for `print`.
        notes (Sequence[str]): More notes, after the source's.
    """

    def __init__(
        self, source: Source, ids: np.ndarray, about: str, notes: Sequence[str] = ()
    ) -> None:
        if getattr(source, "shares", None) is not None:
            ids = np.sort(ids)
        self._about = about
        self._own_notes = list(notes)
        self._fingerprint = ""
        if type(source) is Subset:
            ids = source._source_ids(ids)
            self._about = f"{about}, of {source._about}"
            self._own_notes = source._own_notes + self._own_notes
            source = source.source
        small = len(source) <= np.iinfo(np.int32).max
        super().__init__(source, ids.astype(np.int32 if small else np.int64))
        self._check_parts()

    def _part_counts(self) -> np.ndarray:
        """Samples here of each source of a mixture."""
        return np.diff(np.searchsorted(self._source_ids(np.arange(len(self))), super().starts))

    @property
    def shares(self) -> tuple[float, ...] | None:
        """Shares of a mixture's sources that have samples here; None of other sources."""
        shares = super().shares
        if shares is None or shares != tuple(np.diff(super().starts).tolist()):
            return shares
        return tuple(float(count) for count in self._part_counts() if count)

    @property
    def starts(self) -> np.ndarray:
        """First ids here of a mixture's sources, and the number of samples last: int64."""
        counts = self._part_counts()
        return np.cumsum([0, *counts[counts > 0]])

    def _check_parts(self) -> None:
        """ConfigError if a source of a mixture with given weights has no samples here."""
        shares = self.shares
        if shares is not None and len(shares) > len(self.starts) - 1:
            part = int(np.argmin(self._part_counts()))
            raise ConfigError(
                f"a subset of a Mixture with weights needs samples of each source, got none of"
                f" number {part}, which has {shares[part]:g} of {sum(shares):g}; make the Mixture of"
                " subsets"
            )

    @property
    def fingerprint(self) -> str:
        """The source's, and a hash of the ids."""
        if not self._fingerprint:
            ids = np.ascontiguousarray(self._ids, "<i8")
            digest = hashlib.blake2b(ids.data, digest_size=16).hexdigest()
            self._fingerprint = f"[{self.source.fingerprint}]{SUBSET_SEPARATOR}{digest}"
        return self._fingerprint

    @property
    def notes(self) -> list[str]:
        """The source's, samples that a condition left out, and classes without samples."""
        notes = source_notes(self.source) + self._own_notes
        if self.classes and self.label_spec == CLASS_NUMBER and not self.label_reads:
            ids = np.arange(len(self.source))
            here, there = (
                set(np.unique(source.label(ids[: len(source)])).tolist())
                for source in (self, self.source)
            )
            if lost := sorted(there - here - {-1}):
                count = f"{len(lost)} class{'' if len(lost) == 1 else 'es'}"
                notes.append(f"no image here of {count}, such as {self.classes[lost[0]]}")
        return notes

    def __str__(self) -> str:
        return with_notes(repr(self), self.notes)

    def __repr__(self) -> str:
        source = str(self.source).splitlines()[0]
        return f"{len(self)} images ({self._about}) of {source}"


def checked_ids(ids: Any, length: int, who: str) -> np.ndarray:
    """Ids as an array of integers (n,). ConfigError if one is not in [0, length)."""
    numbers = np.asarray(ids)
    if numbers.ndim != 1 or (len(numbers) and numbers.dtype.kind not in "iu"):
        hint = "np.flatnonzero(mask)" if numbers.dtype.kind == "b" else "integers"
        raise ConfigError(
            f"{who}: ids must be a list of integers, got {numbers.dtype}{list(numbers.shape)}; pass"
            f" {hint}, such as batch.ids",
            field="ids",
        )
    outside = (numbers < 0) | (numbers >= length)
    if outside.any():
        raise ConfigError(
            f"{who}: ids must be in [0, {length}), got {numbers[int(np.argmax(outside))]}; pass ids"
            " of this source",
            field="ids",
        )
    return numbers.astype(np.int64)


def _about(by: str) -> str:
    return {"stratified": by, "order": "in order"}.get(by) or f"by {by.replace(':', ' ', 1)}"


def _subsets(
    source: Source, names: Sequence[str], sides: np.ndarray, about: str, how: str
) -> dict[str, Subset]:
    counts = np.bincount(sides, minlength=len(names))
    if not counts.all():
        sizes = ", ".join(f"{name} {n}" for name, n in zip(names, counts.tolist(), strict=True))
        raise ConfigError(
            f"split: each side needs samples, got {sizes} of {len(source)} by {how}; pass"
            ' by="random", whose sizes are exact, larger shares, or more data'
        )
    return {
        name: Subset(source, np.flatnonzero(sides == side), f"{name}, {about}")
        for side, name in enumerate(names)
    }
