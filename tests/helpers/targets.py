"""Sources with the same twelve images and targets of every kind."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import fastfeed as ff
from helpers.mosaic import mds_index, mds_shard
from helpers.photos import jpeg
from helpers.records import example
from helpers.records import write as write_records
from helpers.shards import tar_of
from helpers.tables import image_bytes
from helpers.tables import write as write_table

COUNT = 12
PRICES = [1.5 + 2 * i for i in range(COUNT)]
AGES = [float(i * i) for i in range(COUNT)]
TAGS = [
    [name for k, name in enumerate(("cat", "dog", "éléphant")) if i >> k & 1] for i in range(12)
]
CAPTIONS = [f"caption {i}, naïve" for i in range(COUNT)]
MATRICES = [(np.arange(6) + i).reshape(2, 3).astype(np.float64) for i in range(COUNT)]
IMAGES = [jpeg(i, (24, 32)) for i in range(COUNT)]
HOT = np.array([[name in tags for name in ("cat", "dog", "éléphant")] for tags in TAGS], np.float32)

# what `label` has to give, by kind: of one number, of two, of an array, of lists of names, ...
WANTED: dict[str, np.ndarray] = {
    "number": np.array(PRICES, np.float32),
    "numbers": np.stack([PRICES, AGES], axis=1).astype(np.float32),
    "array": np.array(MATRICES, np.float32),
    "names": HOT,
    "flags": HOT[:, ::-1],
    "text": np.array(CAPTIONS, object),
}
FLAGS = ("éléphant", "dog", "cat")  # columns of 0 and 1


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def flags(i: int) -> dict[str, int]:
    return {name: int(name in TAGS[i]) for name in FLAGS}


def parts() -> list[range]:
    return [range(5), range(5, 6), range(6, COUNT)]


def tar_folder(root: Path, changes: dict[int, dict[str, bytes | None]] | None = None) -> Path:
    """Three shards; `changes`: other bytes of members by sample, None for no such member."""
    root.mkdir(parents=True, exist_ok=True)
    for k, ids in enumerate(parts()):
        members = []
        for i in ids:
            about = {"price": PRICES[i], "of": {"age": AGES[i]}, "tags": TAGS[i], **flags(i)}
            sample: dict[str, bytes | None] = {
                "jpg": IMAGES[i],
                "json": json.dumps(about).encode(),
                "price": f"{PRICES[i]}\n".encode(),
                "npy": npy(MATRICES[i]),
                "txt": CAPTIONS[i].encode(),
            }
            sample |= (changes or {}).get(i, {})
            members += [(f"{i:04d}.{e}", data) for e, data in sample.items() if data is not None]
        (root / f"s-{k}.tar").write_bytes(tar_of(members))
    return root


def record_folder(root: Path, changes: dict[int, dict[str, Any]] | None = None) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for k, ids in enumerate(parts()):
        samples = []
        for i in ids:
            sample: dict[str, Any] = {
                "image/encoded": IMAGES[i],
                "price": PRICES[i],
                "age": int(AGES[i]),
                "vector": MATRICES[i].ravel().tolist(),
                "tags": [name.encode() for name in TAGS[i]],
                "caption": CAPTIONS[i].encode(),
                **flags(i),
            }
            sample |= (changes or {}).get(i, {})
            samples.append({name: value for name, value in sample.items() if value is not None})
        write_records(root / f"s-{k}.tfrecord", map(example, samples))
    return root


def mds_folder(root: Path) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    encodings = {"image": "jpeg", "price": "float64", "age": "int", "tags": "json"}
    encodings |= {"vector": "ndarray:float32:2,3", "caption": "str"} | dict.fromkeys(FLAGS, "uint8")
    names = []
    for k, ids in enumerate(parts()):
        samples = [
            {
                "image": IMAGES[i],
                "price": PRICES[i],
                "age": AGES[i],
                "tags": TAGS[i],
                "vector": MATRICES[i].astype("<f4").tobytes(),
                "caption": CAPTIONS[i],
                **flags(i),
            }
            for i in ids
        ]
        names.append(f"shard.{k:05d}.mds")
        (root / names[-1]).write_bytes(mds_shard(encodings, samples))
    (root / "index.json").write_text(mds_index(names))
    return root


COLUMNS: dict[str, list[Any]] = {
    "path": [f"{i}.jpg" for i in range(COUNT)],
    "price": PRICES,
    "age": [int(age) for age in AGES],
    "vector": [matrix.ravel().tolist() for matrix in MATRICES],
    "tags": TAGS,
    "caption": CAPTIONS,
    **{name: [flags(i)[name] for i in range(COUNT)] for name in FLAGS},
}


def images(root: Path) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for i, image in enumerate(IMAGES):
        (root / f"{i}.jpg").write_bytes(image)
    return root


def table(root: Path, format: str, **changes: Sequence[Any]) -> Path:
    return write_table(images(root) / f"t.{format}", COLUMNS | changes)


Made = Callable[[Path], Any]

# of each source: what to pass as its label for the targets of WANTED, and how they are shaped there
LABELS: dict[str, dict[str, tuple[str | Sequence[str], str]]] = {
    "TarShards": {
        "number": ("price", "value"),
        "numbers": (["json:price", "json:of.age"], "value"),
        "array": ("npy", "value"),
        "names": ("json:tags", "multi"),
        "flags": ([f"json:{name}" for name in FLAGS], "multi"),
        "text": ("txt", "text"),
    },
    "TFRecords": {
        "number": ("price", "value"),
        "numbers": (["price", "age"], "value"),
        "names": ("tags", "multi"),
        "flags": (FLAGS, "multi"),
        "text": ("caption", "text"),
    },
}
LABELS["MDSShards"] = LABELS["TFRecords"] | {"array": ("vector", "value")}
FOLDERS: dict[str, Made] = {
    "TarShards": tar_folder,
    "TFRecords": record_folder,
    "MDSShards": mds_folder,
}


def _table(root: Path, target: str, format: str, **more: Any) -> Any:
    label, kind = LABELS["TFRecords"][target]
    return ff.Table(table(root, format), image="path", label=label, label_kind=kind, **more)


def _held(root: Path, target: str, source: Any = ff.Table) -> Any:
    label, kind = LABELS["TFRecords"][target]
    columns = {name: values for name, values in COLUMNS.items() if name != "path"}
    root.mkdir(parents=True, exist_ok=True)
    path = image_bytes(root / "t.parquet", IMAGES, 5, **columns)
    return source(path, image="image", label=label, label_kind=kind)


def _shards(name: str) -> Callable[[Path, str], Any]:
    def opened(root: Path, target: str) -> Any:
        label, kind = LABELS[name][target]
        return getattr(ff, name)(FOLDERS[name](root), label=label, label_kind=kind)

    return opened


def _listed(target: str) -> tuple[Any, str, tuple[str, ...]]:
    """Labels for `Files` and `Arrays`, their kind and classes."""
    values = {"number": PRICES, "names": TAGS, "text": CAPTIONS}.get(target, WANTED[target])
    kind = {"names": "multi", "flags": "multi", "text": "text"}.get(target, "value")
    return values, kind, FLAGS if target == "flags" else ()


def _files(root: Path, target: str) -> Any:
    values, kind, classes = _listed(target)
    paths = [images(root) / name for name in COLUMNS["path"]]
    return ff.Files(paths, values, label_kind=kind, classes=classes or None)


def _arrays(root: Path, target: str) -> Any:
    values, kind, classes = _listed(target)
    return ff.Arrays(np.zeros((COUNT, 8, 8), np.uint8), values, label_kind=kind, classes=classes)


def _mapped(root: Path, target: str) -> Any:
    values, kind, classes = _listed(target)
    items = [{"image": image} for image in IMAGES]
    return ff.Mapped(
        items, image="image", label=None, labels=values, label_kind=kind, classes=classes or None
    )


def _mixture(root: Path, target: str) -> Any:
    """The samples twice: of tar shards and of records, ids from 12 on."""
    kinds = ("TarShards", "MDSShards")
    return ff.Mixture({name: _shards(name)(root / name, target) for name in kinds})


def _subset(root: Path, target: str) -> Any:
    """All samples of a mixture but its first and last: ids are those of SOURCES."""
    whole = ff.Mixture([_shards("MDSShards")(root / "mds", target)] * 3)
    return ff.take(whole, np.arange(COUNT, 2 * COUNT))


def _together(root: Path, target: str) -> Any:
    """Pairs whose second source has the labels."""
    left = ff.TFRecords(record_folder(root / "left"), label=None)
    return ff.Together({"left": left, "right": _shards("TarShards")(root / "right", target)})


def _objects(root: Path, target: str) -> Any:
    return ff.Objects(_shards("TarShards")(root, target), [[]] * COUNT, most=1)


# (folder, target of WANTED) -> source of the samples 0 to 11 in their order
SOURCES: dict[str, Callable[[Path, str], Any]] = {
    **{name: _shards(name) for name in FOLDERS},
    "Table, CSV": lambda root, target: _table(root, target, "csv"),
    "Table, JSON lines": lambda root, target: _table(root, target, "jsonl"),
    "Table, Parquet": lambda root, target: _table(root, target, "parquet"),
    "Table, images in Parquet": _held,
    "Files": _files,
    "Arrays": _arrays,
    "HuggingFace": lambda root, target: _held(root, target, ff.HuggingFace),
    "Mapped": _mapped,
    "Mixture": _mixture,
    "Subset": _subset,
    "Objects": _objects,
    "Together": _together,
}
# targets that a source has no form for
WITHOUT = {
    ("TFRecords", "array"),
    *((name, "array") for name in SOURCES if name.startswith(("Table", "HuggingFace"))),
}
