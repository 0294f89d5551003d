"""Headers from parts of files: the same as from whole files, with few bytes read."""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.avifs import saved as avif
from helpers.heics import heic, picture
from helpers.jp2s import jp2
from helpers.jpegs import textured, with_orientation
from helpers.mosaic import mds_folder
from helpers.photos import folder, jpeg
from helpers.pngs import png
from helpers.remotes import uploaded
from helpers.s3 import S3Server
from helpers.shards import shard_folder
from helpers.tiffs import tiff
from PIL import Image

import fastfeed as ff
from fastfeed.decode.executor import Executor
from fastfeed.decode.formats.partial import Missing, PartialFile
from fastfeed.ops.decode import Decode
from fastfeed.sources import headers
from fastfeed.sources.base import stored_files

NOISE = np.random.default_rng(0).integers(0, 256, (120, 200, 3), np.uint8)


def encoded(format: str, **options: Any) -> bytes:
    with io.BytesIO() as file:
        Image.fromarray(NOISE).save(file, format, **options)
        return file.getvalue()


def turned() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


FILES = {
    "jpeg": lambda: encoded("JPEG", exif=turned()),
    "jpeg-turned": lambda: with_orientation(textured(60, 90), 8, True),
    "png": lambda: encoded("PNG", exif=turned()),
    "png-made": lambda: png(NOISE.astype(int)),
    "webp": lambda: encoded("WEBP", exif=turned()),
    "gif": lambda: encoded("GIF", comment=b"x" * 500),
    "bmp": lambda: encoded("BMP"),
    "ppm": lambda: encoded("PPM"),
    "tiff": lambda: tiff(NOISE),
    "tiff-pillow": lambda: encoded("TIFF", compression="tiff_lzw"),
    "jp2": lambda: jp2(NOISE),
    "avif": lambda: avif(NOISE),
    "heic": lambda: heic([picture(NOISE[:64, :64])]),
}


def damaged(blob: bytes, seed: int) -> bytes:
    """Cut off, or with bytes changed among the first."""
    random = np.random.default_rng(seed)
    if seed % 2:
        return blob[: int(random.integers(1, len(blob)))]
    changed = bytearray(blob)
    for at in random.integers(0, min(len(blob), 600), 3).tolist():
        changed[at] = int(random.integers(256))
    return bytes(changed)


