"""MDS shards, read by MosaicML's streaming: its LocalDataset, its StreamingDataset, and its writer
to compare with.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.preprocess.libraries import streaming
from helpers.preprocess.packing import encoded, entries, write

from fastfeed.errors import ConfigError
from fastfeed.preprocess.model.recipe import Packing
from fastfeed.preprocess.model.record import Entry
from fastfeed.preprocess.writers import mds
from fastfeed.preprocess.writers.base import as_json
from fastfeed.preprocess.writers.mds import index_json

MDS = Packing("mds")
READ = """
from streaming import LocalDataset, MDSWriter, StreamingDataset

def plain(sample):
    image = sample["image"]
    image = ["bytes", image.hex()] if isinstance(image, bytes) else [image.format, *image.convert("RGB").size]
    return sample | {"image": image}

columns, samples, folder = json.loads(sys.argv[1])
with MDSWriter(out=folder, columns=columns, hashes=["sha256"], size_limit=None, max_workers=1) as out:
    for sample in samples:
        out.write({name: bytes.fromhex(value) if isinstance(value, str) else value for name, value in sample.items()})

found = {}
for folder in sys.argv[2:]:
    local = LocalDataset(folder)
    for shard in local.shards:
        shard.validate(allow_unsafe_types=False)
    streamed = [sample["key"] for sample in StreamingDataset(local=folder, batch_size=1, validate_hash="sha256")]
    found[folder] = {"samples": [plain(local[i]) for i in range(len(local))], "streamed": streamed}
json.dump(found, sys.stdout)
"""


def write_all(folder: Path, shards: Sequence[Sequence[Entry]], image: str = "jpeg") -> Path:
    """A folder with its index."""
    files = []
    for k, found in enumerate(shards):
        write(folder, MDS, found, f"shard-{k:06d}")
        content = (folder / f"shard-{k:06d}.mds").read_bytes()
        files.append(
            (
                f"train/shard-{k:06d}.mds",
                len(content),
                hashlib.sha256(content).hexdigest(),
                len(found),
                {},
            )
        )
    (folder / "index.json").write_bytes(index_json(files, image))
    return folder


def test_streaming_reads_it_and_writes_the_same(tmp_path: Path) -> None:
    found = entries(7)
    jpegs = write_all(tmp_path / "jpeg", [found[:4], [], found[4:]])
    webps = [
        replace(one, image=encoded(i, "webp"), extension="webp") for i, one in enumerate(found)
    ]
    webp = write_all(tmp_path / "webp", [webps], "webp")
    pngs = [
        replace(one, image=encoded(i, "png"), extension="png") for i, one in enumerate(found[:2])
    ]
    png = write_all(tmp_path / "png", [pngs], "png")
    index, theirs = json.loads((webp / "index.json").read_bytes()), tmp_path / "theirs"
    (shard,) = index["shards"]
    columns = dict(zip(shard["column_names"], shard["column_encodings"], strict=True))
    order = json.dumps([columns, [values(one) for one in webps], str(theirs)])
    read: dict[str, Any] = json.loads(
        streaming(READ, order, *map(str, (jpegs, webp, png)), folder=tmp_path)
    )

    assert read[str(jpegs)]["samples"] == [described(one, ["JPEG", 10, 8]) for one in found]
    assert sorted(read[str(jpegs)]["streamed"]) == [one.key for one in found]
    assert read[str(webp)]["samples"] == [
        described(one, ["bytes", one.image.hex()]) for one in webps
    ]
    assert read[str(png)]["samples"] == [described(one, ["PNG", 10, 8]) for one in pngs]

    assert (webp / "shard-000000.mds").read_bytes() == (theirs / "shard.00000.mds").read_bytes()
    expected = json.loads((theirs / "index.json").read_text())
    expected["shards"][0]["raw_data"]["basename"] = "shard-000000.mds"
    assert index == expected


def values(one: Entry) -> dict[str, Any]:
    """As columns have them; bytes as hexadecimal digits."""
    found = described(one, []) | {"image": one.image, "meta": as_json(one.meta)}
    return {
        name: (
            value
            if isinstance(value, int)
            else (value.encode() if isinstance(value, str) else value).hex()
        )
        for name, value in found.items()
    }


def described(one: Entry, image: list[Any]) -> dict[str, Any]:
    return {
        "class": one.meta.get("class", ""),
        "extension": one.extension,
        "height": 8,
        "image": image,
        "key": one.key,
        "label": -1 if one.label is None else one.label,
        "meta": one.meta,
        "text": (one.text or "").replace("\udcff", "\ufffd"),
        "uri": one.meta["uri"].replace("\udce9", "\ufffd"),
        "width": 10,
    }


def test_an_empty_shard_says_so(tmp_path: Path) -> None:
    folder = write_all(tmp_path, [[]])
    content = (folder / "shard-000000.mds").read_bytes()
    samples, first = np.frombuffer(content[:8], "<u4").tolist()
    assert (samples, first) == (0, len(content))
    assert json.loads(content[8:])["format"] == "mds"
    assert json.loads((folder / "index.json").read_bytes()) == {"shards": [], "version": 2}


def test_more_than_four_gigabytes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mds, "_MAX_BYTES", 3000)
    with pytest.raises(
        ConfigError, match="holds at most 4 GiB, sample 3 exceeds that; use fewer samples"
    ):
        write(tmp_path, MDS, entries(5))
