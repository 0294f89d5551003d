"""Headers from parts of files: the same as from whole files, with few bytes read."""

from __future__ import annotations

import io
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.avifs import saved as avif
from helpers.heics import heic, picture
from helpers.jp2s import jp2
from helpers.jpegs import textured, with_orientation
from helpers.pngs import png
from helpers.remotes import uploaded
from helpers.tiffs import tiff
from PIL import Image

import fastfeed as ff
from fastfeed.decode.executor import Executor
from fastfeed.ops.decode import Decode
from fastfeed.sources import heads

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
    monkeypatch.setattr(heads, "_HEAD", 64)
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
    known = heads.read_heads(executor, ff.Files(paths), np.arange(len(paths)))
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
    read: dict[str, int] = {}
    fetch = heads.Storage.fetch

    def counted(self: Any, spans: Any) -> Any:
        for span in spans:
            suffix = span.uri.rpartition(".")[2]
            read[suffix] = read.get(suffix, 0) + span.stop - span.start
        return fetch(self, spans)

    monkeypatch.setattr(heads.Storage, "fetch", counted)
    executor = Executor(Decode(), 2)
    source = ff.ImageFolder(uploaded(tmp_path))
    known = heads.read_heads(executor, source, np.arange(len(source)))
    executor.close()
    assert [(known[i].height, known[i].width) for i in range(8)] == [(300, 400)] * 8
    more = {"png": 2 * 4096 + 12}  # where its last chunk of pixels should be, and is
    sizes = {name: (16 << 10) + more.get(name, 0) for name in read}
    assert read == sizes
