"""Native threads and the source's own `read`: the same batches and the same reasons, over damaged
files.
"""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import mosaic, records, shards, tables
from helpers.feeds import equal, feed
from helpers.photos import folder, jpeg

from fastfeed.faults import FaultPolicy
from fastfeed.feed.session import FeedSession
from fastfeed.ops import RandomResizedCrop
from fastfeed.runtime.extension import is_built
from fastfeed.sources import (
    ImageFolder,
    MDSShards,
    Mixture,
    Objects,
    RawShards,
    Source,
    Table,
    TarShards,
    TFRecords,
)
from fastfeed.sources.base import sample_locations
from fastfeed.storage import shard_files

pytestmark = pytest.mark.skipif(not is_built(), reason="the native extension is not built")

COUNTS = (5, 4, 6, 3)
FORMATS: dict[str, tuple[Any, Callable[..., Path], str]] = {
    "tar": (TarShards, shards.shard_folder, "tar"),
    "tfrecord": (TFRecords, records.record_folder, "tfrecord"),
    "mds": (MDSShards, mosaic.mds_folder, "mds"),
    "raw": (RawShards, mosaic.raw_folder, "npy"),
}


def read_in_python(source: Source) -> Source:
    """The same source, whose `read` is its own."""
    plain: Any = copy.copy(source)
    plain.read = source.read
    assert sample_locations(plain, np.arange(2)) is None
    return plain


def outcome(source: Source) -> tuple[list[Any], list[tuple[Any, ...]]]:
    """Batches of two epochs, and what is wrong with the samples."""
    policy = FaultPolicy("mask", max_share=1)
    batch = len(source) // (2 - len(source) % 2)
    with feed(source, [RandomResizedCrop(16)], batch=batch, seed=1, on_bad=policy) as data:
        batches = [batch for _ in range(2) for batch in data]
        bad = sorted((f.id, f.uri, f.stage, f.reason, f.detail, f.offset) for f in data.stats().bad)
    return batches, bad


def check(source: Source, reasons: set[str] | None = None) -> list[int]:
    """Compare; the ids of bad samples."""
    assert sample_locations(source, np.arange(len(source))) is not None
    batches, bad = outcome(source)
    expected_batches, expected = outcome(read_in_python(source))
    assert bad == expected
    assert equal(batches, expected_batches)
    if reasons is not None:
        assert {reason for _, _, _, reason, _, _ in bad} == reasons
    return [id for id, *_ in bad]


@pytest.fixture(params=FORMATS)
def made(request, tmp_path):
    """(source, its shards), indexed; no file is open."""
    kind, folder_of, suffix = FORMATS[request.param]
    root = folder_of(tmp_path / "data", COUNTS)
    return pickle.loads(pickle.dumps(kind(root))), sorted(
        path for path in root.glob(f"*.{suffix}") if "labels" not in path.name
    )


def patched(path: Path, at: int, data: bytes) -> None:
    """Change bytes, so that neither size nor time of change says so."""
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def images(root: Path, count: int) -> list[str]:
    """Names of photographs in a folder."""
    root.mkdir()
    for i in range(count):
        (root / f"{i}.jpg").write_bytes(jpeg(i))
    return [f"{i}.jpg" for i in range(count)]


def test_shards_as_they_were(made):
    assert check(made[0], set()) == []


def test_a_shard_is_gone(made):
    source, paths = made
    paths[1].unlink()
    assert check(source, {"not_found"}) == list(range(5, 9))


def test_a_shard_has_changed(made):
    source, paths = made
    paths[0].write_bytes(paths[1].read_bytes())
    os.utime(paths[2], ns=(0, 10**9))
    assert check(source, {"changed"}) == [*range(5), *range(9, 15)]


