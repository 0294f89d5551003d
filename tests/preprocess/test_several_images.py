"""Samples of several images: in each format, read by its libraries, through updates."""

from __future__ import annotations

import csv
import gc
import hashlib
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.needs import require
from helpers.photos import jpeg
from helpers.preprocess.libraries import streaming, tensorflow
from helpers.s3 import S3Server
from helpers.small_jobs import InlineEngine, recipe
from PIL import Image

import fastfeed as ff
from fastfeed.errors import ConfigError
from fastfeed.preprocess import (
    Encoding,
    Limits,
    Metadata,
    Recipe,
    Scaling,
    Selection,
    merge,
    open_input,
    plan_table,
    run,
    update,
)
from fastfeed.preprocess.inputs.source_spec import SourceSpec
from fastfeed.preprocess.reports.preview import draw_cells
from fastfeed.preprocess.reports.verify import verify
from fastfeed.preprocess.targets.job_state import open_job
from fastfeed.preprocess.targets.target import open_target

FORMATS = ("webdataset", "tfrecord", "parquet", "mds")
BY_LIBRARIES = [  # to import two of the libraries takes seconds; test_typed_columns reads by them
    pytest.param(name, marks=[pytest.mark.slow] if name in ("tfrecord", "mds") else [])
    for name in FORMATS
]
COUNT = 5


def pairs(root: Path, count: int = COUNT) -> ff.Together:
    """`count` pairs in two folders, the right ones of another size."""
    for name, seed, size in (("left", 0, (40, 56)), ("right", 100, (48, 64))):
        (root / name).mkdir(parents=True, exist_ok=True)
        for k in range(count):
            (root / name / f"{k}.jpg").write_bytes(jpeg(seed + k, size))
    left, right = (ff.ImageFolder(root / name, labeled=False) for name in ("left", "right"))
    return ff.Together({"left": left, "right": right})


