"""Files of coming batches, warm and cold: no other file is touched."""

import os

import numpy as np
import pytest
from helpers.photos import folder
from helpers.tars import entry

import fastfeed as ff
from fastfeed.proof.measure.page_cache import FilePages
from fastfeed.system import page_cache


def held(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        return page_cache.is_held(fd)
    finally:
        os.close(fd)


@pytest.fixture
def photos(tmp_path):
    folder(tmp_path / "photos", {"a": 6, "b": 6}, (24, 24))
    path = next((tmp_path / "photos").rglob("*.jpg"))
    if held(path) is None or not page_cache.can_forget():
        pytest.skip("this file system or system does not say what it holds in memory")
    pages = FilePages(ff.ImageFolder(tmp_path / "photos"))
    if pages.check(np.arange(12)).problem:
        pytest.skip("the folder for temporary files is a RAM disk")
    return tmp_path / "photos"


def test_files_are_dropped_and_read_again(photos):
    source = ff.ImageFolder(photos)
    pages = FilePages(source)
    paths = [source.uri(i) for i in range(12)]
    assert pages.drop(np.arange(6)) == 0.0
    assert [held(path) for path in paths[:6]] == [False] * 6
    assert all(held(path) for path in paths[6:]) or pages.drop(np.arange(12)) == 0.0
    pages.warm(np.array([3, 3, 4]))
    assert [held(path) for path in paths[:6]] == [False, False, False, True, True, False]


def test_a_check_says_that_it_was_verified(photos):
    assert FilePages(ff.ImageFolder(photos)).check(np.arange(4)).verified


def test_samples_in_memory_have_no_files():
    source = ff.Arrays(np.zeros((4, 2, 2, 3), np.uint8))
    assert "memory" in FilePages(source).check(np.arange(4)).problem


def test_parts_of_shards(photos, tmp_path):
    path = tmp_path / "shard.tar"
    path.write_bytes(
        b"".join(entry(f"{i}.jpg", os.urandom(300_000)) for i in range(4)) + bytes(1024)
    )
    source = ff.TarShards(str(path), label=None)
    pages = FilePages(source)
    pages.drop(np.arange(4))
    pages.warm(np.array([0]))
    fd = os.open(path, os.O_RDONLY)
    assert page_cache.is_held(fd, 150_000)
    assert pages.drop(np.arange(4)) == 0.0
    os.close(fd)


def test_a_file_that_is_gone_is_passed_over(photos):
    source = ff.ImageFolder(photos)
    os.unlink(source.uri(0))
    pages = FilePages(source)
    pages.warm(np.arange(3))
    assert pages.drop(np.arange(3)) == 0.0


def test_all_images_of_a_sample(photos, tmp_path):
    folder(tmp_path / "right", {"a": 6, "b": 6}, (24, 24))
    right = ff.ImageFolder(tmp_path / "right")
    pages = FilePages(ff.Together({"left": ff.ImageFolder(photos), "right": right}))
    assert pages.drop(np.arange(12)) == 0.0
    pages.warm(np.array([3]))
    assert [held(right.uri(i)) for i in (2, 3)] == [False, True]
