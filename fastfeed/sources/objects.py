"""Adds boxes, keypoints and masks to the images of any source."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from fastfeed.arguments import checked_early
from fastfeed.errors import ConfigError
from fastfeed.faults import Failure
from fastfeed.sources.access import allowed_values
from fastfeed.sources.annotations.boxes import (
    ROTATED,
    BoxLists,
    check_format,
    check_lengths,
    check_presence,
    checked_sizes,
)
from fastfeed.sources.annotations.coco import read_coco
from fastfeed.sources.annotations.keypoints import (
    MOST_KEYPOINTS,
    Pairs,
    column_keypoints,
    object_spec,
)
from fastfeed.sources.annotations.masks import (
    ClassMaps,
    Draw,
    Masks,
    drawn_parts,
    make_masks,
    polygon_notes,
)
from fastfeed.sources.annotations.yolo import read_yolo
from fastfeed.sources.base import Instances, Source, check_source
from fastfeed.sources.derived import Derived
from fastfeed.sources.folder import ImageFolder
from fastfeed.sources.methods import SourceMethods
from fastfeed.sources.notes import source_notes
from fastfeed.spec import PLAIN_OBJECTS, ObjectSpec
from fastfeed.storage.byte_sizes import in_bytes
from fastfeed.storage.disk_cache import Cache
from fastfeed.storage.fingerprint import OBJECTS_SEPARATOR, fingerprint
from fastfeed.storage.reads import Unread
from fastfeed.storage.storage import Storage, open_storage


@checked_early
class Objects(Derived, SourceMethods):
    """The samples of another source, with boxes, keypoints and masks of objects in their images.

    Every geometric op moves them with the pixels: `batch.objects` and `batch.masks`. A mask that is
    missing, broken or of another size marks its sample as bad, as do boxes and keypoints of an
    image of another size.

    Args:
        source (Source): The images; their labels and classes stay as they are.
        boxes (Sequence[Any] | None): One array (k, 4) per sample, k may be 0, in pixels of the
            image as `frame` says. Half-open: [0, 0, width, height] is the whole image; what reaches
            outside is cut off, and a box completely outside makes its sample bad.
            Default: None, only keypoints or masks.
        labels (Sequence[Any] | None): One integer array (k,) per sample. Default: None, all are 0.
        masks (Sequence[Any] | None): One per sample: uint8 (height, width), the bytes of a PNG, or
            its path (`s3://` too), of the image's size; values are class ids, of a palette PNG the
            indices, 255 is "not known"; None if nothing is known. Default: None, no masks.
        keypoints (Sequence[Any] | Mapping[str, Sequence[str]] | None): One array per sample,
            (objects, points, 3) or, of one object, (points, 3): x, y in pixels as boxes, the center
            of the first pixel is (0.5, 0.5); visibility 0 (not labeled), 1 (hidden) or 2. Or
            (..., 2), all visible but for NaN. Or, of one object per sample, the source's columns by
            keypoint: {"nose": ("nose_x", "nose_y")}. Default: None, no keypoints.
        keypoint_names (Sequence[str]): Names of keypoints, in place of those of
            columns. Default: ().
        flip_pairs (Sequence[tuple[int | str, int | str]] | str | None): Keypoints, by number or
            name, that trade places in a mirrored image; "names" pairs names with "left" and
            "right". Default: None, not known: a feed refuses ops that mirror.
        min_size (float): Objects are dropped if ops leave a side of their box below it, pixels.
            Default: 1.0.
        min_area (float): The same of the area of the box, square pixels. Default: 0.0.
        min_visible (float): The same of the share of the area that is not cut off, in [0, 1].
            Default: 0.1.
        instance_masks (Sequence[Any] | None): One list per sample, of each object a list of rings
            (x, y, x, y ... or (k, 2), in pixels as boxes; even-odd, joined), COCO's runs
            {"size": ..., "counts": ...}, uint8 pixels, or None. Without `boxes`, these are
            around them. Default: None, no masks of objects.
        draw (str | Sequence[str]): What `instance_masks` become: "instances",
            `batch["instance_masks"]`, 1 in each object; "classes", one map in `batch["masks"]`, 0
            or label + 1, 255 where classes overlap; "polygons", `batch["polygons"]` and
            `batch["polygon_rings"]`, points of the rings; a list of these; or "both" for the first
            two. Default: "instances".
        classes (Sequence[str | int]): Names of `labels`, kept as `object_classes`. Default: ().
        format (str): "xyxy" (left, top, right, bottom), "yxyx", "xywh" (left, top, width, height),
            "yxhw", "cxcywh" (center, width, height), or "cxcywhr": also degrees that the box is
            rotated counterclockwise; its corners are keypoints, `boxes` around them. Default:
            "xyxy".
        normalized (bool): True for boxes and keypoints in shares of the image's width and height,
            not pixels. Default: False.
        most (int | None): Room for boxes per image in a batch; of more, the largest as they are
            seen then. Default: None, the largest number of any sample.
        sizes (Sequence[Any] | None): (height, width) of the image that each sample's boxes are for.
            A sample whose image has another size is bad. Default: None, known for arrays only.
        frame (str): "displayed", boxes and masks are of the image with its EXIF orientation done;
            or "stored", of the pixels as the file stores them, as tools annotate that ignore EXIF.
            Default: "displayed".
        storage (dict[str, Any] | Storage | None): Options for fsspec, of masks. Default: None.
        cache (str | os.PathLike[str] | Cache | None): Local folder in which remote masks are kept.
            Default: None, none is kept.

    Raises:
        ConfigError: If boxes, labels, keypoints and masks are not one per sample, or a box, a
            label, a keypoint or an outline makes no sense.

    Example:
        >>> images = ff.Arrays(np.zeros((2, 8, 8, 3), np.uint8))
        >>> ff.Objects(images, boxes=[[[0, 0, 4, 4]], []], labels=[[1], []], classes=("cat", "dog"))
        Arrays: 2 images, HWC uint8[8, 8, 3] with 1 boxes of 2 classes
    """

    def __init__(
        self,
        source: Source,
        boxes: Sequence[Any] | None = None,
        labels: Sequence[Any] | None = None,
        masks: Sequence[Any] | None = None,
        *,
        keypoints: Sequence[Any] | Mapping[str, Sequence[str]] | None = None,
        instance_masks: Sequence[Any] | None = None,
        draw: Draw = "instances",
        keypoint_names: Sequence[str] = (),
        flip_pairs: Pairs | str | None = None,
        min_size: float = 1.0,
        min_area: float = 0.0,
        min_visible: float = 0.1,
        classes: Sequence[str | int] = (),
        format: str = "xyxy",
        normalized: bool = False,
        most: int | None = None,
        sizes: Sequence[Any] | None = None,
        frame: Literal["displayed", "stored"] = "displayed",
        storage: dict[str, Any] | Storage | None = None,
        cache: str | os.PathLike[str] | Cache | None = None,
    ) -> None:
        check_source(source, "Objects: source")
        check_format(format, boxes, keypoints, normalized)
        if format == ROTATED:
            flip_pairs = ()
        if isinstance(classes, str):
            raise ConfigError(
                f"Objects: classes must be a list of names, got {classes!r}; pass [{classes!r}]",
                field="classes",
            )
        drawn = drawn_parts(
            "Objects",
            draw,
            has_outlines=instance_masks is not None,
            has_masks=masks is not None,
        )
        given = (boxes, keypoints, instance_masks)
        has_objects = any(values is not None for values in given)
        check_presence(has_objects, masks, labels)
        if isinstance(keypoints, Mapping):
            keypoint_names = keypoint_names or tuple(keypoints)
            keypoints = list(column_keypoints(source, keypoints))
        check_lengths(
            len(source),
            boxes=boxes,
            keypoints=keypoints,
            instance_masks=instance_masks,
            masks=masks,
        )
        names = tuple(map(str, classes))

        def where(i: int) -> str:
            return f"sample {i} ({source.uri(i)})"

        size: Any = source.spec.size
        known = np.tile(np.array(size, np.float64), (len(source), 1)) if source.spec.fixed else None
        if sizes is not None:
            known = checked_sizes(sizes, len(source), known)
        lists = None
        if has_objects:
            lists = BoxLists.of(
                boxes,
                labels,
                format,
                len(names),
                where,
                known,
                keypoints,
                normalized,
                instance_masks,
            )
        storage = open_storage(storage, cache)
        maps: Masks | None = None if masks is None else make_masks(masks, where, storage)
        if lists is not None and "classes" in drawn:
            maps = ClassMaps.of(lists, normalized)
            lists = replace(lists, shapes=None) if drawn == {"classes"} else lists
        spec = object_spec(
            lists,
            keypoint_names,
            flip_pairs,
            has_boxes=boxes is not None or instance_masks is not None,
            normalized=normalized,
            drawn=drawn,
            min_size=min_size,
            min_area=min_area,
            min_visible=min_visible,
        )
        self._set(source, lists, maps, names, spec, most, frame)

    @classmethod
    @checked_early
    def coco(
        cls,
        images: str | os.PathLike[str] | Source,
        annotations: str | os.PathLike[str],
        *,
        keep: Literal["all", "annotated", "boxes"] = "all",
        keypoints: bool = False,
        draw: Draw | None = None,
        flip_pairs: Pairs | str | None = None,
        min_size: float = 1.0,
        min_area: float = 0.0,
        min_visible: float = 0.1,
        most: int | None = None,
        frame: Literal["displayed", "stored"] = "displayed",
        memory: int | str = "4GB",
        allow_path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
        storage: dict[str, Any] | Storage | None = None,
        cache: str | os.PathLike[str] | Cache | None = None,
    ) -> Objects:
        """Images and boxes, and on request keypoints and masks, of a COCO file.

        Samples are the file's images in its order, unless `keep` leaves some out. An image whose
        size is not the file's `width` and `height` is a bad sample, with both sizes in its message.
        Labels count the categories by ascending category id: `object_classes` are their names.
        Crowds (`iscrowd`: 1) are left out, as trainers do.

        Args:
            images (str | os.PathLike[str] | Source): The folder that `file_name`s begin at, local
                or remote; or an ImageFolder or Table of these files.
            annotations (str | os.PathLike[str]): The JSON file, such as `instances_train2017.json`.
            keep (str): Images that are samples: "all"; "annotated", those with an annotation, be it
                a crowd's alone, as torchvision's references train on; or "boxes", those with a box
                that is not a crowd's, as Detectron2 does. `notes` has the number of the others.
                Default: "all".
            keypoints (bool): True for keypoints, as of `person_keypoints_train2017.json`; all
                categories that have any must have the same. The file counts pixels: 0.5 is added to
                its x and y. Default: False.
            draw (str | Sequence[str] | None): What segmentations (polygons, runs) become, as for
                `Objects`; in a map of classes crowds are 255. Default: None, they are not read.
            flip_pairs (Sequence[tuple[int | str, int | str]] | str | None): As for `Objects`;
                "names" fits COCO's persons. Default: None, not known.
            min_size (float): As for `Objects`. Default: 1.0.
            min_area (float): As for `Objects`. Default: 0.0.
            min_visible (float): As for `Objects`. Default: 0.1.
            most (int | None): Room for boxes per image in a batch. Default: None, the largest
                number of any sample.
            frame (str): As for `Objects`; with "stored", `width` and `height` of the file are those
                without EXIF orientation. Default: "displayed".
            memory (int | str): The most that the JSON file may take while it is read, bytes or a
                string such as "8GB": its own bytes, and those of the objects for all but its
                polygons, about ten times their bytes. Default: "4GB".
            allow_path (str | os.PathLike[str] | Sequence[str | os.PathLike[str]]): Other folders
                that `file_name`s, and links among the images, may lead to; as in `Table`. Default:
                ().
            storage (dict[str, Any] | Storage | None): Options for fsspec (key, secret,
                endpoint_url, anon ...), or a Storage that several sources share. Default: None.
            cache (str | os.PathLike[str] | Cache | None): Local folder in which what is read from
                remote storage is kept. Default: None, nothing is kept.

        Returns:
            A source of the images with their boxes.

        Raises:
            ConfigError: If an argument is wrong.
            SourceError: If the file cannot be read or is no COCO file.

        Example:
            >>> ff.Objects.coco("photos", "boxes.json")
            photos: 6 images with 6 boxes of 2 classes
        """
        if keep not in ("all", "annotated", "boxes"):
            raise ConfigError.of("Objects.coco: keep", '"all", "annotated" or "boxes"', keep)
        drawn = frozenset() if draw is None else drawn_parts("Objects.coco", draw)
        allowed = allowed_values("allow_path", allow_path, "Objects.coco")
        storage = open_storage(storage, cache)
        limit = in_bytes(memory, "Objects.coco: memory")
        source, file, lists = read_coco(
            images, os.fspath(annotations), storage, limit, allowed, keypoints, drawn, keep
        )
        spec = object_spec(
            lists,
            file.keypoint_names,
            flip_pairs,
            drawn=drawn,
            min_size=min_size,
            min_area=min_area,
            min_visible=min_visible,
        )
        objects = cls.__new__(cls)
        objects._set(source, lists, file.masks, file.classes, spec, most, frame, file.notes)
        return objects

    @classmethod
    @checked_early
    def yolo(
        cls,
        images: str | os.PathLike[str] | Source,
        labels: str | os.PathLike[str],
        *,
        classes: Sequence[str | int] = (),
        keypoints: int = 0,
        instance_masks: bool = False,
        draw: Draw = "instances",
        keypoint_names: Sequence[str] = (),
        flip_pairs: Pairs | str | None = None,
        min_size: float = 1.0,
        min_area: float = 0.0,
        min_visible: float = 0.1,
        most: int | None = None,
        frame: Literal["displayed", "stored"] = "displayed",
    ) -> Objects:
        """Images and their boxes, and keypoints, of a folder of YOLO's label files.

        Each image `a/b.jpg` has the objects of `a/b.txt`, a line each: class, then center, width
        and height of the box, then x, y or x, y, visibility of each keypoint; all in shares of the
        image's width and height. An image without such a file has no objects: see `notes`. A
        keypoint of two numbers is not labeled if one of them is below 0.

        Args:
            images (str | os.PathLike[str] | Source): The folder of images, such as
                `coco/images/train`; or any source whose samples have names, as an ImageFolder.
            labels (str | os.PathLike[str]): The local folder of text files, such as
                `coco/labels/train`.
            classes (Sequence[str | int]): Names of classes, in the order of their numbers. Default:
                ().
            keypoints (int): Keypoints of each object, the first number of `kpt_shape`. Default: 0.
            instance_masks (bool): True for lines of a class and a polygon, x, y of its points.
                Default: False.
            draw (str | Sequence[str]): As for `Objects`, without "classes". Default: "instances".
            keypoint_names (Sequence[str]): As for `Objects`. Default: ().
            flip_pairs (Sequence[tuple[int | str, int | str]] | str | None): As for `Objects`.
                Default: None, not known.
            min_size (float): As for `Objects`. Default: 1.0.
            min_area (float): As for `Objects`. Default: 0.0.
            min_visible (float): As for `Objects`. Default: 0.1.
            most (int | None): As for `Objects`. Default: None.
            frame (str): As for `Objects`. Default: "displayed".

        Returns:
            A source of the images with their objects.

        Raises:
            ConfigError: If an argument is wrong, or an object makes no sense.
            SourceError: If a file cannot be read, or a line is none of an object.

        Example:
            >>> ff.Objects.yolo("photos", "labels", classes=["cat", "dog"])  # doctest: +SKIP
        """
        drawn = drawn_parts("Objects.yolo", draw, has_outlines=instance_masks)
        if "classes" in drawn:
            must = '"instances", "polygons" or a list of both'
            advice = "label files do not have the sizes of images, which maps of classes need"
            raise ConfigError.of("Objects.yolo: draw", must, draw, advice)
        most_points = 0 if instance_masks else MOST_KEYPOINTS  # a line has one of both
        if isinstance(keypoints, bool) or not 0 <= keypoints <= most_points:
            raise ConfigError.of(
                "Objects.yolo: keypoints", f"an integer in [0, {most_points}]", keypoints
            )
        source: Any = images
        if isinstance(images, (str, os.PathLike)):
            source = ImageFolder(images, labeled=False)
        check_source(source, "Objects.yolo: images")
        names = tuple(map(str, classes))
        lists, notes = read_yolo(source, os.fspath(labels), keypoints, instance_masks, len(names))
        spec = object_spec(
            lists,
            keypoint_names,
            flip_pairs,
            normalized=True,
            drawn=drawn,
            min_size=min_size,
            min_area=min_area,
            min_visible=min_visible,
        )
        objects = cls.__new__(cls)
        objects._set(source, lists, None, names, spec, most, frame, notes)
        return objects

    def _set(
        self,
        source: Source,
        lists: BoxLists | None,
        masks: Masks | None,
        names: tuple[str, ...],
        spec: ObjectSpec,
        most: int | None,
        frame: str,
        notes: Sequence[str] = (),
    ) -> None:
        if frame not in ("displayed", "stored"):
            raise ConfigError(
                f'Objects: frame must be "displayed" or "stored", got {frame!r}', field="frame"
            )
        if most is not None and (
            isinstance(most, bool) or not isinstance(most, (int, np.integer)) or most < 1
        ):
            raise ConfigError(
                f"Objects: most must be an integer >= 1, got {most!r}; it is the room for boxes per"
                " image",
                field="most",
            )
        if most is not None and lists is None:
            raise ConfigError(
                f"Objects: most is the room for boxes, got most={most} without boxes; leave it out",
                field="most",
            )
        if lists is not None and lists.shapes is not None and spec.polygons is not None:
            notes = [*notes, *polygon_notes(lists.shapes)]
        Derived.__init__(self, source)
        self.object_classes = names
        self.object_spec = spec
        self._lists = lists
        self._masks = masks
        self._most = most
        self.frame = frame
        self._notes = list(notes)
        self._fingerprint = ""

    @property
    def fingerprint(self) -> str:
        """The source's, and one of the objects; of masks in files only their paths count."""
        if not self._fingerprint:
            about = ["\0".join(self.object_classes).encode()]
            about += [b"stored"] if self.frame == "stored" else []
            values = zip(self.object_spec, PLAIN_OBJECTS, self.object_spec._fields, strict=True)
            about += [f"{name} {own}".encode() for own, plain, name in values if own != plain]
            own = fingerprint(len(self), (), tuple(about), self._content)
            self._fingerprint = self.source.fingerprint + OBJECTS_SEPARATOR + own
        return self._fingerprint

    def _content(self, first: int, last: int) -> Iterator[Any]:
        if self._lists is not None:
            yield from self._lists.content(first, last)
        if self._masks is not None:
            yield from self._masks.content(first, last)

    @property
    def notes(self) -> list[str]:
        """The source's, and annotations that are left out."""
        return source_notes(self.source) + self._notes

    # -- HasObjects

    @property
    def most(self) -> int:
        """Room for boxes per image; 0 without boxes."""
        if self._lists is None:
            return 0
        return max(1, self._lists.most) if self._most is None else int(self._most)

    def objects(self, ids: np.ndarray) -> Instances | None:
        """Boxes, keypoints and outlines of these images, in pixels."""
        return None if self._lists is None else self._lists.take(ids)

    def masks(self, ids: Sequence[int]) -> list[Any] | None:
        """Masks of these images, not decoded yet."""
        if self._masks is None:
            return None
        masks = self._masks.read(ids)
        for row, mask in enumerate(masks):
            if isinstance(mask, Unread):
                i = int(ids[row])
                detail = f"its mask: {mask.detail}" if mask.detail else "its mask"
                masks[row] = Failure(i, self.uri(i), "read", mask.reason, detail)
        return masks

    def _summary(self) -> str:
        kinds = f" of {len(self.object_classes)} classes" if self.object_classes else ""
        parts = []
        if self._lists is not None:
            name = "boxes" if self.object_spec.has_boxes else "objects"
            parts.append(f"{len(self._lists.boxes)} {name}{kinds}")
        if self.object_spec.keypoints:
            parts.append(f"{self.object_spec.keypoints} keypoints")
        if self.object_spec.instance_masks:
            parts.append("instance masks")
        if self.object_spec.polygons is not None:
            parts.append("polygons")
        if self._masks is not None:
            parts.append("masks")
        return f" with {' and '.join(parts)}"