def table(root: Path, count: int = COUNT) -> str:
    """The same pairs as rows of a CSV, with a class and a column."""
    pairs(root, count)
    with open(root / "t.csv", "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["one", "two", "label", "shift"])
        rows.writerows([f"left/{k}.jpg", f"right/{k}.jpg", "ab"[k % 2], k] for k in range(count))
    return str(root / "t.csv")


def spec(place: str, **more: Any) -> SourceSpec:
    return SourceSpec(place, image=("left=one", "right=two"), columns=("shift",), **more)


def built(root: Path, format: str, made: Recipe | None = None) -> Path:
    source = spec(table(root / "data"))
    report = run(source, root / "shards", made or recipe(format, 2), engine=InlineEngine())
    assert report.tally.samples == COUNT
    return root / "shards"


def job_of(shards: Path) -> Any:
    return open_job(open_target(shards, writes=False))


def read_back(shards: Path, format: str, name: str) -> ff.sources.base.Source:
    """One image of the samples, by our sources."""
    return {
        "webdataset": lambda: ff.TarShards(f"{shards}/*.tar", images=[f"{name}.jpg"]),
        "tfrecord": lambda: ff.TFRecords(f"{shards}/*.tfrecord", image=f"image/{name}/encoded"),
        "parquet": lambda: ff.Table(shards, image=name, label="class"),
        "mds": lambda: ff.MDSShards(shards, image=name),
    }[format]()


def samples(shards: Path, format: str) -> list[dict[str, Any]]:
    """Images by name, class and metadata of each sample, by the format's own library."""
    read = {
        "webdataset": by_webdataset,
        "tfrecord": by_tensorflow,
        "parquet": by_pyarrow,
        "mds": by_streaming,
    }
    return read[format](shards)


def by_webdataset(shards: Path) -> list[dict[str, Any]]:
    require("webdataset")
    import webdataset as wds

    files = sorted(map(str, shards.glob("*.tar")))
    rows = [
        {
            "left": row["left.jpg"],
            "right": row["right.jpg"],
            "label": int(row["cls"]),
            "meta": json.loads(row["json"]),
        }
        for row in wds.WebDataset(files, shardshuffle=False)
    ]
    gc.collect()  # it leaves its files open
    return rows


def by_pyarrow(shards: Path) -> list[dict[str, Any]]:
    rows = [row for f in sorted(shards.glob("*.parquet")) for row in pq.read_table(f).to_pylist()]
    assert "image" not in rows[0]
    own = ("left", "right", "label")
    return [{k: row[k] for k in own} | {"meta": json.loads(row["meta"])} for row in rows]


BY_TENSORFLOW = """
rows = []
for record in tf.data.TFRecordDataset(sys.argv[1:]):
    found = tf.train.Example.FromString(record.numpy()).features.feature
    assert "image/encoded" not in found
    row = {n: found[f"image/{n}/encoded"].bytes_list.value[0].hex() for n in ("left", "right")}
    row["label"] = found["image/class/label"].int64_list.value[0]
    rows.append({**row, "meta": json.loads(found["image/meta"].bytes_list.value[0])})
json.dump(rows, sys.stdout)
"""


def by_tensorflow(shards: Path) -> list[dict[str, Any]]:
    images = ("left", "right")
    rows = json.loads(tensorflow(BY_TENSORFLOW, *sorted(shards.glob("*.tfrecord"))))
    return [row | {name: bytes.fromhex(row[name]) for name in images} for row in rows]


def by_streaming(shards: Path) -> list[dict[str, Any]]:
    program = """
from streaming import LocalDataset
rows = []
for row in LocalDataset(sys.argv[1]):
    sizes = {name: list(row[name].size) for name in ("left", "right")}
    rows.append({**sizes, "label": row["label"], "meta": row["meta"]})
json.dump(rows, sys.stdout)
"""
    return json.loads(streaming(program, str(shards), folder=shards.parent))


def size_of(image: bytes | list[int]) -> list[int]:
    """Width and height of a file; streaming returns Pillow images."""
    if isinstance(image, list):
        return image
    with Image.open(io.BytesIO(image)) as opened:
        return list(opened.size)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("format", BY_LIBRARIES)
def test_libraries_read_both_images(tmp_path: Path, format: str) -> None:
    shards = built(tmp_path, format)
    found = samples(shards, format)
    assert [size_of(row["left"]) for row in found] == [[34, 24]] * COUNT  # 56 x 40, short side 24
    assert [size_of(row["right"]) for row in found] == [[32, 24]] * COUNT  # 64 x 48
    assert [row["label"] for row in found] == [0, 1, 0, 1, 0]
    for k, row in enumerate(found):
        meta = row["meta"]
        assert meta["uri"] == f"left/{k}.jpg"
        assert meta["sha256"] == hashlib.sha256(jpeg(k, (40, 56))).hexdigest()
        right = meta["images"]["right"]
        assert right["uri"] == f"right/{k}.jpg"
        assert right["sha256"] == hashlib.sha256(jpeg(100 + k, (48, 64))).hexdigest()
        assert (right["height"], right["width"], right["source_width"]) == (24, 32, 64)
        assert meta["columns"] == {"shift": k}


@pytest.mark.parametrize("format", FORMATS)
def test_together_reads_the_shards(tmp_path: Path, format: str) -> None:
    """Each image has the bytes that a job of its own has."""
    shards = built(tmp_path, format)
    read = ff.Together({name: read_back(shards, format, name) for name in ("left", "right")})
    assert len(read) == COUNT
    for name, own in read.together.items():
        run(tmp_path / "data" / name, tmp_path / name, recipe(samples=2), engine=InlineEngine())
        alone = ff.TarShards(f"{tmp_path / name}/*.tar", label=None)
        assert own.read(range(COUNT)) == alone.read(range(COUNT))


@pytest.mark.parametrize("format", FORMATS)
def test_an_update_writes_what_a_new_job_would(tmp_path: Path, format: str) -> None:
    shards = built(tmp_path, format)
    untouched = (shards / samples_file(shards, 2)).read_bytes()
    source = spec(str(tmp_path / "data/t.csv"))
    own = {"engine": InlineEngine(), "relabel": {"left/1.jpg": "b", "left/3.jpg": "a"}}
    report = update(source, shards, remove=["left/0.jpg"], **own)
    assert report.tally.samples == COUNT - 1
    assert report.tally.bytes_in == sum(
        len(jpeg(seed + k, size))
        for k in range(1, COUNT)
        for seed, size in ((0, (40, 56)), (100, (48, 64)))
    )
    assert (shards / samples_file(shards, 2)).read_bytes() == untouched
    images = {name: read_back(shards, format, name) for name in ("left", "right")}
    for name, seed, size in (("left", 0, (40, 56)), ("right", 100, (48, 64))):
        fresh = built_alone(tmp_path / f"fresh-{name}", seed, size)
        assert images[name].read(range(COUNT - 1)) == fresh[1:]
    assert images["left"].label(np.arange(4)).tolist() == [1, 0, 0, 0]
    found = verify(job_of(shards))
    assert (found.problems, found.samples) == ((), COUNT - 1)


def samples_file(shards: Path, number: int) -> str:
    """Name of a shard's main file."""
    (found,) = [p.name for p in shards.glob(f"shard-{number:06d}.*") if p.suffix != ".idx"]
    return found


def built_alone(root: Path, seed: int, size: tuple[int, int]) -> list[bytes]:
    """These images, made by a job of one image per sample."""
    (root / "in").mkdir(parents=True)
    for k in range(COUNT):
        (root / "in" / f"{k}.jpg").write_bytes(jpeg(seed + k, size))
    run(root / "in", root / "out", recipe(), engine=InlineEngine())
    return ff.TarShards(f"{root / 'out'}/*.tar", label=None).read(range(COUNT))


def test_one_bad_image_makes_the_sample_bad(tmp_path: Path) -> None:
    source = pairs(tmp_path / "data")
    (tmp_path / "data/right/1.jpg").write_bytes(jpeg(101)[:300])
    (tmp_path / "data/left/3.jpg").write_bytes(b"")
    report = run(source, tmp_path / "shards", recipe(), engine=InlineEngine())
    bad = {image.id: (Path(image.uri).name, image.reason, image.detail) for image in report.bad}
    assert {i: (name, reason) for i, (name, reason, _) in bad.items()} == {
        1: ("1.jpg", "truncated"),
        3: ("3.jpg", "empty"),
    }
    assert bad[1][2].startswith("right")
    assert bad[3][2].startswith("left")
    shards = f"{tmp_path / 'shards'}/*.tar"
    names = ("left", "right")
    images = [ff.TarShards(shards, label=None, images=[f"{name}.jpg"]) for name in names]
    keys = [[Path(own.uri(i)).name.partition(".")[0][-9:] for i in range(3)] for own in images]
    assert keys[0] == keys[1]
    assert [len(own) for own in images] == [3, 3]


def test_folders_given_in_python_are_named_below_the_folder_they_share(tmp_path: Path) -> None:
    source = pairs(tmp_path / "data")
    report = run(source, tmp_path / "shards", recipe("parquet", 10), engine=InlineEngine())
    assert report.tally.samples == COUNT
    (row, *_) = by_pyarrow(tmp_path / "shards")
    assert (row["meta"]["uri"], row["meta"]["images"]["right"]["uri"]) == (
        "left/0.jpg",
        "right/0.jpg",
    )
    report = update(source, tmp_path / "shards", remove=["left/2.jpg"], engine=InlineEngine())
    assert report.tally.samples == COUNT - 1


def test_new_pairs_are_appended_and_other_partners_are_refused(tmp_path: Path) -> None:
    shards = built(tmp_path, "webdataset")
    place = table(tmp_path / "data", COUNT + 1)
    report = run(spec(place), shards, recipe(samples=2), engine=InlineEngine(), append=True)
    assert report.tally.samples == COUNT + 1
    assert run(spec(place), shards, recipe(samples=2), engine=InlineEngine()).shards_now == 0
    swapped = replace(spec(place), image=("left=two", "right=one"))
    with pytest.raises(ConfigError, match="none of the job's 6 images"):
        run(swapped, shards, recipe(samples=2), engine=InlineEngine())
    renamed = replace(spec(place), image=("left=one", "other=two"))
    with pytest.raises(ConfigError, match="images of a sample: left, right -> left, other"):
        run(renamed, shards, recipe(samples=2), engine=InlineEngine())
    text = Path(place).read_text()
    Path(place).write_text(text.replace("right/4", "right/x").replace("right/3", "right/4"))
    with pytest.raises(ConfigError, match=r"2 images, .* have other ones"):
        run(spec(place), shards, recipe(samples=2), engine=InlineEngine())


def with_row(place: str, row: str) -> None:
    """Add a pair to the table."""
    with open(place, "a", encoding="utf-8") as file:
        file.write(f"{row}\n")


def left_names(shards: Path) -> list[str]:
    """The first image of each sample, in order; a row's number is not part of it."""
    names = plan_table(str(shards))["uri"].to_pylist()
    return [name.partition("#")[0] for name in names]


@pytest.mark.parametrize("row", ["left/0.jpg,right/3.jpg,a,9", "left/0.jpg,right/0.jpg,a,9"])
def test_images_of_a_job_are_used_in_a_new_pair(tmp_path: Path, row: str) -> None:
    shards = built(tmp_path, "webdataset")
    place = str(tmp_path / "data/t.csv")
    with_row(place, row)
    own = {"engine": InlineEngine()}
    report = run(spec(place), shards, recipe(samples=2), append=True, **own)
    assert report.tally.samples == COUNT + 1
    with_row(place, "left/9.jpg,right/3.jpg,b,9")
    (tmp_path / "data/left/9.jpg").write_bytes(jpeg(9, (40, 56)))
    assert update(spec(place), shards, add=True, **own).tally.samples == COUNT + 2
    with_row(place, row)
    report = update(spec(place), shards, add=True, drop_missing=True, **own)
    assert report.selection[0].startswith("1 image added: ")
    names = [*(f"left/{k}.jpg" for k in range(COUNT)), "left/0.jpg", "left/9.jpg", "left/0.jpg"]
    assert left_names(shards) == names


def test_one_of_two_pairs_with_the_same_image_is_removed(tmp_path: Path) -> None:
    place = table(tmp_path / "data")
    with_row(place, "left/3.jpg,right/1.jpg,a,9")
    own = {"engine": InlineEngine()}
    shards = tmp_path / "shards"
    run(spec(place), shards, recipe(samples=2), **own)
    update(spec(place), shards, remove=["left/3.jpg#row 5"], **own)
    names = plan_table(str(shards))["uri"].to_pylist()
    assert names == [f"left/{k}.jpg{'#row 3' * (k == 3)}" for k in range(COUNT)]


def test_pairs_that_are_gone_do_not_bar_the_same_images(tmp_path: Path) -> None:
    """A pair under another name is the only one that the job has, and was never withdrawn."""
    shards = built(tmp_path, "webdataset")
    place = tmp_path / "data/t.csv"
    own = {"engine": InlineEngine()}
    for old, new in (("left/0", "left/x"), ("left/x", "left/y")):
        (tmp_path / f"data/{old}.jpg").rename(tmp_path / f"data/{new}.jpg")
        place.write_text(place.read_text().replace(old, new))
        report = update(spec(str(place)), shards, add=True, drop_missing=True, **own)
        assert report.selection[0].startswith("1 image removed, 1 added: ")
        assert report.tally.samples == COUNT
    update(spec(str(place)), shards, remove=["left/y.jpg"], **own)
    (tmp_path / "data/left/y.jpg").rename(tmp_path / "data/left/z.jpg")
    place.write_text(place.read_text().replace("left/y", "left/z"))
    report = update(spec(str(place)), shards, add=True, drop_missing=True, **own)
    assert report.tally.samples == COUNT - 1  # what was withdrawn by name stays out


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("right/1", "right/2", r"\n  other images: .*left/1.jpg has other ones\n"),
        (",b,1", ",b,7", r"\n  captions or columns: .*left/1.jpg has other ones\n"),
    ],
)
def test_other_partners_are_told_from_other_columns(
    tmp_path: Path, old: str, new: str, found: str
) -> None:
    shards = built(tmp_path, "webdataset")
    place = tmp_path / "data/t.csv"
    place.write_text(place.read_text().replace(old, new))
    with pytest.raises(ConfigError, match=found) as error:
        run(spec(str(place)), shards, recipe(samples=2), engine=InlineEngine())
    assert str(error.value).count("has other ones") == 1


