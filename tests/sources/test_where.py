"""Samples chosen by columns, by sizes of images, and by functions of both."""

from __future__ import annotations

import io
import tarfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.feeds import NUMBERS
from helpers.mosaic import mds_folder
from helpers.photos import jpeg
from helpers.pngs import png
from helpers.remotes import uploaded
from helpers.shards import shard_folder
from helpers.tables import write
from PIL import Image

import fastfeed as ff
from fastfeed.decode.executor import Executor
from fastfeed.errors import ConfigError, SourceError
from fastfeed.faults import Failure
from fastfeed.sources import headers

SIZES = [(40, 56), (10, 80), (64, 64), (30, 31), (200, 100)]


@pytest.fixture
def images(tmp_path: Path) -> ff.ImageFolder:
    (tmp_path / "a").mkdir()
    for i, size in enumerate(SIZES):
        (tmp_path / "a" / f"{i}.jpg").write_bytes(jpeg(i, size))
    return ff.ImageFolder(tmp_path)


def numbers(part: Any) -> list[int]:
    """The images that it has, by the number in their names."""
    return [int(uri.rpartition("/")[2].partition(".")[0]) for uri in part.uris(range(len(part)))]


def test_sizes(images: ff.ImageFolder):
    part = ff.where(images, min_side=30, max_side=100, max_aspect=1.2)
    assert numbers(part) == [2, 3]
    assert part.notes == [
        "left out 3 of 5: 1 by min_side=30; 1 by max_side=100; 1 by max_aspect=1.2"
    ]
    assert str(part).startswith(f"2 images (where) of ImageFolder('{images.root}'): 5 images")
    assert ff.where(images, min_side=1).notes == []


def test_headers_are_read_once(images: ff.ImageFolder, monkeypatch: pytest.MonkeyPatch):
    first = ff.where(images, min_side=30)
    monkeypatch.setattr(headers, "Executor", None)
    assert numbers(ff.where(ff.ImageFolder(images.root), max_side=60)) == [0, 3]
    assert numbers(ff.where(ff.ImageFolder(images.root), min_side=30)) == numbers(first)


def test_a_changed_source_is_read_again(images: ff.ImageFolder):
    assert numbers(ff.where(images, min_side=64)) == [2, 4]
    (Path(images.root) / "a" / "0.jpg").write_bytes(jpeg(9, (70, 70)))
    assert numbers(ff.where(ff.ImageFolder(images.root), min_side=64)) == [0, 2, 4]


def test_sizes_are_as_displayed(images: ff.ImageFolder):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (20, 10)).save(Path(images.root) / "a" / "5.jpg", exif=exif)
    Image.new("RGB", (20, 10)).save(Path(images.root) / "a" / "6.png")
    Image.new("RGB", (20, 10)).save(Path(images.root) / "a" / "7.gif")
    seen: dict[int, tuple[Any, ...]] = {}

    def note(columns: dict[str, Any], header: Any) -> bool:
        seen[len(seen)] = (header.height, header.width, header.format, columns["label"])
        return header.format == "PNG"

    part = ff.where(ff.ImageFolder(images.root), per_sample=note)
    assert numbers(part) == [6] and part.notes == ["left out 7 of 8: 7 by per_sample"]
    assert seen[4] == (200, 100, "JPEG", 0)
    assert seen[5] == (20, 10, "JPEG", 0)
    assert seen[7] == (10, 20, "GIF", 0)


def test_images_without_a_header_are_left_out(images: ff.ImageFolder):
    bad = Path(images.root) / "a" / "2.jpg"
    bad.write_bytes(b"<html>404</html>")
    (Path(images.root) / "a" / "3.jpg").write_bytes(b"")
    part = ff.where(ff.ImageFolder(images.root), max_aspect=100)
    assert numbers(part) == [0, 1, 4]
    assert part.notes[0].startswith(
        f"left out 2 of 5: 2 by unreadable headers, such as {bad}: not_image "
    )


def with_segment(data: bytes, size: int) -> bytes:
    """A JPEG with a segment of notes before its frame."""
    return data[:2] + b"\xff\xfe" + (size + 2).to_bytes(2, "big") + bytes(size) + data[2:]


