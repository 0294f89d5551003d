"""Catalogs of look-alikes: which copy stays, and how they are split.

What comes of it is in the report.
"""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.preprocess.commands import preprocess
from helpers.preprocess.surveying import make_survey, saved, scene
from helpers.small_jobs import InlineEngine

from fastfeed.errors import ConfigError
from fastfeed.preprocess import Limits, Recipe, Scaling, Selection, run
from fastfeed.preprocess.planning.select import PlannedGroups, select
from fastfeed.preprocess.planning.shares import sentences


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    """Three photographs of 200 x 150 pixels, and before them in the order of names their
    thumbnails, and PNGs.
    """
    for k in range(3):
        image = scene(k)
        files = {
            f"a/thumb{k}.jpg": saved(image.resize((80, 60)), quality=80),
            f"b/coarse{k}.jpg": saved(image, quality=50),
            f"c/full{k}.jpg": saved(image, quality=95),
            f"e/large{k}.png": saved(image.resize((240, 180)), "PNG"),
        }
        for name, content in files.items():
            (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "photos" / name).write_bytes(content)
    return tmp_path / "photos"


NEAR = Selection(dedupe="near", distance=8)


def kept(photos: Path, limits: Limits, choice: Selection = NEAR) -> tuple[set[str], Any]:
    target = photos.parent / f"shards{len(list(photos.parent.iterdir()))}"
    recipe = Recipe(Scaling(32), limits=limits, choice=choice)
    report = run(photos, target, recipe, engine=InlineEngine())
    bad = {Path(bad.uri).name for bad in report.bad}
    dropped = [
        json.loads(line) for line in (target / "__job/duplicates.jsonl").read_text().splitlines()
    ]
    left = {Path(row["dropped"]).name for row in dropped} | bad
    return {path.name for path in photos.rglob("*.*")} - left, report


def test_of_near_copies_the_one_of_most_pixels_stays_then_of_most_bytes(copies: Path) -> None:
    names, report = kept(copies, Limits())
    assert names == {f"large{k}.png" for k in range(3)} and report.tally.samples == 3
    for path in copies.rglob("*.png"):
        path.unlink()
    assert kept(copies, Limits())[0] == {f"full{k}.jpg" for k in range(3)}
    for path in copies.rglob("full*"):
        path.unlink()
    assert kept(copies, Limits())[0] == {f"coarse{k}.jpg" for k in range(3)}


def test_the_newest_file_stays_where_that_is_wanted(copies: Path) -> None:
    for at, name in enumerate(("c/full", "e/large", "a/thumb", "b/coarse")):
        for path in copies.glob(f"{name}*"):
            os.utime(path, (1e9, 1e9 + at))
    choice = Selection(dedupe="near", distance=8, keep="newest")
    assert kept(copies, Limits(), choice)[0] == {f"coarse{k}.jpg" for k in range(3)}
    tar = copies.parent / "copies.tar"
    with tarfile.open(tar, "w") as file:
        for path in sorted(copies.rglob("*.*")):
            file.add(path, path.name)
    with pytest.raises(ConfigError, match=r'keep="newest" needs times of change.*copies\.tar'):
        kept(tar, Limits(), choice)


@pytest.mark.parametrize(
    "limits",
    [
        Limits(formats=("jpeg",)),
        Limits(max_pixels=200 * 150),
        Limits(formats=("jpeg",), min_side=100),
    ],
)
def test_what_the_recipe_excludes_is_never_the_one_that_stays(copies: Path, limits: Limits) -> None:
    names, report = kept(copies, limits)
    assert names == {f"full{k}.jpg" for k in range(3)} and report.tally.samples == 3


def chosen(
    hashes: list[int], val: float = 0.05, dedupe: str = "none", labels: np.ndarray | None = None
) -> tuple[PlannedGroups, dict[str, np.ndarray]]:
    classes = np.full(len(hashes), -1) if labels is None else labels
    recipe = Recipe(choice=Selection(val=val, dedupe=dedupe))
    found = select(recipe, len(hashes), classes, make_survey(range(len(hashes)), hashes), str)
    return found, dict(found.groups)


def chain(count: int) -> list[int]:
    """Hashes each of which differs from the next one in three bits, and few others in fewer than
    five.
    """
    rng, bits = np.random.default_rng(0), 0x5A5A5A5A5A5A5A5A
    made = []
    for _ in range(count):
        made.append(bits)
        for bit in rng.choice(64, 3, replace=False):
            bits ^= 1 << int(bit)
    return made