def test_another_content_of_the_second_image_is_found(tmp_path: Path) -> None:
    shards = built(tmp_path, "webdataset")
    other = bytearray(jpeg(102, (48, 64)))
    other[-20] ^= 1
    (tmp_path / "data/right/2.jpg").write_bytes(other)
    with pytest.raises(ConfigError, match=r"2\.jpg has another content"):
        run(spec(str(tmp_path / "data/t.csv")), shards, recipe(samples=2), engine=InlineEngine())


def test_a_condition_is_about_the_first_image(tmp_path: Path) -> None:
    made = replace(recipe(samples=10), limits=Limits(where="width < 60"))  # 56 and 64
    built(tmp_path, "webdataset", made)


@pytest.mark.parametrize(
    ("made", "option"),
    [
        (recipe("raw"), "format raw"),
        (replace(recipe(), choice=Selection(dedupe="exact")), "dedupe"),
        (Recipe(Scaling(None, "buckets", buckets=((24, 32), (32, 24)))), "buckets"),
        (Recipe(encoding=Encoding(keep_small=True)), "keep_small"),
        (Recipe(metadata=Metadata(extras="json:dumps")), "extras"),
    ],
)
def test_what_is_for_one_image_is_refused(tmp_path: Path, made: Recipe, option: str) -> None:
    source = pairs(tmp_path / "data", 2)
    with pytest.raises(ConfigError, match=f"{option} .* is for samples of one image"):
        run(source, tmp_path / "shards", made, engine=InlineEngine())
    assert not list((tmp_path / "shards").glob("shard-*"))