@pytest.mark.parametrize("kind", FILES)
def test_parts_tell_what_whole_files_do(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(headers, "_HEAD", 64)
    monkeypatch.setattr("fastfeed.decode.formats.partial._LEAST", 16)
    try:
        blob = FILES[kind]()
    except ImportError as error:
        pytest.skip(str(error))
    blobs = [blob, *(damaged(blob, seed) for seed in range(60))]
    paths = []
    for i, each in enumerate(blobs):
        (tmp_path / f"{i:03}").write_bytes(each)
        paths.append(tmp_path / f"{i:03}")
    executor = Executor(Decode(), 2)
    known = headers.read_heads(executor, ff.Files(paths), np.arange(len(paths)))
    whole = executor.borrow(blobs, threading.Event())
    assert 0 in known
    wrong = {
        i: (header, None if i in whole.bad else whole.header(i))
        for i, header in known.items()
        if i in whole.bad
        or (header.height, header.width, header.format)
        != (whole.header(i).height, whole.header(i).width, whole.header(i).format)
    }
    executor.close()
    assert not wrong


def test_few_bytes_of_remote_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a").mkdir()
    noise = np.random.default_rng(0).integers(0, 256, (300, 400, 3), np.uint8)
    for i, suffix in enumerate(("jpg", "png", "webp", "gif", "bmp", "tiff", "jp2", "avif")):
        Image.fromarray(noise).save(tmp_path / f"a/{i}.{suffix}")
    (tmp_path / "a/1.png").write_bytes(png(noise.astype(int), piece=1 << 16))
    read: dict[str, int] = {}
    fetch = headers.Storage.fetch

    def counted(self: Any, spans: Any) -> Any:
        for span in spans:
            suffix = span.uri.rpartition(".")[2]
            read[suffix] = read.get(suffix, 0) + span.stop - span.start
        return fetch(self, spans)

    monkeypatch.setattr(headers.Storage, "fetch", counted)
    executor = Executor(Decode(), 2)
    source = ff.ImageFolder(uploaded(tmp_path))
    known = headers.read_heads(executor, source, np.arange(len(source)))
    executor.close()
    assert [(known[i].height, known[i].width) for i in range(8)] == [(300, 400)] * 8
    more = {"png": 2 * 4096 + 12}  # where its last chunk of pixels should be, and is
    sizes = {name: (16 << 10) + more.get(name, 0) for name in read}
    assert read == sizes


def test_an_object_store_sends_few_bytes(tmp_path: Path, s3: S3Server):
    photos = folder(tmp_path / "photos", {"a": 3, "b": 2}, (600, 800))
    shards = shard_folder(tmp_path / "shards", (2, 2))
    paths = s3.put_folder("heads/photos", photos)
    s3.put_folder("heads/shards", shards)
    storage = ff.Storage(s3.options)
    listed = ff.ImageFolder("s3://heads/photos", storage=storage)
    named = ff.Files([f"s3://{path}" for path in paths], storage=storage)
    members = ff.TarShards("s3://heads/shards", storage=storage)
    sizes = [(photos.parent / path.partition("/")[2]).stat().st_size for path in paths]
    assert min(sizes) > 16 << 10
    s3.clear_log()
    assert len(ff.where(listed, min_side=600)) == 5
    assert [entry.sent for entry in s3.log()] == [16 << 10] * 5
    s3.clear_log()
    assert len(ff.where(named, min_side=600)) == 5  # of which a request each asks for the size
    sent = [(entry.method, entry.sent) for entry in s3.log()]
    assert sorted(sent) == [("GET", 16 << 10)] * 5 + [("HEAD", 0)] * 5
    s3.clear_log()
    assert len(ff.where(members, min_side=1)) == 4
    lengths = [len(image) for image in members.read(range(4))]
    assert sum(entry.sent for entry in s3.log()[:4]) == sum(min(n, 16 << 10) for n in lengths)


def photos_of(root: Path) -> str:
    return uploaded(folder(root / "photos", {"a": 3, "b": 2}))


def shards_of(root: Path) -> ff.TarShards:
    return ff.TarShards(uploaded(shard_folder(root / "shards", (3, 2))), classes=tuple("abc"))


def table_of(root: Path) -> ff.Table:
    paths = [f"{name}/{i:04}.jpg" for name, i in (("b", 1), ("a", 0), ("b", 0))]
    rows = {"path": paths, "label": ["x", "y", "x"]}
    return ff.Table(rows, image="path", root=photos_of(root), label="label")


def coco_of(root: Path) -> ff.Objects:
    place = photos_of(root)
    images = [{"id": i, "file_name": f"a/{i:04}.jpg"} for i in range(3)]
    boxes = [{"image_id": 1, "category_id": 1, "bbox": [1, 2, 8, 8]}]
    found = {"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "cat"}]}
    (root / "instances.json").write_text(json.dumps(found))
    return ff.Objects.coco(place, root / "instances.json")


REMOTE: dict[str, Callable[[Path], Any]] = {
    "ImageFolder": lambda root: ff.ImageFolder(photos_of(root)),
    "Files": lambda root: ff.Files([f"a/{i:04}.jpg" for i in range(3)], root=photos_of(root)),
    "Table": table_of,
    "TarShards": shards_of,
    "MDSShards": lambda root: ff.MDSShards(uploaded(mds_folder(root / "mds", (3, 2)))),
    "Mixture": lambda root: ff.Mixture(
        {"photos": ff.ImageFolder(photos_of(root)), "shards": shards_of(root)}, [0.5, 0.5]
    ),
    "Objects": lambda root: ff.Objects(ff.ImageFolder(photos_of(root)), [[]] * 5),
    "Objects.coco": coco_of,
    "Subset": lambda root: ff.take(ff.ImageFolder(photos_of(root)), [4, 0, 2]),
    "Together": lambda root: ff.Together({"left": shards_of(root), "right": shards_of(root)}),
}


@pytest.mark.parametrize("kind", REMOTE)
def test_byte_ranges_hold_what_is_read(kind: str, tmp_path: Path):
    source = REMOTE[kind](tmp_path)
    ids = np.arange(len(source))[::-1]
    read = [storage.read([span])[0] for storage, span in stored_files(source, ids)]
    assert read == source.read(ids.tolist())


def test_what_has_no_byte_range(tmp_path: Path):
    place = photos_of(tmp_path)
    local = str(tmp_path / "photos/a/0000.jpg")
    inline = "data:image/jpeg;base64," + base64.b64encode(jpeg(1, (8, 8))).decode()
    rows = {
        "path": [local, inline, f"{place}/a/0001.jpg", f"{place}/a/0002.jpg"],
        "label": ["x", "x", "x", None],
    }
    table = ff.Table(rows, image="path", label="label")
    files = stored_files(table, np.arange(4))
    assert [file is not None for file in files] == [False, False, True, False]
    mixed = ff.Mixture({"near": ff.ImageFolder(tmp_path / "photos"), "far": ff.ImageFolder(place)})
    files = stored_files(mixed, np.arange(10))
    assert [file is not None for file in files] == [False] * 5 + [True] * 5

    class Changed(ff.ImageFolder):
        def read(self, ids: Any) -> list[Any]:
            return super().read(ids)

    assert stored_files(Changed(place), np.arange(5)) == [None] * 5


@pytest.mark.parametrize("size", (500, 20_000))
def test_a_remote_file_that_is_no_image_is_left_out(size: int, tmp_path: Path):
    (tmp_path / "a").mkdir()
    Image.fromarray(NOISE).save(tmp_path / "a/0.png")
    (tmp_path / "a/1.png").write_bytes(np.random.default_rng(0).bytes(size))
    kept = ff.where(ff.ImageFolder(uploaded(tmp_path / "a"), labeled=False), min_side=1)
    assert [kept.uri(i).rpartition("/")[2] for i in range(len(kept))] == ["0.png"]


def test_parts_of_a_file_that_touch_are_one():
    blob = bytes(range(100))
    file = PartialFile(100, blob[:10])
    for start, stop in ((40, 50), (80, 90), (30, 40), (45, 85), (10, 12)):
        file.add(start, blob[start:stop])
    assert file[30:90] == blob[30:90]
    assert file[:12] == blob[:12]
    with pytest.raises(Missing):
        file[29:90]
    file.add(12, blob[12:30])
    file.add(90, blob[90:])
    assert file[:] == blob


@pytest.mark.parametrize("kind", ("zip", *FILES))
def test_reads_of_parts_bring_new_bytes_and_end(kind: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fastfeed.decode.formats.partial._LEAST", 1)
    try:
        blob = FILES.get(kind, lambda: b"PK\3\4" + bytes(5000))()
    except ImportError as error:
        pytest.skip(str(error))
    for head in (16, 64, len(blob)):
        file = PartialFile(len(blob), blob[:head])
        known = set(range(head))
        spans = []
        while (span := file.missing()) not in (None, (0, len(blob))):
            new = {*range(*span)}
            assert new - known
            known |= new
            file.add(span[0], blob[slice(*span)])
            spans.append(span)
        assert len(spans) <= 16
