"""COCO's annotation files: one JSON for all images.

Polygons, nine tenths of it, are parsed one by one, if at all.
"""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.printable import printable
from fastfeed.runtime.json_file import object_bytes
from fastfeed.sources.access import Allow
from fastfeed.sources.annotations.boxes import BoxLists
from fastfeed.sources.annotations.masks import ClassMaps
from fastfeed.sources.annotations.shapes import Shape, ShapeLists, parse_shape, wrong_sizes
from fastfeed.sources.base import Source
from fastfeed.sources.derived import Derived
from fastfeed.sources.tables.in_memory import open_in_memory
from fastfeed.sources.tables.open_table import RequestedColumns
from fastfeed.sources.tables.source import TableSource
from fastfeed.sources.tables.string_column import StringColumn
from fastfeed.storage.local_file import file_size, read_file
from fastfeed.storage.reads import ByteRange, Stat, Unread, is_local
from fastfeed.storage.storage import Storage

Keep = Literal["all", "annotated", "boxes"]

_KEY = b'"segmentation"'


def read_coco(
    images: str | os.PathLike[str] | Source,
    annotations: str,
    storage: Storage,
    memory: int,  # bytes that the annotations may take meanwhile
    allow_path: Sequence[str],
    keypoints: bool,
    drawn: frozenset[str],  # what segmentations become
    keep: Keep,
) -> tuple[Source, CocoFile, BoxLists]:
    """Images, the file that describes them, and their objects."""
    # may fail: before the file is read
    paths = [] if isinstance(images, (str, os.PathLike)) else _source_paths(images)
    parsed = _parsed(annotations, storage, memory, bool(drawn))
    listed = CocoFile(annotations, *parsed, keypoints, drawn)
    kept = listed.sample_mask(keep)
    if isinstance(images, (str, os.PathLike)):
        order = np.flatnonzero(kept)
        names = [listed.names[row] for row in order.tolist()]
        root = os.fspath(images).removeprefix("file://")
        source: Source = ListedFiles(root, names, storage, allow_path)
    else:
        order = _matched(images, paths, listed)
        ids = np.flatnonzero(kept[order])
        source = images if len(ids) == len(order) else Derived(images, ids)
        order = order[ids]
    return source, listed, listed.lists(order, source)


def _read(uri: str, storage: Storage, memory: int) -> bytes:
    path = uri.removeprefix("file://")
    stat: Stat | Unread
    stat = Stat(file_size(path), "") if is_local(path) else storage.stat([uri])[0]
    data: bytes | Unread
    if isinstance(stat, Unread):
        data = stat
    else:
        _check_memory(uri, stat.size, memory)
        if is_local(path):
            data = read_file(path, limit=memory)
        else:
            data = storage.read([ByteRange(uri, stat=stat)])[0]
    if isinstance(data, Unread):
        raise SourceError(
            f"Objects.coco: cannot read {printable(uri)}: {data.reason} {data.detail}".rstrip()
        )
    return data


def _check_memory(uri: str, needed: int, memory: int) -> None:
    if needed > memory:
        raise SourceError(
            f"Objects.coco: {uri} takes {needed:,} bytes of memory, the limit is {memory:,}; if you"
            f" trust it, pass memory='{-(-needed // 10**9)}GB'"
        )


def _parsed(uri: str, storage: Storage, memory: int, places: bool) -> tuple[dict[str, Any], bytes]:
    """The content, without polygons or with their places in the file, and the file."""
    file = _read(uri, storage, memory)
    data = _bare(file, places)
    _check_memory(uri, object_bytes(data), memory)
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"Objects.coco: {uri} is not JSON: {error}") from None
    lists = content if isinstance(content, dict) else {}
    missing = [
        key
        for key in ("images", "annotations", "categories")
        if not isinstance(lists.get(key), list) or (key != "annotations" and not lists[key])
    ]
    if missing:
        raise SourceError(
            f"Objects.coco: {uri} has no list {' and '.join(map(repr, missing))}; pass a file of"
            " instances, such as instances_train2017.json"
        )
    return content, file


