"""Mixes several sources in given shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fastfeed.arguments import checked_early
from fastfeed.errors import ConfigError
from fastfeed.printable import printable
from fastfeed.runtime.addresses import Grouped
from fastfeed.sources.base import (
    Fetching,
    Instances,
    Optionals,
    Sharded,
    Source,
    StoredFile,
    check_source,
    has_boxes_or_masks,
    renumbered,
    sample_locations,
    stored_files,
)
from fastfeed.sources.class_names import class_names, renumbering
from fastfeed.sources.methods import SourceMethods
from fastfeed.sources.notes import source_notes, with_notes
from fastfeed.spec import CLASS_NUMBER, PLAIN_OBJECTS, LabelSpec, ObjectSpec
from fastfeed.storage.reads import DeferredRead, MappedRead, Pending


@checked_early
class Mixture(SourceMethods):
    """Several sources in fixed proportions, spread evenly over every batch.

    Each source is read to its end before it repeats, across epochs. Class names are merged: the
    same name is the same label. Ids of the second source begin at len(first), and so on.

    Args:
        sources (Mapping[str, Source] | Sequence[Source]): At least one; all must yield the same
            kind of images.
        weights (Mapping[str, float] | Sequence[float] | None): Shares > 0. Default: None, as the
            sources' lengths.
        length (int | None): Samples per epoch. Default: None, all of them together.

    Raises:
        ConfigError: If weights do not fit the sources, labels are of several kinds or shapes, or
            some sources have names of classes and others not.

    Example:
        >>> stock, web = (ff.Arrays(np.zeros((n, 8, 8, 3), np.uint8)) for n in (90, 10))
        >>> ff.Mixture({"stock": stock, "web": web}, weights={"stock": 0.7, "web": 0.3})
        Mixture(stock 70.0%, web 30.0%): 100 images
    """

    def __init__(
        self,
        sources: Mapping[str, Source] | Sequence[Source],
        weights: Mapping[str, float] | Sequence[float] | None = None,
        *,
        length: int | None = None,
    ) -> None:
        if isinstance(sources, Mapping):
            by_name = dict(sources)
        else:
            by_name = {str(i): s for i, s in enumerate(sources)}
        if not by_name:
            raise ConfigError("Mixture needs at least one source, got none", field="sources")
        for name, source in by_name.items():
            check_source(source, f"Mixture: source {name!r}")
        self.sources = tuple(by_name.values())
        self.names = tuple(by_name)
        self.length = length
        self.shares = self._shares(weights)
        self.spec = self.sources[0].spec
        for name, source in by_name.items():
            if source.spec != self.spec:
                raise ConfigError(
                    f"Mixture: all sources must yield the same, got {self.spec} from"
                    f" {self.names[0]!r} and {source.spec} from {name!r}; resize arrays beforehand,"
                    " or use files",
                    field="sources",
                )
        self._bounds: np.ndarray | None = None  # once they are asked for
        self.starts = np.cumsum([0] + [len(source) for source in self.sources], dtype=np.int64)
        self.classes, self._labels = self._merge(
            [(n, s.classes) for n, s in by_name.items()], "class names"
        )
        self._optionals = [Optionals(source) for source in self.sources]
        self.label_spec = self._merged_label_spec()
        self._with_objects = {
            i: self._optionals[i] for i, s in enumerate(self.sources) if has_boxes_or_masks(s)
        }
        frames = {self.names[i]: self._optionals[i].frame for i in self._with_objects}
        if len(set(frames.values())) > 1:
            raise ConfigError(
                f"Mixture: boxes and masks must be in one frame, got {frames}; pass"
                " Objects(frame=...)",
                field="sources",
            )
        self.frame = next(iter(frames.values()), "displayed")
        boxed = [i for i, source in self._with_objects.items() if source.most]
        kinds = [(self.names[i], self._with_objects[i].object_classes) for i in boxed]
        self.object_classes, tables = self._merge(kinds, "names for labels of objects")
        self._kinds = dict(zip(boxed, tables, strict=True))
        specs = _with_common_room({self.names[i]: self._with_objects[i].object_spec for i in boxed})
        self.object_spec = next(iter(specs.values()), PLAIN_OBJECTS)
        if len(set(specs.values())) > 1:
            raise ConfigError(
                "Mixture: objects of all sources must have the same keypoints, flip_pairs,"
                " normalized, instance_masks, polygons, min_size, min_area and min_visible, got"
                f" {specs}; pass the same to each Objects",
                field="sources",
            )

    def _shares(self, weights: Mapping[str, float] | Sequence[float] | None) -> tuple[float, ...]:
        if weights is None:
            return tuple(float(len(source)) for source in self.sources)
        if isinstance(weights, Mapping):
            if set(weights) != set(self.names):
                names = printable(", ".join(map(str, weights)))
                raise ConfigError(
                    f"Mixture: weights must name the sources {', '.join(self.names)}, got {names}",
                    field="weights",
                )
            weights = [weights[name] for name in self.names]
        try:
            shares = tuple(float(weight) for weight in weights)
        except (TypeError, ValueError):
            shares = ()
        if len(shares) != len(self.sources) or not all(
            0 < share < float("inf") for share in shares
        ):
            raise ConfigError(
                f"Mixture: weights must be {len(self.sources)} numbers above 0, one per source, "
                f"got {printable(list(weights))}; leave a source out instead of giving it 0",
                field="weights",
            )
        return shares

    def _merge(
        self, sources: Sequence[tuple[str, tuple[str, ...]]], label_kind: str
    ) -> tuple[tuple[str, ...], list[np.ndarray | None]]:
        """Merged class names, and a table from each source's labels to them; None if equal."""
        class_lists = [classes for _, classes in sources]
        if not any(class_lists):
            return (), [None] * len(class_lists)
        for name, classes in sources:
            if not classes:
                raise ConfigError(
                    f"Mixture: source {name!r} has no {label_kind} and others have, so labels may"
                    " not mean the same; give it classes=..."
                )
        if all(classes == class_lists[0] for classes in class_lists):
            return class_lists[0], [None] * len(class_lists)
        merged = class_names(name for classes in class_lists for name in classes)
        return merged, [renumbering(classes, merged) for classes in class_lists]

    def _merged_label_spec(self) -> LabelSpec:
        specs = [source.label_spec for source in self._optionals]
        if not self.classes:
            odd = next((k for k, spec in enumerate(specs) if spec != specs[0]), None)
        else:  # multi-hot ones are as long as the merged classes
            odd = next((k for k, spec in enumerate(specs) if spec.dtype != specs[0].dtype), None)
        if odd is not None:
            raise ConfigError(
                f"Mixture: labels of all sources must be of one kind and shape, got {specs[0]} from"
                f" {self.names[0]!r} and {specs[odd]} from {self.names[odd]!r}; pass label_kind=..."
            )
        if self.classes and specs[0] != CLASS_NUMBER:
            return LabelSpec((len(self.classes),), specs[0].dtype)
        return specs[0]

    def __len__(self) -> int:
        return int(self.starts[-1])

    def _gather(
        self, ids: Any, ask: Callable[[int, Source, np.ndarray], Any]
    ) -> list[tuple[np.ndarray, Any]]:
        """Ask each source for its own ids; (positions in `ids`, answer) each."""
        ids = np.asarray(ids, np.int64)
        parts = np.searchsorted(self.starts, ids, side="right") - 1
        answers = []
        for part in np.unique(parts).tolist():
            at = np.flatnonzero(parts == part)
            answers.append((at, ask(part, self.sources[part], ids[at] - self.starts[part])))
        return answers

    def _scatter(
        self,
        ids: Any,
        ask: Callable[[int, Source, np.ndarray], Any],
        renumber: Callable[[Any, int], Any] = renumbered,
    ) -> list[Any]:
        values: list[Any] = [None] * len(ids)
        for at, answer in self._gather(ids, ask):
            for position, value in zip(at.tolist(), answer, strict=True):
                values[position] = renumber(value, int(ids[position]))
        return values

    def _array(
        self, ids: np.ndarray, shape: tuple[int, ...], dtype: Any, fill: float, ask: Any
    ) -> np.ndarray:
        out = np.full((len(ids), *shape), fill, dtype)
        for at, answer in self._gather(ids, ask):
            if answer is not None:
                out[at] = answer
        return out

    def uri(self, i: int) -> str:
        """The uri in the sample's own source."""
        part = int(np.searchsorted(self.starts, i, side="right")) - 1
        return self.sources[part].uri(int(i) - int(self.starts[part]))

    def label(self, ids: np.ndarray) -> np.ndarray:
        """Labels by the merged classes: int64, shape (len(ids),), or as `label_spec` says."""
        shape, dtype = self.label_spec

        def read_part(part: int, source: Source, part_ids: np.ndarray) -> np.ndarray:
            table = self._labels[part]
            labels = source.label(part_ids)
            if table is None:
                return labels
            if labels.ndim == 1:
                return table[labels]  # -1, no label, takes the table's last
            columns = np.zeros((len(labels), *shape), dtype)
            columns[:, table[:-1]] = labels
            return columns

        return self._array(
            np.asarray(ids),
            shape,
            object if dtype == "str" else dtype,
            -1 if shape == () else 0,
            read_part,
        )

    def read(self, ids: Sequence[int]) -> list[Any]:
        """Read each sample from its own source."""
        return self._scatter(ids, lambda _, source, own: source.read(own.tolist()))

    def addresses(self, ids: np.ndarray) -> Grouped | None:
        """Locations by source; samples without a location are in no group."""
        return Grouped.of(
            len(ids), self._gather(ids, lambda _, source, own: sample_locations(source, own))
        )

    def sample_names(self, ids: np.ndarray) -> list[str]:
        """Names of samples in their own sources."""
        return self._scatter(ids, lambda part, _, own: self._optionals[part].sample_names(own))

    @property
    def remote(self) -> bool:
        """True if any source is remote."""
        return any(isinstance(source, Fetching) and source.remote for source in self.sources)

    def fetch(self, ids: Sequence[int]) -> list[Pending]:
        """Begin to read; local samples are read when their result is requested."""

        def read_part(part: int, source: Source, part_ids: np.ndarray) -> list[Pending]:
            if isinstance(source, Fetching) and source.remote:
                return source.fetch(part_ids.tolist())
            return [DeferredRead(lambda i=i: source.read([i])[0]) for i in part_ids.tolist()]

        return self._scatter(
            ids, read_part, lambda read, i: MappedRead(read, partial(renumbered, i=i))
        )

    def byte_ranges(self, ids: np.ndarray) -> list[StoredFile | None]:
        """Files of samples of the sources in remote storage."""
        return self._scatter(ids, lambda _, source, own: stored_files(source, own))

    @property
    def fingerprint(self) -> str:
        """The fingerprints of all sources, joined by +."""
        return " + ".join(source.fingerprint for source in self.sources)

    @property
    def bounds(self) -> np.ndarray:
        """First ids of all units of storage; a source without shards is one: int64."""
        if self._bounds is not None:
            return self._bounds
        ends = [np.zeros(1, np.int64)]
        for start, source in zip(self.starts[:-1].tolist(), self.sources, strict=True):
            own = source.bounds[1:] if isinstance(source, Sharded) else np.array([len(source)])
            ends.append(np.asarray(own, np.int64) + start)
        self._bounds = np.concatenate(ends)
        return self._bounds

    def sizes(self, ids: np.ndarray) -> np.ndarray:
        """Bytes of each sample in storage; 0 if a source does not know: int64."""
        return self._array(
            ids, (), np.int64, 0, lambda _, s, own: s.sizes(own) if isinstance(s, Sharded) else None
        )

    def shard(self, unit: int) -> str:
        """The name of a unit of storage."""
        for name, source in zip(self.names, self.sources, strict=True):
            count = len(source.bounds) - 1 if isinstance(source, Sharded) else 1
            if unit < count:
                return source.shard(unit) if isinstance(source, Sharded) else name
            unit -= count
        raise IndexError(unit)

    @property
    def notes(self) -> list[str]:
        """The notes of all sources, each after the source's name."""
        named_sources = zip(self.names, self.sources, strict=True)
        return [
            f"{name}: {note}" for name, source in named_sources for note in source_notes(source)
        ]

    # -- Annotated

    def weights(self, ids: np.ndarray) -> np.ndarray | None:
        """Sample weights, 1 for sources without: float32. None if no source has any."""
        return self._annotation(ids, "weights", (), np.float32, 1)

    def boxes(self, ids: np.ndarray) -> np.ndarray | None:
        """Boxes, NaN for sources without: float64, shape (len(ids), 4).

        None if no source has any.
        """
        return self._annotation(ids, "boxes", (4,), np.float64, np.nan)

    def columns(self, ids: np.ndarray) -> dict[str, np.ndarray]:
        """The columns that every source has."""
        names = self._shared_columns()
        if names:
            parts = self._gather(ids, lambda part, _, own: self._optionals[part].columns(own))
        else:
            parts = []
        merged: dict[str, np.ndarray] = {}
        for name in names:
            values = [answer[name] for _, answer in parts] or [np.empty(0)]
            column = np.empty((len(ids), *values[0].shape[1:]), np.result_type(*values))
            for (at, _), value in zip(parts, values, strict=False):
                column[at] = value
            merged[name] = column
        return merged

    def _shared_columns(self) -> list[str]:
        names = [set(source.columns(np.empty(0, np.int64))) for source in self._optionals]
        return sorted(set.intersection(*names))

    def column_values(self, ids: Sequence[int]) -> list[dict[str, Any]] | None:
        """Values of the same columns, if any source reads its columns from storage."""
        names = self._shared_columns()
        if not names or all(source.column_values([]) is None for source in self._optionals):
            return None

        def read_part(part: int, _: Source, part_ids: np.ndarray) -> list[dict[str, Any]]:
            rows = self._optionals[part].column_values(part_ids.tolist())
            if rows is None:
                columns = self._optionals[part].columns(part_ids)
                rows = [
                    {name: columns[name][row] for name in names} for row in range(len(part_ids))
                ]
            return rows

        return self._scatter(
            ids, read_part, lambda row, i: {name: renumbered(row[name], i) for name in names}
        )

    # -- HasObjects

    @property
    def most(self) -> int:
        """The largest room of all sources; 0 if none has boxes."""
        return max((source.most for source in self._with_objects.values()), default=0)

    def objects(self, ids: np.ndarray) -> Instances | None:
        """Objects with labels by the merged names; sources without have 0.

        None if no source has boxes.
        """
        if not self._kinds:
            return None
        no_points = np.empty((0, self.object_spec.keypoints, 3))
        no_shapes = np.empty(0, object)
        none = np.empty(0, np.int64)
        parts = [(np.empty((0, 4)), none, none, no_points, no_shapes)]
        counts = np.zeros(len(ids), np.int64)
        sizes = np.full((len(ids), 2), np.nan)

        def read_part(part: int, _: Source, part_ids: np.ndarray) -> tuple[int, Instances | None]:
            return part, self._with_objects[part].objects(part_ids) if part in self._kinds else None

        for at, (part, instances) in self._gather(ids, read_part):
            if instances is not None:
                counts[at] = instances.counts
                table = self._kinds[part]
                if instances.sizes is not None:
                    sizes[at] = instances.sizes
                labels = instances.labels if table is None else table[instances.labels]
                rows = np.repeat(at, instances.counts)
                points = no_points if instances.keypoints is None else instances.keypoints
                shapes = no_shapes if instances.shapes is None else instances.shapes
                parts.append((instances.boxes, labels, rows, points, shapes))
        boxes, labels, rows, points, shapes = map(np.concatenate, zip(*parts, strict=True))
        order = np.argsort(rows, kind="stable")
        keypoints = points[order] if self.object_spec.keypoints else None
        spec = self.object_spec
        outlines = shapes[order] if spec.instance_masks or spec.polygons else None
        return Instances(boxes[order], labels[order], counts, sizes, keypoints, outlines)

    def masks(self, ids: Sequence[int]) -> list[Any] | None:
        """Masks, None for sources without; class ids are taken to mean the same in all sources."""
        if all(source.masks([]) is None for source in self._with_objects.values()):
            return None

        def read_part(part: int, _: Source, part_ids: np.ndarray) -> list[Any]:
            masks = (
                self._with_objects[part].masks(part_ids.tolist())
                if part in self._with_objects
                else None
            )
            return [None] * len(part_ids) if masks is None else masks

        return self._scatter(ids, read_part)

    def _annotation(
        self, ids: np.ndarray, method: str, shape: tuple[int, ...], dtype: Any, fill: float
    ) -> np.ndarray | None:
        none = np.empty(0, np.int64)
        if all(getattr(source, method)(none) is None for source in self._optionals):
            return None
        return self._array(
            ids,
            shape,
            dtype,
            fill,
            lambda part, _, own: getattr(self._optionals[part], method)(own),
        )

    def __str__(self) -> str:
        return with_notes(repr(self), self.notes)

    def __repr__(self) -> str:
        total = sum(self.shares)
        shares = ", ".join(
            f"{n} {w / total:.1%}" for n, w in zip(self.names, self.shares, strict=True)
        )
        kinds = f" of {len(self.classes)} classes" if self.classes else ""
        return f"Mixture({shares}): {len(self)} images{kinds}"


def _with_common_room(specs: dict[str, ObjectSpec]) -> dict[str, ObjectSpec]:
    """The same with room for the polygons of any of them."""
    rooms = [spec.polygons for spec in specs.values() if spec.polygons is not None]
    rings, points = np.array(rooms or [(0, 0)]).max(axis=0).tolist()
    return {
        name: spec if spec.polygons is None else spec._replace(polygons=(rings, points))
        for name, spec in specs.items()
    }