def test_names_and_places_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    place = table(tmp_path / "data", 2)
    for image, said in {
        ("left=one",): "one column, or two or more NAME=COLUMN",
        ("one", "two"): "one column, or two or more NAME=COLUMN",
        ("a=one", "a=two"): "one column, or two or more NAME=COLUMN",
    }.items():
        with pytest.raises(ConfigError, match=said):
            open_input(place, image=image)
    for name in ("Left", "key"):
        source = SourceSpec(place, image=(f"{name}=one", "right=two"))
        with pytest.raises(ConfigError, match=r"names of images|Together: names"):
            run(source, tmp_path / "shards", recipe(), engine=InlineEngine())
    run(spec(place), tmp_path / "a", recipe(), engine=InlineEngine())
    with pytest.raises(ConfigError, match="several images are columns"):
        open_input(f"{tmp_path}/a/*.tar", image=("left=left.jpg", "right=right.jpg"))
    with pytest.raises(ConfigError, match="holds samples of several images, left, right"):
        open_input(str(tmp_path / "a"))
    with pytest.raises(ConfigError, match="merge is for jobs of one image per sample"):
        merge([tmp_path / "a", tmp_path / "a"], tmp_path / "both")


@pytest.mark.parametrize("format", FORMATS)
def test_reports_read_the_shards(tmp_path: Path, format: str) -> None:
    job = job_of(built(tmp_path, format))
    assert plan_table(job.target.text)["uri"].to_pylist() == [f"left/{k}.jpg" for k in range(COUNT)]
    assert [cell.image is not None for cell in draw_cells(job, job.records[0], 2, 16)] == [
        True,
        True,
    ]
    assert verify(job).problems == ()


