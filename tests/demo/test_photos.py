"""The made photographs: the same bytes every time, big enough, and broken only where they should
be.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from fastfeed.demo import photos

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> photos.DemoPhotos:
    return photos.make_photos(
        tmp_path_factory.mktemp("demo") / "photos", train_per_class=2, val_per_class=1
    )


def good_files(made: photos.DemoPhotos) -> list[Path]:
    return sorted(set(made.root.rglob("*.jpg")) - set(made.broken))


def test_every_class_has_training_and_validation_photographs(made: photos.DemoPhotos) -> None:
    assert made.classes == ("bridge", "dome", "lighthouse", "pyramid", "skyline")
    folders = {path.relative_to(made.root).parent.as_posix() for path in good_files(made)}
    assert folders == {f"{split}/{name}" for split in ("train", "val") for name in made.classes}
    assert len(good_files(made)) == made.images == 15


def test_good_photographs_decode_and_have_stock_size(made: photos.DemoPhotos) -> None:
    for path in good_files(made):
        with Image.open(path) as image:
            image.load()
            assert image.format == "JPEG"
            assert image.width * image.height >= 1_500_000
            # bits per pixel
            assert 0.8 < path.stat().st_size * 8 / (image.width * image.height) < 4


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_broken_files_do_not_decode(made: photos.DemoPhotos) -> None:
    assert len(made.broken) == 6
    for path in made.broken:
        assert path.is_relative_to(made.root / "train")
        with pytest.raises((OSError, Image.DecompressionBombError)), Image.open(path) as image:
            image.load()


def test_a_second_set_has_the_same_bytes(made: photos.DemoPhotos, tmp_path: Path) -> None:
    again = photos.make_photos(tmp_path / "photos", train_per_class=2, val_per_class=1)
    files = [path for path in made.root.rglob("*") if path.is_file()]
    assert len(files) == 15 + 6 + 1
    for path in files:
        assert path.read_bytes() == (again.root / path.relative_to(made.root)).read_bytes(), path


def test_photographs_differ_by_class_index_and_split() -> None:
    keys = [("train", "dome", 0), ("train", "dome", 1), ("train", "pyramid", 0), ("val", "dome", 0)]
    assert len({photos.photograph(*key) for key in keys}) == len(keys)


def test_smaller_photographs_are_of_the_same_kind(tmp_path: Path) -> None:
    small = photos.make_photos(tmp_path / "photos", 1, 0, shrink=4)
    sizes = set()
    for path in (small.root / "train").rglob("000.jpg"):
        with Image.open(path) as image:
            sizes.add(image.size)
    assert sizes <= {(w // 4, h // 4) for s in photos.SIZES for w, h in (s, s[::-1])}
    assert photos.make_photos(small.root, 1, 0, shrink=4) == small


def test_some_photographs_are_stored_turned() -> None:
    turned = [
        Image.open(io.BytesIO(photos.photograph("train", "skyline", i))).getexif()[0x0112]
        for i in range(12)
    ]
    assert set(turned) <= {1, 3, 6, 8}
    assert 1 in turned
    assert len(set(turned)) > 1


def test_a_complete_set_is_left_alone(made: photos.DemoPhotos) -> None:
    before = {path: path.stat().st_mtime_ns for path in made.root.rglob("*")}
    assert photos.make_photos(made.root, train_per_class=2, val_per_class=1) == made
    assert {path: path.stat().st_mtime_ns for path in made.root.rglob("*")} == before


def test_another_number_of_photographs_is_refused(made: photos.DemoPhotos) -> None:
    with pytest.raises(
        FileExistsError, match="holds something else; remove it or choose another folder"
    ):
        photos.make_photos(made.root, train_per_class=3, val_per_class=1)


@pytest.mark.parametrize("name", ["photos", "photos.partial"])
def test_a_folder_of_someone_else_is_never_touched(tmp_path: Path, name: str) -> None:
    mine = tmp_path / name / "holiday.txt"
    mine.parent.mkdir()
    mine.write_text("keep me")
    with pytest.raises(
        FileExistsError, match=f"{name} exists and holds something else; remove it or choose"
    ):
        photos.make_photos(tmp_path / "photos", train_per_class=1, val_per_class=1)
    assert mine.read_text() == "keep me"
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_stopped_run_starts_again(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []

    def stop(done: int, total: int) -> None:
        seen.append((done, total))
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        photos.make_photos(tmp_path / "photos", train_per_class=1, val_per_class=0, progress=stop)
    assert seen == [(1, 5), (2, 5)]
    assert not (tmp_path / "photos").exists()
    assert photos.make_photos(tmp_path / "photos", train_per_class=1, val_per_class=0).images == 5
    assert not (tmp_path / "photos.partial").exists()
