"""The layouts of the small classic data sets: MNIST's idx files and CIFAR's batches."""

from __future__ import annotations

import gzip
import io
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.sources.plain_pickle import byte_array, read_pickle, text_of
from fastfeed.storage.local_file import read_file
from fastfeed.storage.retry import Unread

__all__ = ["MEMORY", "read_cifar", "read_idx", "read_mnist"]

_CIFAR_PIXELS = 3 * 32 * 32
MEMORY = 1_000_000_000  # bytes of a file, unpacked
_LABELS = 1 << 31  # above every label that CIFAR can have


def read_mnist(folder: Path, split: str, memory: int) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 (n, 28, 28) and labels of one split, each in up to `memory` bytes."""
    prefix = {"train": "train", "test": "t10k"}[_split(split)]
    images, labels = (
        read_idx(
            _first(
                folder,
                [f"{prefix}-{kind}{dot}idx{n}-ubyte{gz}" for dot in "-." for gz in ("", ".gz")],
            ),
            memory,
        )
        for kind, n in (("images", 3), ("labels", 1))
    )
    if images.ndim != 3 or labels.shape != (len(images),):
        raise SourceError(
            f"MNIST: images and labels in {folder} must have the same length, got {images.shape}"
            f" and {labels.shape}; download both again"
        )
    return images, labels


def read_idx(path: Path, memory: int = MEMORY) -> np.ndarray:
    """One idx file of unsigned bytes (yann.lecun.com/exdb/mnist), .gz or not."""
    data = _content(path, "idx")
    if path.suffix == ".gz":
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
                data = file.read(memory + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise SourceError(f"idx: cannot read {path}: {error}") from error
    if len(data) > memory:
        raise SourceError(
            f"idx: {path} takes more than {memory:,} bytes unpacked; pass memory= if you trust it"
        )
    if len(data) < 4 or data[:3] != b"\0\0\x08":
        raise SourceError(
            f"idx: {path} must start with 00 00 08 (unsigned bytes), got"
            f" {data[:4].hex(' ') or 'nothing'}"
        )
    start = 4 + 4 * data[3]
    if len(data) < start:
        raise SourceError(f"idx: {path} ends inside its header: {len(data)} bytes of {start}")
    shape = tuple(int(n) for n in np.frombuffer(data[4:start], ">u4"))
    if len(data) - start != math.prod(shape):
        raise SourceError(
            f"idx: {path} should hold {math.prod(shape)} bytes for shape {shape}, got"
            f" {len(data) - start}"
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def read_cifar(folder: Path, split: str) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Images uint8 (n, 32, 32, 3), labels (fine ones for CIFAR-100), and class names if present."""
    _split(split)
    if not folder.is_dir():
        raise SourceError(f"CIFAR: no folder {folder}; pass the one that was unpacked")
    ten = {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}[split]
    for names, record in (([f"{n}.bin" for n in ten], 1), ([f"{split}.bin"], 2)):
        if all((folder / n).exists() for n in names):
            parts = [_cifar_binary(folder / n, record) for n in names]
            break
    else:
        names = ten if all((folder / n).exists() for n in ten) else [split]
        if not all((folder / n).exists() for n in names):
            raise SourceError(
                f"CIFAR: {folder} holds neither {ten[0]}[.bin] nor {split}[.bin]; is it the"
                " unpacked folder?"
            )
        parts = [_cifar_pickle(folder / n) for n in names]
    images = np.concatenate([p for p, _ in parts]).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    labels, classes = np.concatenate([labels for _, labels in parts]), _cifar_names(folder)
    if len(labels) and (int(labels.min()) < 0 or (classes and int(labels.max()) >= len(classes))):
        raise SourceError(
            f"CIFAR: {folder} has labels {labels.min()} to {labels.max()} and {len(classes)} names"
            " of classes; damaged?"
        )
    return np.ascontiguousarray(images), labels, classes


def _cifar_binary(path: Path, label_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    data = np.frombuffer(_content(path, "CIFAR"), np.uint8)
    if not len(data) or len(data) % (label_bytes + _CIFAR_PIXELS):
        raise SourceError(
            f"CIFAR: the size of {path} must be a multiple of {label_bytes + _CIFAR_PIXELS} bytes,"
            f" got {len(data)}; download it again if it is truncated"
        )
    rows = data.reshape(-1, label_bytes + _CIFAR_PIXELS)
    return rows[:, label_bytes:], rows[:, label_bytes - 1].astype(np.int64)


def _cifar_pickle(path: Path) -> tuple[np.ndarray, np.ndarray]:
    batch = _unpickle(path)
    labels = batch.get("labels", batch.get("fine_labels"))
    pixels = byte_array(batch.get("data"))
    if pixels is None or type(labels) is not list or pixels.shape != (len(labels), _CIFAR_PIXELS):
        raise SourceError(f"CIFAR: {path} is not a CIFAR batch")
    if not all(type(label) is int and 0 <= label < _LABELS for label in labels):
        raise SourceError(f"CIFAR: {path} is not a CIFAR batch")
    return pixels, np.array(labels, np.int64)


def _cifar_names(folder: Path) -> tuple[str, ...]:
    for name, key in (("batches.meta", "label_names"), ("meta", "fine_label_names")):
        if (folder / name).exists():
            listed = _unpickle(folder / name).get(key, [])
            names = [text_of(n) for n in listed] if type(listed) is list else [None]
            if None in names:
                raise SourceError(f"CIFAR: {folder / name} does not hold the names of classes")
            return tuple(n for n in names if n is not None)
    for name in ("batches.meta.txt", "fine_label_names.txt"):
        if (folder / name).exists():
            return tuple(_content(folder / name, "CIFAR").decode(errors="replace").split())
    return ()


def _unpickle(path: Path) -> dict[Any, Any]:
    try:
        batch = read_pickle(_content(path, "CIFAR"))
    except ValueError as error:
        raise SourceError(f"CIFAR: cannot read {path}: {error}") from error
    if not isinstance(batch, dict):
        raise SourceError(f"CIFAR: {path} is not a CIFAR batch")
    return batch


def _content(path: Path, who: str) -> bytes:
    """All bytes of a regular file. SourceError."""
    content = read_file(str(path))
    if isinstance(content, Unread) and content.reason != "empty":
        raise SourceError(f"{who}: cannot read {path}: {content.detail or content.reason}")
    return b"" if isinstance(content, Unread) else content


def _first(folder: Path, names: list[str]) -> Path:
    for name in names:
        if (folder / name).exists():
            return folder / name
    raise SourceError(
        f"MNIST: {folder} does not hold {names[0]} (or .gz); pass the folder with the four idx"
        " files"
    )


def _split(split: str) -> str:
    if split not in ("train", "test"):
        raise ConfigError(f'split must be "train" or "test", got {split!r}')
    return split