def crowd(count: int) -> list[int]:
    """Hashes that differ in four bits at most."""
    pairs = [(i, j) for i in range(64) for j in range(i)][:count]
    return [0x123456789ABCDEF0 ^ (1 << i) ^ (1 << j) for i, j in pairs]


def bursts(count: int, each: int) -> list[int]:
    centers = np.random.default_rng(1).integers(0, 2**64, count, dtype=np.uint64).tolist()
    return [center ^ (1 << k) for center in centers for k in range(each)]


@pytest.mark.parametrize(
    "hashes", [chain(2000), crowd(2000), chain(1000) + crowd(1000)], ids=["chain", "crowd", "both"]
)
@pytest.mark.parametrize("val", [0.05, 0.3])
def test_a_catalog_of_look_alikes_is_split_as_requested(hashes: list[int], val: float) -> None:
    found, groups = chosen(hashes, val)
    share = len(groups["val"]) / len(hashes)
    assert 0.6 * val < share < 1.4 * val
    assert sum(found.shares["images"].values()) == len(hashes)
    assert found.shares["wanted"]["val"] == val
    in_val = set(groups["val"].tolist())
    of_train = np.array([hashes[i] for i in groups["train"].tolist()], np.uint64)
    parted = sum(
        bool((np.bitwise_count(of_train ^ np.uint64(hashes[i])) <= 4).any()) for i in in_val
    )
    assert found.shares["look_alikes"] == parted > 0


def test_bursts_stay_whole() -> None:
    found, groups = chosen(bursts(150, 6), 0.2)
    sides = [
        {i in set(groups["val"].tolist()) for i in range(6 * k, 6 * k + 6)} for k in range(150)
    ]
    assert all(len(side) == 1 for side in sides) and "look_alikes" not in found.shares


def test_without_near_duplicates_nothing_has_to_stay_together() -> None:
    found, groups = chosen(chain(2000), 0.3, "near")
    count = len(groups["train"]) + len(groups["val"])
    assert count < 2000 and "look_alikes" not in found.shares
    assert abs(len(groups["val"]) - 0.3 * count) < 4 * (0.21 * count) ** 0.5


def test_more_photographs_move_none_of_a_catalog_that_is_cut() -> None:
    hashes, more = (
        chain(1500),
        np.random.default_rng(5).integers(0, 2**64, 500, dtype=np.uint64).tolist(),
    )
    before, after = (set(chosen(x, 0.3)[1]["val"].tolist()) for x in (hashes, hashes + more))
    assert before == {i for i in after if i < 1500}


def test_the_report_has_shares_by_class_and_duplicates_of_another_label(
    copies: Path, tmp_path: Path
) -> None:
    options = "--size 32 --dedupe near --distance 8 --val 0.15 -w 1"
    words = (str(copies), str(tmp_path / "shards"), *options.split())
    code, text = preprocess(*words)
    assert code == 0
    assert "9 near duplicates had another label than the one that is kept: " in text
    manifest = json.loads((tmp_path / "shards/__job/manifest.json").read_text())
    shares = manifest["shares"]
    assert shares["other_label"] == {"duplicate_near": 9}
    images = shares["images"]
    assert list(images) == ["train", "val"]
    assert shares["by_label"] == [[3, images["train"], images["val"]]]
    assert f"val/ has {images['val']} of 3 images" in text and "of 0.15 requested" in text
    assert "off by more than a fifth" in text and "--split-seed" in text
    again = preprocess(*words)
    assert again[0] == 0 and "val/ has" in again[1]


def test_classes_that_are_off_are_named() -> None:
    shares = {
        "wanted": {"test": 0.1, "train": 0.8, "val": 0.1},
        "images": {"test": 200, "train": 1600, "val": 200},
        "by_label": [[0, 100, 790, 110], [1, 98, 742, 60], [2, 2, 68, 30], [3, 0, 4, 1]],
    }
    test, train, val, of_test, of_val = sentences(shares, ("cat", "dog"))
    assert test == "test/ has 200 of 2,000 images: 10.0%, of 0.1 requested"
    assert train == "train/ has 1,600 of 2,000 images: 80.0%, of 0.8 requested"
    assert val.startswith("val/ has 200 of")
    off = "of 4 classes the share of"
    assert of_test == f"in 1 {off} test/ is off by more than a fifth: 2 2.0%"
    assert of_val == f"in 2 {off} val/ is off by more than a fifth: dog 6.7%, 2 30.0%"
