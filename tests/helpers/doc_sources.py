"""The files and objects that docs/sources.md reads, one of every kind of source."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow
from pyarrow import parquet

from helpers.mosaic import mds_folder, raw_folder
from helpers.photos import folder, jpeg
from helpers.records import example, record_folder, tfds_folder, write
from helpers.reference_files import mnist
from helpers.s3 import S3Server
from helpers.shards import samples, tar_of


def source_files(place: Path, s3: S3Server) -> None:
    """Local files in a folder, and objects in the bucket "bucket"."""
    photos = folder(place / "photos" / "train", {"a": 20, "b": 20})
    _tables(place, [path.relative_to(place).as_posix() for path in sorted(photos.rglob("*.jpg"))])
    s3.put_folder("bucket/train", photos)
    for k in range(100):
        s3.put(f"bucket/train-{k:03d}.tar", tar_of(samples([k])))
    (place / "stars").mkdir()
    landmark = json.dumps({"landmark_id": 7}).encode()
    (place / "stars" / "0.tar").write_bytes(tar_of([("0.jpg", jpeg(0)), ("0.json", landmark)]))
    for path in sorted(record_folder(place / "records", [4, 4]).iterdir()):
        s3.put(f"bucket/train-{path.stem[2:]}-of-01024", path.read_bytes())
    (place / "own").mkdir()
    write(
        place / "own" / "0.tfrecord",
        [example({"jpeg": jpeg(i), "landmark": 10 * i}) for i in range(4)],
    )
    tfds_folder(place / "tfds" / "pets" / "1.0.0", {"train": [4, 4]})
    mnist(place / "mnist")
    mds_folder(place / "mds" / "train", [4, 4])
    raw_folder(place / "raw" / "train", [4, 4])


def _tables(place: Path, paths: list[str]) -> None:
    ids = [1000 + i % 3 for i in range(len(paths))]
    parquet.write_table(pyarrow.table({"path": paths, "landmark_id": ids}), place / "train.parquet")
    rows = [
        f"{path},{path.split('/')[2]},{1 + i % 2},4,6,20,12,{2000 + i}"
        for i, path in enumerate(paths)
    ]
    (place / "boxes.csv").write_text("\n".join(["path,name,trust,x,y,w,h,year", *rows]) + "\n")
