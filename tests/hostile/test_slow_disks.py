"""A disk of a network answers in a millisecond: files are asked for together, and a long wait says
why.
"""

from __future__ import annotations

import logging
import threading
from itertools import count

import numpy as np
import pytest
from helpers.trees import tree

import fastfeed as ff
from fastfeed.sources import arrays, folder
from fastfeed.sources.listing.listing import list_images
from fastfeed.storage import local_file

FILES = [f"{'ab'[k % 2]}/{k:03}.jpg" for k in range(400)]
TOGETHER = 4


class _Together:
    """Asks for the size of a file when as many others are asked for at the same time."""

    def __init__(self, look):
        self._look, self._barrier, self.paths = look, threading.Barrier(TOGETHER), []

    def __call__(self, path):
        self.paths.append(path)
        if threading.current_thread() is not threading.main_thread():
            self._barrier.wait(60)
        return self._look(path)


@pytest.fixture
def slow(monkeypatch):
    # a second passes between two looks
    monkeypatch.setattr(local_file, "perf_counter", count().__next__)
    monkeypatch.setattr(local_file, "_AT_ONCE", TOGETHER)
    monkeypatch.setattr(local_file, "_GROUP", 1)


def test_sizes_of_a_fingerprint_are_asked_for_together(tmp_path, monkeypatch, slow):
    source = ff.ImageFolder(tree(tmp_path, *FILES))
    plain = ff.ImageFolder(tmp_path).fingerprint
    monkeypatch.setattr(folder, "_SIZES_AT_ONCE", 400)
    monkeypatch.setattr(
        folder, "fingerprint", lambda length, names, labels, content: list(content(0, length))
    )
    together = _Together(local_file.file_size)
    monkeypatch.setattr(folder, "file_size", together)
    (sizes,) = source.fingerprint
    assert len(together.paths) == len(FILES)
    assert np.frombuffer(sizes, "<i8").tolist() == source.file_sizes(0, len(FILES)).tolist()
    monkeypatch.undo()
    assert ff.ImageFolder(tmp_path).fingerprint == plain


def test_no_file_is_asked_for_where_a_listing_knows(tmp_path, monkeypatch):
    tree(tmp_path / "p", *FILES)
    list_images(str(tmp_path / "p"), str(tmp_path / "l.csv"), storage=ff.Storage())
    base = ff.ImageFolder(tmp_path / "p").fingerprint
    monkeypatch.setattr(folder, "file_size", None)
    assert ff.ImageFolder(tmp_path / "p", listing=tmp_path / "l.csv").fingerprint == base


def test_a_long_wait_says_why(tmp_path, monkeypatch, caplog):
    source = ff.ImageFolder(tree(tmp_path, *FILES))
    monkeypatch.setattr(folder, "_SIZES_AT_ONCE", 10)
    monkeypatch.setattr(folder, "_clock", count(0, 1).__next__)
    with (
        ff.Feed(source, [ff.Resize((8, 8))], batch=2) as feed,
        caplog.at_level(logging.WARNING, "fastfeed"),
    ):
        feed.state()
        told = [record.getMessage() for record in caplog.records]
        assert told and all(
            "sizes of all files" in text and "fastfeed index" in text for text in told
        )
        assert " of 400 after 5 s" in told[0] and len(told) < 5
        caplog.clear()
        feed.state()  # known by now
        assert not caplog.records


def test_listing_many_folders_starts_no_thread_for_each(tmp_path, monkeypatch):
    tree(tmp_path / "p", *(f"{k}/{k}.jpg" for k in range(20)))
    monkeypatch.setattr(local_file, "ThreadPoolExecutor", None)
    assert (
        list_images(str(tmp_path / "p"), str(tmp_path / "l.csv"), storage=ff.Storage()).images == 20
    )


def test_listing_a_slow_folder_asks_for_files_together(tmp_path, monkeypatch, slow):
    together = _Together(local_file.os.stat)
    tree(tmp_path / "p", *FILES)
    monkeypatch.setattr(
        "fastfeed.sources.listing.local_tree._stat", lambda path: (together(path).st_size, b"")
    )
    assert list_images(
        str(tmp_path / "p"), str(tmp_path / "l.csv"), storage=ff.Storage()
    ).images == len(FILES)


# -- arrays


def test_a_fingerprint_of_large_arrays_reads_a_bounded_part(monkeypatch):
    monkeypatch.setattr(arrays, "_FINGERPRINTED", 4096)
    images = np.zeros((1000, 8, 8, 1), np.uint8)
    source = ff.Arrays(images)
    assert sum(1 for _ in source._fingerprinted()) == 64
    before = source.fingerprint
    images[-1] = images[0] = 1
    assert ff.Arrays(images).fingerprint != before
    assert ff.Arrays(images[:-1]).fingerprint != ff.Arrays(images).fingerprint
    assert list(ff.Arrays(np.zeros((1, 100, 100), np.uint8))._fingerprinted()) == [0]


def test_a_fingerprint_of_small_arrays_takes_every_pixel():
    images = np.zeros((1000, 8, 8, 1), np.uint8)
    before = ff.Arrays(images).fingerprint
    images[501, 3, 3] = 1
    assert ff.Arrays(images).fingerprint != before