def test_only_the_first_bytes_are_read_where_they_hold_the_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    noise = np.random.default_rng(0).integers(0, 256, (200, 300, 3), np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6
    (tmp_path / "a").mkdir()
    for i in range(3):
        Image.fromarray(noise).save(tmp_path / f"a/{i}.jpg", quality=95, exif=exif)
    late = with_segment((tmp_path / "a/0.jpg").read_bytes(), 40_000)
    (tmp_path / "a/3.jpg").write_bytes(late)
    whole = png(noise.astype(int), piece=1 << 16)
    turn = exif.tobytes()[6:]
    chunk = b"eXIf" + turn
    late_exif = len(turn).to_bytes(4, "big") + chunk + zlib.crc32(chunk).to_bytes(4, "big")
    (tmp_path / "a/4.png").write_bytes(whole[:-12] + late_exif + whole[-12:])
    sizes = [path.stat().st_size for path in sorted((tmp_path / "a").iterdir())]
    read: list[int] = []

    class Counting(Executor):
        def read(self, *arguments: Any) -> Any:
            samples = super().read(*arguments)
            read.append(samples.read_bytes)
            return samples

    monkeypatch.setattr(headers, "Executor", Counting)
    found = headers.read_headers(ff.ImageFolder(tmp_path))
    assert found.sizes.tolist() == [[300, 200]] * 5
    assert [found.names[k] for k in found.formats] == ["JPEG"] * 4 + ["PNG"]
    assert min(sizes) > 2 * (16 << 10)
    assert read == [5 * (16 << 10)]
    tar = tar_of(tmp_path / "a.tar", sorted((tmp_path / "a").iterdir()))
    assert headers.read_headers(ff.TarShards(tar, label=None)).sizes.tolist() == [[300, 200]] * 5
    assert read[1:] == [5 * (16 << 10), 2 * 4096, 4096, 50]


def tar_of(path: Path, files: list[Path]) -> Path:
    with tarfile.open(path, "w") as archive:
        for file in files:
            archive.add(file, file.name)
    return path


@pytest.mark.parametrize("kind", ["tar", "mds", "remote", "raw", "subset"])
def test_every_way_to_read(kind: str, tmp_path: Path):
    sources = {
        "tar": lambda: ff.TarShards(shard_folder(tmp_path / "t", (4, 4))),
        "mds": lambda: ff.MDSShards(mds_folder(tmp_path / "m", (4, 4))),
        "remote": lambda: ff.TarShards(uploaded(shard_folder(tmp_path / "t", (4, 4)))),
        "raw": lambda: ff.Arrays(NUMBERS),
        "subset": lambda: ff.take(ff.TarShards(shard_folder(tmp_path / "t", (4, 4))), [1, 7, 2]),
    }
    source = sources[kind]()
    sizes = headers.read_headers(source).sizes
    expected = [
        image.shape[:2]
        if isinstance(image, np.ndarray)
        else Image.open(io.BytesIO(image)).size[::-1]
        for image in source.read(range(len(source)))
    ]
    assert sizes.tolist() == [list(size) for size in expected]


def test_storage_that_fails_is_no_condition(
    images: ff.ImageFolder, monkeypatch: pytest.MonkeyPatch
):
    (Path(images.root) / "a" / "5.jpg").write_bytes(jpeg(5, (12, 34)))
    images = ff.ImageFolder(images.root)

    def down(ids: Any) -> list[Any]:
        return [Failure(i, images.uri(i), "read", "timeout") for i in ids]

    monkeypatch.setattr(images, "read", down)
    with pytest.raises(SourceError, match="sizes of images are not known, as storage failed at"):
        ff.where(images, min_side=1)
    monkeypatch.undo()
    assert len(ff.where(images, min_side=1)) == 6


def test_columns(tmp_path: Path):
    values = {
        "path": [f"{i}.jpg" for i in range(4)],
        "year": [1990, 2001, 2010, 1980],
        "by": list("abca"),
    }
    source = ff.Table(
        write(tmp_path / "t.csv", values), image="path", label="by", columns=["year", "by"]
    )
    assert numbers(ff.where(source, lambda c: (c["year"] > 1985) & (c["by"] != "b"))) == [0, 2]
    assert numbers(source.where(lambda c: c["label"] == 0)) == [0, 3]
    tar = ff.TarShards(shard_folder(tmp_path / "t", (4, 4)), columns=["cls"])
    assert len(ff.where(tar, lambda c: c["cls"] == "1")) == 3


REFUSED = [
    ({}, "pass a condition on columns, min_side, max_side, max_aspect or per_sample, got none"),
    ({"min_side": 0}, "min_side must be at least 1, got 0; leave it out for any"),
    ({"max_aspect": 0.5}, "max_aspect must be at least 1, got 0.5"),
    ({"min_side": 1000}, "no sample is kept, left out 5 of 5: 5 by min_side=1000; loosen"),
    ({"condition": lambda c: True}, "condition must return bool (5,), one per sample, got bool[]"),
    (
        {"condition": lambda c: c["label"]},
        "got int64[5]; compare whole columns, and join by & and |",
    ),
    (
        {"condition": lambda c: c["label"] > 0 and c["label"] < 3},
        "condition asks a whole column for one truth value; compare whole columns, and join by &",
    ),
    (
        {"condition": lambda c: c["year"] > 1},
        "no column 'year'; the source has label; pass columns=",
    ),
    ({"per_sample": lambda c, h: 1}, "per_sample must return True or False, got 1 for "),
]


@pytest.mark.parametrize(("options", "text"), REFUSED, ids=[text[:50] for _, text in REFUSED])
def test_refuses(options: Any, text: str, images: ff.ImageFolder):
    with pytest.raises(ConfigError) as error:
        ff.where(images, **options)
    assert text in str(error.value)