def test_a_shard_is_cut_off(made):
    source, paths = made
    os.truncate(paths[2], paths[2].stat().st_size // 2)
    assert set(check(source)) <= set(range(9, 15))


def test_a_shard_is_a_folder(made):
    source, paths = made
    paths[3].unlink()
    paths[3].mkdir()
    assert check(source) == list(range(15, 18))


def test_a_byte_is_another(made):
    source, paths = made
    for path in paths[:2]:
        patched(path, path.stat().st_size // 2, b"\xa5\x5a")
    check(source)


def test_headers_of_tars(tmp_path):
    root = shards.shard_folder(tmp_path, COUNTS)
    source = TarShards(root)
    offset = int(source._index.offsets[6])
    patched(tmp_path / "s-001.tar", offset - 400, b"7")  # in its header
    assert check(source, {"changed"}) == [6]


def test_headers_of_tars_without_a_checksum(tmp_path):
    """DALI's list of a shard has none: names and sizes are compared, when first read."""
    source = TarShards(shards.shard_folder(tmp_path, COUNTS))
    source._index.checks[:] = 0
    source._heads = source._index.checks.copy()
    patched(tmp_path / "s-001.tar", int(source._index.offsets[6]) - 512, b"another name")
    assert check(source, {"changed"}) == [6]
    rest = [i for i in range(18) if i != 6]
    assert source._heads[rest].all() and not source._heads[6]
    assert check(source, {"changed"}) == [6]
    # a header that still has this name
    patched(tmp_path / "s-002.tar", int(source._index.offsets[10]) - 400, b"7")
    assert 10 in check(source)


def test_samples_without_a_label_or_a_byte(tmp_path):
    members = shards.samples(range(8))
    members[4:6] = [("000002.jpg", jpeg(2))]
    members[11] = ("000006.jpg", b"")
    (tmp_path / "s.tar").write_bytes(shards.tar_of(members))
    assert check(TarShards(tmp_path / "s.tar"), {"label_missing", "empty"}) == [2, 6]


def test_examples_of_every_form(tmp_path):
    """Those that native threads do not understand are read by Python."""
    image, field = jpeg(7, (30, 40)), records.field
    label = records.entry("image/class/label", 1)
    value = records.feature(image)
    forms = [
        records.example(records.sample(0)),
        field(1, label + field(1, field(2, value) + field(1, b"image/encoded"))),  # value first
        field(
            1,
            label + records.entry("image/encoded", jpeg(8)) + records.entry("image/encoded", image),
        ),
        field(1, label) + field(1, records.entry("image/encoded", image)),  # in two parts
        records.example({"image/encoded": [image, jpeg(9)], "image/class/label": 2}),
        records.example({"image/encoded": [], "image/class/label": 2}),
        records.example({"image/encoded": b"", "image/class/label": 2}),
        records.example({"image/encoded": 5, "image/class/label": 2}),
        records.example({"image/encoded": 1.5, "image/class/label": 2}),
        records.example({"image/class/label": 2}),
        records.example(
            {"image/encoded_too": jpeg(3), "image/encoded": image, "image/class/label": 0}
        ),
        records.example(records.sample(1)),
    ]
    path = records.write(tmp_path / "s.tfrecord", forms)
    source = TFRecords(path)
    assert check(source, {"corrupt", "empty"}) == [4, 5, 6, 7, 8, 9]
    patched(path, path.stat().st_size - 100, b"\xff\xff\xff")
    assert check(source, {"corrupt", "empty"}) == [4, 5, 6, 7, 8, 9, 11]


def test_records_of_another_checksum(tmp_path):
    """A record that is intact, but another one than was indexed."""
    path = records.write(
        tmp_path / "s.tfrecord", [records.example(records.sample(i)) for i in range(4)]
    )
    source, data = TFRecords(path), path.read_bytes()
    source._index.checks[2] ^= 1
    assert check(source, {"changed"}) == [2] and data == path.read_bytes()


def test_files_that_a_table_names(tmp_path):
    names = images(tmp_path / "images", 8)
    absolute = str((tmp_path / "images" / names[3]).resolve())
    (tmp_path / "images" / "empty.jpg").touch()
    (tmp_path / "images" / "link.jpg").symlink_to(absolute)
    (tmp_path / "images" / "loop.jpg").symlink_to("loop.jpg")
    paths = [
        *names,
        absolute,
        "empty.jpg",
        "link.jpg",
        "loop.jpg",
        "missing.jpg",
        "",
        "../images/" + names[0],
        ".",
    ]
    labels = [str(i % 2) for i in range(len(paths))]
    labels[1] = ""
    table = tables.write(tmp_path / "images" / "t.csv", {"path": paths, "label": labels})
    check(Table(table, image="path", label="label"))
    check(Table(table, image="path", root=tmp_path / "images"))
    check(Table(table, image="path", root=f"{tmp_path}/images/"))
    assert (
        len(
            check(
                Table(table, image="path", root=tmp_path), {"not_found", "not_image", "not_allowed"}
            )
        )
        > 8
    )


def test_tables_of_several_folders(tmp_path):
    parts = []
    for name in "ab":
        names = images(tmp_path / name, 5)
        parts.append(
            tables.write(
                tmp_path / name / "t.csv", {"path": [*names, "gone.jpg"], "label": list("xyxyxx")}
            )
        )
    assert check(Table(parts, image="path", label="label"), {"not_found"}) == [5, 11]


def test_mixtures(tmp_path):
    photos = ImageFolder(folder(tmp_path / "photos", {"a": 4, "b": 4}))
    tar = TarShards(shards.shard_folder(tmp_path / "tar", COUNTS), classes=("a", "b", "c"))
    held = Table(
        tables.image_bytes(
            tmp_path / "t.parquet", [jpeg(i) for i in range(6)], 2, label=list("aabbab")
        ),
        image="image",
        label="label",
    )
    (tmp_path / "photos" / "a" / "0001.jpg").unlink()
    (tmp_path / "tar" / "s-001.tar").unlink()
    inner = Mixture([Objects(photos, [[[1, 2, 9, 8]]] * 8), tar])
    mixture = Mixture({"held": held, "rest": inner})
    addresses = sample_locations(mixture, np.array([0, 6, 15, 20]))
    assert addresses is not None
    assert [rows.tolist() for rows, _ in addresses.groups] == [[1], [2, 3]], (
        "Python reads what Parquet holds"
    )
    assert check(mixture, {"not_found"}) == [7, *range(19, 23)]


def test_more_shards_than_stay_open(tmp_path, monkeypatch):
    monkeypatch.setattr(shard_files, "_OPEN", 3)
    monkeypatch.setattr(shard_files, "_OPEN_AT_ONCE", 2)
    source = TarShards(shards.shard_folder(tmp_path, (1,) * 12))
    (tmp_path / "s-007.tar").unlink()
    (tmp_path / "s-003.tar").write_bytes((tmp_path / "s-004.tar").read_bytes())
    assert check(source, {"not_found", "changed"}) == [3, 7]
    addresses = source.addresses(np.arange(12))
    assert (addresses.handles < 0).sum() >= 9, "opened by path"
    pair = source.addresses(np.array([5, 5, 6]))
    assert (pair.handles >= 0).all() and pair.handles[0] == pair.handles[1]
    assert len(source._shards._files) <= 3


def test_few_bytes_at_a_time(made):
    """Python's part of a batch counts as well."""
    source = made[0]
    mixture = Mixture([source, read_in_python(source)])
    data = feed(mixture, [RandomResizedCrop(16)], batch=12, seed=1)
    FeedSession.of(data).producer._builder._loader.loaders[""].max_bytes = 4000
    with data, feed(mixture, [RandomResizedCrop(16)], batch=12, seed=1) as other:
        assert equal(list(data), list(other))


def test_a_shard_changes_under_a_running_feed(made):
    """What is read before is good, what is read after it is bad; moved away and back it is the
    same.
    """
    source, paths = made
    options = {
        "batch": 3,
        "shuffle": False,
        "prefetch": 1,
        "on_bad": FaultPolicy("mask", max_share=1),
    }
    with feed(source, [RandomResizedCrop(16)], **options) as data:
        batches = iter(data)
        first = next(batches)
        assert first.weights.all()
        away = paths[2].rename(paths[2].parent / "away")
        away.rename(paths[2])
        paths[3].write_bytes(paths[3].read_bytes()[:-1])
        rest = list(batches)
        assert [
            int(i) for batch in rest for i, w in zip(batch.ids, batch.weights, strict=True) if not w
        ] == [15, 16, 17]
        assert {f.reason for f in data.stats().bad} == {"changed"}