def _bare(data: bytes, places: bool = False) -> bytes:
    """Replace lists of polygons by 0, or by their places [first byte, last byte].

    They hold no quotes and braces, so the next one ends them.
    """
    pieces = []
    position = 0
    while (at := data.find(_KEY, position)) >= 0:
        at += len(_KEY)
        quote = data.find(b'"', at)
        brace = data.find(b"}", at, quote if quote >= 0 else len(data))
        stop = quote if brace < 0 else brace
        begin = data.find(b"[", at, stop)
        end = data.rfind(b"]", at, stop)
        if stop < 0 or begin < 0 or end < begin or data[at:begin].strip(b" \t\r\n:"):
            begin = end = at - 1  # of another form: left as it is
            pieces.append(data[position:at])
        else:
            pieces += [data[position:begin], b"[%d,%d]" % (begin, end) if places else b"0"]
        position = end + 1
    return b"".join([*pieces, data[position:]])


class CocoFile:
    """A COCO file as arrays."""

    def __init__(
        self,
        uri: str,
        content: dict[str, Any],
        data: bytes,
        keypoints: bool,
        drawn: frozenset[str],
    ) -> None:
        """Check the content; data: the file, which polygons are read from."""
        self.uri = uri
        self.masks: ClassMaps | None = None  # set by `lists`
        self._data = data
        self._drawn = drawn
        self.keypoint_names = _keypoint_names(uri, content) if keypoints else ()
        try:
            ids = np.array([image["id"] for image in content["images"]], np.int64)
            self.names = [str(image["file_name"]) for image in content["images"]]
            sizes = [
                [image.get(side, np.nan) for side in ("height", "width")]
                for image in content["images"]
            ]
            self.sizes = np.array(sizes, np.float64).reshape(-1, 2)
            kinds = sorted((int(kind["id"]), str(kind["name"])) for kind in content["categories"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise SourceError(
                f"Objects.coco: {uri}: every image needs an id and a file_name, every category an"
                f" id and a name: {type(error).__name__} {error}"
            ) from None
        self.classes = tuple(name for _, name in kinds)
        self._row = {int(id): row for row, id in enumerate(ids)}
        label = {id: number for number, (id, _) in enumerate(kinds)}
        if len(self._row) < len(ids) or len(label) < len(kinds):
            raise SourceError(
                f"Objects.coco: {uri} has two"
                f" {'images' if len(label) == len(kinds) else 'categories'} of one id"
            )
        owners = array("q")
        labels = array("q")
        boxes = array("d")
        points = array("d")
        unlabeled = [0] * (3 * len(self.keypoint_names))
        self._ids = array("q")
        self._outlines: list[Any] = []  # of `_ids`, if these are drawn
        crowds: list[tuple[int, Any]] = []  # row of the image, and annotation
        for annotation in content["annotations"]:
            try:
                if annotation.get("iscrowd"):
                    crowded = self._row.get(annotation.get("image_id"), -1)
                    crowds.append((crowded, annotation))
                    continue
                left, top, width, height = annotation["bbox"]
                owners.append(self._row[annotation["image_id"]])
                labels.append(label[annotation["category_id"]])
                boxes.extend((left, top, width, height))
                if keypoints:
                    own = annotation.get("keypoints", unlabeled)
                    if len(own) != len(unlabeled):
                        raise ValueError(f"{len(own)} numbers of keypoints, not {len(unlabeled)}")
                    points.extend(own)
                self._ids.append(annotation.get("id", -1))
                if drawn:
                    self._outlines.append(annotation["segmentation"])
            except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
                fields = annotation if isinstance(annotation, dict) else {}
                excerpt = (
                    {key: fields[key] for key in _SHOWN if key in fields} if fields else annotation
                )
                raise SourceError(
                    f"Objects.coco: {uri}: annotation {excerpt!r} needs a bbox [left, top, width,"
                    " height] and ids of an image and a category that are in the file:"
                    f" {type(error).__name__} {error}"
                ) from None
        self.notes: list[str] = []
        if crowds:
            note = (
                f"left out {len(crowds):,} of its annotations, which are crowds, such as the one"
                f" with id {crowds[0][1].get('id')}"
            )
            self.notes.append(f"{uri}: {note}")
        crowds = [(row, crowd) for row, crowd in crowds if row >= 0]
        self._crowded = np.array([row for row, _ in crowds], np.int64)
        self._crowds = [crowd for _, crowd in crowds] if drawn else []
        self._owners = np.frombuffer(owners, np.int64)
        self._labels = np.frombuffer(labels, np.int64)
        self._boxes = np.frombuffer(boxes, np.float64).reshape(-1, 4)
        self._keypoints = None
        if keypoints:
            places = np.array(points, np.float64).reshape(-1, len(self.keypoint_names), 3)
            places[..., :2] += np.where(places[..., 2:] > 0, _PIXEL_CENTER, 0)
            self._keypoints = places

    def sample_mask(self, keep: Keep) -> np.ndarray:
        """Images that are samples: bool (images,)."""
        kept = np.full(len(self.names), keep == "all")
        kept[self._owners] = True
        if keep == "annotated":
            kept[self._crowded] = True
        lost = np.flatnonzero(~kept)
        if len(lost) == len(kept):
            raise SourceError(
                f'Objects.coco: keep="{keep}" leaves none of the {len(kept):,} images of {self.uri};'
                ' pass keep="all"'
            )
        if len(lost):
            without = "annotation" if keep == "annotated" else "box, but of crowds"
            self.notes.append(
                f"{self.uri}: left out {len(lost):,} of its {len(kept):,} images, which have no"
                f" {without}, such as {self.names[lost[0]]}"
            )
        return kept

    def lists(self, order: np.ndarray, source: Source) -> BoxLists:
        """Boxes of samples, of which `order` says the image: int64 (n,)."""
        position = np.empty(len(self.names), np.int64)
        position[order] = np.arange(len(order))
        owners = position[self._owners] if len(self._owners) else self._owners
        by = np.argsort(owners, kind="stable")
        ends = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=len(order)))]).astype(
            np.int64
        )

        def where(i: int, k: int) -> str:
            return f"annotation {self._ids[int(by[ends[i] + k])]} of sample {i} ({source.uri(i)})"

        boxes = self._boxes[by]
        labels = self._labels[by]
        points = None if self._keypoints is None else self._keypoints[by]
        shapes = None
        if self._drawn:
            own = [self._outlines[k] for k in by.tolist()]
            shapes = self._shapes(own, [self._ids[k] for k in by.tolist()])
        lists = BoxLists.flat(
            boxes,
            labels,
            ends,
            "xywh",
            len(self.classes),
            where,
            self.sizes[order],
            points,
            shapes=shapes,
        )
        if "classes" in self._drawn:
            self.masks = ClassMaps.of(lists, crowds=self._crowd_shapes(order))
        self._data = b""
        return replace(lists, shapes=None) if self._drawn == {"classes"} else lists

    def _crowd_shapes(self, order: np.ndarray) -> tuple[ShapeLists, np.ndarray]:
        """Outlines of crowds by sample, and the ends of those of each."""
        places = np.full(len(self.names), -1)
        places[order] = np.arange(len(order))
        owners = places[self._crowded]
        by = [k for k in np.argsort(owners, kind="stable").tolist() if owners[k] >= 0]
        crowds = [self._crowds[k] for k in by]
        ids = [crowd.get("id", -1) for crowd in crowds]
        shapes = self._shapes([crowd.get("segmentation") for crowd in crowds], ids)
        outlines = map(shapes.shape, range(len(ids)))
        wrong = wrong_sizes(outlines, self.sizes[self._crowded[by]])
        for k in np.flatnonzero(wrong).tolist():
            raise SourceError(
                f"Objects.coco: {self.uri}: the segmentation of annotation {ids[k]} has another"
                " size than its image"
            )
        counts = np.bincount(owners[by], minlength=len(order))
        return shapes, np.cumsum([0, *counts], dtype=np.int64)

    def _read(self, outline: Any) -> Any:
        """Polygons at a place in the file; others, which hold no numbers alone, are read."""
        is_place = isinstance(outline, list) and all(isinstance(at, int) for at in outline)
        return json.loads(self._data[outline[0] : outline[1] + 1]) if is_place else outline

    def _shapes(self, outlines: Sequence[Any], ids: Sequence[Any]) -> ShapeLists:
        """Outlines that are places in the file, or runs."""

        def shapes() -> Iterator[Shape]:
            for outline, id in zip(outlines, ids, strict=True):
                try:
                    yield parse_shape(self._read(outline))
                except (ValueError, RecursionError) as error:
                    raise SourceError(
                        f"Objects.coco: {self.uri}: the segmentation of annotation {id} {error}"
                    ) from None

        return ShapeLists.of(shapes())


