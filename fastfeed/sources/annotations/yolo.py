"""Folders of YOLO labels: a text file per image, a line per object."""

from __future__ import annotations

import os
from functools import partial
from pathlib import PurePosixPath

import numpy as np

from fastfeed.errors import SourceError
from fastfeed.printable import printable
from fastfeed.sources.annotations.boxes import BoxLists
from fastfeed.sources.annotations.shapes import Rings, ShapeLists, parse_shape
from fastfeed.sources.base import Optionals, Source
from fastfeed.storage.local_file import read_file
from fastfeed.storage.reads import is_local

_LARGEST = 1 << 26  # bytes of a file of labels


def read_yolo(
    source: Source, labels: str, keypoints: int, polygons: bool, classes: int
) -> tuple[BoxLists, list[str]]:
    """Objects of each image, in shares of its sides, and notes.

    keypoints: of each object; polygons: lines are a class and a polygon.
    """
    if not is_local(labels) or not os.path.isdir(labels):
        raise SourceError(
            f"Objects.yolo: {printable(labels)} is not a local folder; pass the one that holds the"
            " label files"
        )
    names = Optionals(source).sample_names(np.arange(len(source)))
    files = [os.path.join(labels, PurePosixPath(name).with_suffix(".txt")) for name in names]
    read = _polygons if polygons else partial(_objects, keypoints)
    listed = [_lines(file) for file in files]
    found = [None if own is None else read(f, own) for f, own in zip(files, listed, strict=True)]
    none = np.empty((0, 5 + 3 * keypoints))
    rows = [none if own is None else own[0] for own in found]
    shapes = None
    if polygons:
        shapes = ShapeLists.of(ring for own in found if own is not None for ring in own[1])
    flat = np.concatenate([np.empty((0, 5 + 3 * keypoints)), *rows])
    missing = [file for file, own in zip(files, found, strict=True) if own is None]
    notes = []
    if missing:
        notes.append(
            f"{labels}: {len(missing):,} of {len(files):,} images have no label file and so no"
            f" objects, such as {missing[0]}"
        )
    lists = BoxLists.flat(
        flat[:, 1:5],
        flat[:, 0].astype(np.int64),
        np.cumsum([0, *map(len, rows)], dtype=np.int64),
        "cxcywh",
        classes,
        lambda i, k: f"object {k} of {files[i]}",
        keypoints=flat[:, 5:].reshape(len(flat), keypoints, 3) if keypoints else None,
        normalized=True,
        shapes=shapes,
    )
    return lists, notes


def _lines(file: str) -> list[tuple[int, list[str]]] | None:
    """Numbers and words of the lines of a file that are not empty; None if there is no such file."""
    if not os.path.exists(file):
        return None
    data = read_file(file, limit=_LARGEST)
    if not isinstance(data, bytes):
        if data.reason == "empty":
            return []
        raise SourceError(f"Objects.yolo: cannot read {file}: {data.reason} {data.detail}".rstrip())
    lines = data.decode("utf-8", "replace").splitlines()
    return [(k, line.split()) for k, line in enumerate(lines) if line.strip()]


def _objects(
    keypoints: int, file: str, lines: list[tuple[int, list[str]]]
) -> tuple[np.ndarray, list[Rings]]:
    """Class, box and keypoints of lines: float64 (k, 5 + 3 * keypoints)."""
    rows = [_object(file, k, words, keypoints) for k, words in lines]
    return np.array(rows).reshape(len(rows), 5 + 3 * keypoints), []


def _polygons(file: str, lines: list[tuple[int, list[str]]]) -> tuple[np.ndarray, list[Rings]]:
    """Class and box around the polygon of each line, float64 (k, 5), and the polygons."""
    rows: list[list[float]] = []
    shapes = []
    for line, words in lines:
        try:
            shape = parse_shape([[float(word) for word in words[1:]]])
            assert isinstance(shape, Rings)
            left, top, right, bottom = shape.bounds.tolist()
            center = (left + right) / 2, (top + bottom) / 2
            rows.append([int(words[0]), *center, right - left, bottom - top])
        except ValueError as error:
            raise SourceError(
                f"Objects.yolo: line {line + 1} of {file} must be a class number and x, y of a"
                f" polygon's points, got {printable(' '.join(words), 80)}: {error}"
            ) from None
        shapes.append(shape)
    return np.array(rows, np.float64).reshape(-1, 5), shapes


def _object(file: str, line: int, words: list[str], keypoints: int) -> np.ndarray:
    try:
        numbers = np.array(words, np.float64)
    except ValueError:
        numbers = np.empty(0)
    counts = sorted({5 + 2 * keypoints, 5 + 3 * keypoints})
    if len(numbers) not in counts or not float(numbers[0]).is_integer():
        points = f", then {keypoints} keypoints of 2 or 3 numbers" if keypoints else ""
        raise SourceError(
            f"Objects.yolo: line {line + 1} of {file} must be a class number and cx, cy, width,"
            f" height{points}: {' or '.join(map(str, counts))} numbers, got {len(words)} values,"
            f" {printable(' '.join(words), 80)}; lines of polygons need instance_masks=True"
        )
    if not keypoints or len(numbers) == counts[-1]:
        return numbers
    places = numbers[5:].reshape(keypoints, 2)
    labeled = (places >= 0).all(axis=1, keepdims=True)  # as Ultralytics reads them
    points = np.concatenate([places, np.where(labeled, 2.0, 0)], axis=1)
    return np.concatenate([numbers[:5], points.ravel()])
