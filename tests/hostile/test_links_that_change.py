"""Folders that are replaced by links to others after they were looked at: what is read lies where
it may.
"""

from __future__ import annotations

import io
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.tables import write
from PIL import Image

import fastfeed as ff
from fastfeed.sources.listing.listing import list_images
from fastfeed.system.descriptors import open_file
from fastfeed.system.within import Within


def png(color: tuple[int, int, int], size: tuple[int, int]) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, color).save(file, "PNG")
    return file.getvalue()


OWN, SECRET = png((1, 2, 3), (32, 32)), png((200, 0, 0), (32, 32))


def table(root: Path, **options: Any) -> ff.sources.Source:
    return ff.Table(write(root / "t.csv", {"path": ["d/c.png", "ok.png"]}), image="path", **options)


def relative_table(root: Path, **options: Any) -> ff.sources.Source:
    os.chdir(root)
    return ff.Table(write(Path("t.csv"), {"path": ["d/c.png", "ok.png"]}), image="path", **options)


def absolute_table(root: Path, **options: Any) -> ff.sources.Source:
    return ff.Table(
        write(root / "t.csv", {"path": [f"{root}/d/c.png", f"{root}/ok.png"]}),
        image="path",
        **options,
    )


def coco(root: Path, **options: Any) -> ff.sources.Source:
    images = [{"id": i, "file_name": name} for i, name in enumerate(("d/c.png", "ok.png"))]
    content = {"images": images, "annotations": [], "categories": [{"id": 1, "name": "a"}]}
    (root / "c.json").write_text(json.dumps(content))
    return ff.Objects.coco(root, root / "c.json", **options).source


def folder(root: Path, allow_path: Any = (), **options: Any) -> ff.sources.Source:
    return ff.ImageFolder(
        root, labeled=False, allow_links=[str(path) for path in allow_path], **options
    )


def listed(root: Path, **options: Any) -> ff.sources.Source:
    if not Path(f"{root}.csv").exists():
        list_images(str(root), f"{root}.csv", storage=ff.sources.Storage())
    return folder(root, listing=f"{root}.csv", **options)


SOURCES = [table, relative_table, absolute_table, coco, folder, listed]


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    monkeypatch.chdir(tmp_path)
    root, secret = tmp_path / "root", tmp_path / "secret"
    for place in (root / "d", secret):
        place.mkdir(parents=True)
    (root / "d" / "c.png").write_bytes(OWN)
    (root / "ok.png").write_bytes(OWN)
    (secret / "c.png").write_bytes(SECRET)
    return root, secret


def swap(root: Path, secret: Path) -> None:
    (root / "d").rename(root.parent / "moved")
    (root / "d").symlink_to(secret)


def fed(source: ff.sources.Source) -> tuple[set[int], list[str]]:
    """Values of red that native threads make of it, and reasons of bad samples."""
    feed = ff.Feed(
        source,
        [ff.Decode(), ff.Resize((32, 32))],
        batch=1,
        shuffle=False,
        threads=1,
        on_bad="mask",
        tail="pad",
    )
    reds: set[int] = set()
    for batch in feed:
        reds |= {*np.unique(np.asarray(batch.images)[..., 0]).tolist()}
    return reds, [failure.reason for failure in feed.stats().bad]


@pytest.mark.parametrize("make", SOURCES, ids=lambda make: make.__name__)
def test_a_folder_becomes_a_link(
    make: Callable[..., ff.sources.Source], places: tuple[Path, Path]
) -> None:
    root, secret = places
    source = make(root)
    assert source.read([0, 1]) == [OWN, OWN]
    assert source.addresses(np.arange(2)) is not None  # type: ignore[attr-defined]
    swap(root, secret)
    names = [source.uri(i) for i in range(2)]
    bad = names.index(next(name for name in names if "c.png" in name))
    for reader in (source, pickle.loads(pickle.dumps(source))):
        read = reader.read([0, 1])
        assert read[1 - bad] == OWN and read[bad].reason == "not_allowed", read
        assert "a link" in read[bad].detail
    reds, reasons = fed(source)
    assert 200 not in reds and reasons == ["not_allowed"]


@pytest.mark.parametrize("make", SOURCES, ids=lambda make: make.__name__)
def test_a_link_to_an_allowed_folder(
    make: Callable[..., ff.sources.Source], places: tuple[Path, Path]
) -> None:
    root, secret = places
    source = make(root, allow_path=[secret])
    swap(root, secret)
    assert sorted(source.read([0, 1])) == sorted([OWN, SECRET])
    reds, reasons = fed(source)
    assert {1, 200} <= reds and not reasons


def test_where_the_system_says_nothing(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, secret = places
    monkeypatch.setattr("fastfeed.system.within._file_path", lambda fd: "")
    within = Within([str(root)])
    for path, expected in (
        (root / "ok.png", True),
        (secret / "c.png", False),
        (root / "d" / ".." / "ok.png", True),
    ):
        fd = open_file(path)
        assert within.holds(fd, str(path)) is expected
        os.close(fd)
    fd = open_file(secret / "c.png")
    assert not within.holds(fd, str(root / "ok.png"))  # another file has its name by now
    os.close(fd)
