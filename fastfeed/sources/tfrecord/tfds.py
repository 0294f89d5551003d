"""Shards, features and classes of a data set that TensorFlow Datasets has prepared.

Its folder holds dataset_info.json, with the splits and the samples of each shard, features.json,
and a `FEATURE.labels.txt` for each feature of named classes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.printable import printable
from fastfeed.runtime.json_file import parse_json
from fastfeed.storage.expand import read_whole
from fastfeed.storage.reads import Unread
from fastfeed.storage.storage import Storage

_WHO = "TFRecords.from_tfds"
_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
_BOUND = r"(-?[0-9]+(?:\.[0-9]+)?)?(%)?"
_PART = re.compile(rf"([\w-]+)(?:\[{_BOUND}:{_BOUND}\])?")


class TfdsFolder:
    """The folder of one version of a data set, as `data_dir/mnist/3.0.1`.

    Raises:
        SourceError: If it is no such folder.
    """

    def __init__(self, folder: str, storage: Storage) -> None:
        self._folder = folder.rstrip("/")
        self._storage = storage
        info = self._json("dataset_info.json")
        file_format = info.get("fileFormat", "tfrecord")
        if file_format != "tfrecord":
            raise SourceError(
                f"{_WHO}: {self._folder} has files of {printable(file_format)}; prepare the data set"
                ' with file_format="tfrecord"'
            )
        try:
            self._splits = {
                str(split["name"]): [int(length) for length in split["shardLengths"]]
                for split in info["splits"]
            }
            self._shards = {
                str(split["name"]): list(_shard_names(str(info["name"]), split))
                for split in info["splits"]
            }
            self._supervised = [
                str(item.get("featureKey"))
                for item in info.get("supervisedKeys", {}).get("tuple", {}).get("items", [])
            ]
            self._features = dict(_flat(self._json("features.json")))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise SourceError(
                f"{_WHO}: {self._folder} has other JSON files than TensorFlow Datasets writes:"
                f" {type(error).__name__} {error}; prepare the data set again"
            ) from error

    def samples(self, split: str) -> tuple[list[str], np.ndarray, int]:
        """Shards of all splits in a text such as "train[:80%]+test", ids of samples, their sum."""
        names = list(self._splits) if split == "all" else split.split("+")
        starts: dict[str, int] = {}
        files: list[str] = []
        ids = []
        total = 0
        for part in names:
            match = _PART.fullmatch(part.strip())
            name = match[1] if match else ""
            if match is None or name not in self._splits:
                known = ", ".join(map(printable, self._splits))
                advice = f'{known}, parts such as "train[:80%]", several joined by "+", or "all"'
                raise ConfigError.of(f"{_WHO}: split", f"one of {advice}", split)
            lengths = self._splits[name]
            if name not in starts:
                starts[name] = total
                total += sum(lengths)
                files += [f"{self._folder}/{shard}" for shard in self._shards[name]]
            first, last = _bounds(match, sum(lengths))
            ids.append(np.arange(first, last) + starts[name])
        return files, np.concatenate(ids), total

    def image(self) -> str:
        """Name of the feature that holds the image. ConfigError unless one does."""
        return self._chosen("image", self._names("Image"), self._supervised[:1])

    def label(self) -> str | None:
        """Name of the feature that holds class numbers; None if it has no classes."""
        names = self._names("ClassLabel")
        return self._chosen("label", names, self._supervised[1:2]) if names else None

    def classes(self, name: str) -> list[str] | None:
        """Names of classes of a feature, numbers where they have none; None if it has no classes.

        An empty list: neither names nor their number are known.
        """
        kind, content = self._features.get(name, ("", {}))
        if kind != "ClassLabel":
            return None
        text = self._text(f"{name.replace('/', '-')}.labels.txt", required=False)
        if text is not None:
            return [line.strip() for line in text.splitlines() if line.strip()]
        return list(map(str, range(int(content.get("numClasses", 0)))))

    def _names(self, kind: str) -> list[str]:
        """Names of the features of a kind."""
        return [name for name, (its_kind, _) in self._features.items() if its_kind == kind]

    def _chosen(self, option: str, names: list[str], supervised: list[str]) -> str:
        chosen = [name for name in supervised if name in names] or names
        if len(chosen) == 1:
            return chosen[0]
        have = ", ".join(map(printable, names or self._features)) or "none"
        raise ConfigError(
            f"{_WHO}: {option} must be the name of a feature, since {self._folder} has"
            f" {'several' if names else 'no'} {option}s; it has {have}",
            field=option,
        )

    def _json(self, name: str) -> dict[str, Any]:
        text = self._text(name)
        try:
            content = parse_json((text or "").encode())
            if not isinstance(content, dict):
                raise ValueError(f"got {printable(content)}, an object is needed")
        except (ValueError, RecursionError) as error:
            raise SourceError(f"{_WHO}: {self._folder}/{name} is damaged: {error}") from error
        return content

    def _text(self, name: str, required: bool = True) -> str | None:
        uri = f"{self._folder}/{name}"
        data = read_whole(uri, self._storage)
        if not isinstance(data, Unread):
            return data.decode("utf-8", "replace")
        if not required and data.reason == "not_found":
            return None
        raise SourceError(
            f"{_WHO}: cannot read {uri}: {data.detail or data.reason}; pass the folder of a version,"
            " as data_dir/mnist/3.0.1, which has dataset_info.json and features.json; images in"
            " folders SPLIT/CLASS, as tfds.ImageFolder takes them, are ff.ImageFolder(folder/SPLIT)"
        )


def _shard_names(dataset: str, split: Mapping[str, Any]) -> Iterator[str]:
    """File names of the shards of a split. ValueError for one in another folder."""
    count = len(split["shardLengths"])
    for i in range(count):
        name = str(split.get("filepathTemplate") or _TEMPLATE).format(
            DATASET=dataset,
            SPLIT=split["name"],
            FILEFORMAT="tfrecord",
            SHARD_INDEX=f"{i:05d}",
            NUM_SHARDS=f"{count:05d}",
            SHARD_X_OF_Y=f"{i:05d}-of-{count:05d}",
        )
        if "/" in name or "\\" in name:
            raise ValueError(f"{name} is in another folder")
        yield name


def _flat(feature: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, tuple[str, Any]]]:
    """Names of features as shards have them, with the kind and content of each."""
    kind = str(feature.get("pythonClassName") or feature.get("type")).rpartition(".")[2]
    own = {key: value for key, value in feature.items() if isinstance(value, dict)}
    content = next(iter(own.values()), {})
    if kind != "FeaturesDict":
        yield above, (kind, content)
        return
    for name, inner in content.get("features", content).items():
        yield from _flat(inner, f"{above}/{name}" if above else name)


def _bounds(match: re.Match[str], count: int) -> tuple[int, int]:
    """First and last sample of a part, [first, last), rounded as TensorFlow Datasets does."""
    is_share = bool(match[3] or match[5])
    bounds = []
    for text, default in ((match[2], 0), (match[4], count)):
        if text is None:
            bounds.append(default)
            continue
        if "." in text and not is_share:
            raise ConfigError.of(f"{_WHO}: split", 'samples, or shares like "2.5%"', match[0])
        number = round(float(text) * count / 100) if is_share else int(text)
        if abs(number) > count:
            raise ConfigError.of(f"{_WHO}: split", f"within its {count} samples", match[0])
        bounds.append(number + count if number < 0 else number)
    if bounds[0] >= bounds[1]:
        raise ConfigError.of(f"{_WHO}: split", f"a part of {count} with samples", match[0])
    return bounds[0], bounds[1]