def _keypoint_names(uri: str, content: dict[str, Any]) -> tuple[str, ...]:
    """Names of the keypoints of all categories that have any."""
    lists = [kind.get("keypoints") for kind in content["categories"] if isinstance(kind, dict)]
    names = {tuple(map(str, own)) for own in lists if own and isinstance(own, list)}
    if len(names) != 1:
        got = f"{len(names)} lists of them" if names else "none"
        raise SourceError(
            f"Objects.coco: {uri}: its categories must have one list of keypoints, got {got}; pass"
            " a file such as person_keypoints_train2017.json, or leave out keypoints=True"
        )
    return names.pop()


_PIXEL_CENTER = 0.5  # the file counts pixels, and boxes are distances from the image's corner
_SHOWN = ("id", "image_id", "category_id", "bbox")


def _source_paths(source: Any) -> list[str]:
    paths = getattr(source, "paths", None)
    if not isinstance(paths, StringColumn):
        raise ConfigError.of(
            "Objects.coco: images",
            "a folder, an ImageFolder or a Table of paths",
            source,
            "for other sources pass boxes and labels to Objects",
        )
    return paths.tolist()


def _matched(source: Source, paths: Sequence[str], listed: CocoFile) -> np.ndarray:
    """Which image of the file each sample is: int64 (len(source),)."""
    row = {name: i for i, name in enumerate(listed.names)}
    rows = np.array([row.get(path, -1) for path in paths], np.int64)
    if (
        (rows < 0).any()
        or len(np.unique(rows)) < len(listed.names)
        or len(rows) > len(listed.names)
    ):
        unknown = np.flatnonzero(rows < 0)
        if len(unknown):
            problem = (
                f"{len(unknown)} of {len(rows)} samples are not in it, such as"
                f" {source.uri(int(unknown[0]))}"
            )
        else:
            lost = sorted(set(listed.names) - set(paths))
            if lost:
                problem = f"{len(lost)} of its images are not in the source, such as {lost[0]}"
            else:
                problem = "a file twice"
        raise SourceError(
            f"Objects.coco: {listed.uri} and the images must name the same files: {problem}; pass"
            " the folder that file_name begins at, whose files are then taken by the annotations'"
            " list"
        )
    return rows


class ListedFiles(TableSource):
    """Files of a folder by a list of names; a missing file is a bad sample."""

    def __init__(
        self, root: str, names: Sequence[str], storage: Storage, allow_path: Sequence[str] = ()
    ) -> None:
        if is_local(root) and not os.path.isdir(root):
            raise SourceError(
                f"Objects.coco: {root} is not a folder; pass the one that holds the images"
            )
        requested = RequestedColumns("file_name")
        opened = open_in_memory({"file_name": names}, requested, root)
        # the list may be from elsewhere: it names files below the folder
        self._open(opened, requested, storage, root=root, allow=Allow(tuple(allow_path)))

    @property
    def root(self) -> str | None:
        """The folder."""
        return self._root

    def _summary(self) -> str:
        return f"{self.root}: {len(self)} images"