def test_shards_are_the_source_of_another_job(tmp_path: Path) -> None:
    shards = built(tmp_path, "parquet")
    source = SourceSpec(f"{shards}/*.parquet", image=("b=right", "a=left"), label="class")
    report = run(source, tmp_path / "again", recipe("parquet", 10), engine=InlineEngine())
    assert report.classes == ("a", "b")
    (found,) = (tmp_path / "again").glob("*.parquet")
    rows = pq.read_table(found).to_pylist()
    assert [size_of(rows[0][name]) for name in ("b", "a")] == [[32, 24], [34, 24]]
    assert json.loads(rows[0]["meta"])["uri"] == "shard-000000.parquet#0"


def test_a_repaired_pair_of_a_table_enters_a_new_shard(tmp_path: Path) -> None:
    rows = {"left": [jpeg(k) for k in range(4)], "right": [jpeg(k) for k in range(9, 13)]}
    place = str(tmp_path / "t.parquet")
    source = SourceSpec(place, image=("left=left", "right=right"))

    def write(images: list[bytes]) -> None:
        pq.write_table(pa.table({**rows, "right": images}), place)

    write([*rows["right"][:2], jpeg(11)[:200], jpeg(12)])
    made = recipe(samples=4)
    report = run(source, tmp_path / "shards", made, engine=InlineEngine())
    assert [(image.id, image.reason) for image in report.bad] == [(2, "truncated")]
    write(rows["right"])
    report = update(source, tmp_path / "shards", repair=True, engine=InlineEngine())
    assert (report.tally.samples, report.bad) == (4, ())
    for name, images in rows.items():
        read = ff.TarShards(f"{tmp_path / 'shards'}/*.tar", label=None, images=[f"{name}.jpg"])
        pq.write_table(pa.table({"image": images}), tmp_path / f"{name}.parquet")
        run(tmp_path / f"{name}.parquet", tmp_path / name, made, engine=InlineEngine())
        alone = ff.TarShards(f"{tmp_path / name}/*.tar", label=None).read(range(4))
        assert read.read(range(4)) == [alone[k] for k in (0, 1, 3, 2)]


@pytest.mark.parametrize(
    "format",
    [
        "webdataset",
        pytest.param("mds", marks=pytest.mark.slow),
        *(pytest.param(name, marks=pytest.mark.nightly) for name in ("tfrecord", "parquet")),
    ],
)
def test_shards_in_a_store_and_their_updates_are_those_of_a_folder(
    tmp_path: Path, format: str, s3: S3Server
) -> None:
    shards = built(tmp_path, format)
    source = spec(str(tmp_path / "data/t.csv"))
    s3.put("several/other", b"")
    own = {"engine": InlineEngine(), "target_storage": s3.options}
    store = f"s3://several/{format}"
    run(source, store, recipe(format, 2), **own)
    changes = {"remove": ["left/0.jpg"], "relabel": {"left/1.jpg": "b"}}
    update(source, store, **changes, **own)
    update(source, shards, **changes, engine=InlineEngine())
    target = open_target(store, s3.options, writes=False)
    names = [name for name in target.files() if "/" not in name]
    assert names
    assert {name: target.read(name) for name in names} == {
        name: (shards / name).read_bytes() for name in names
    }
