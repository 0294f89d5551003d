"""An interrupted listing resumes where it stopped, with the result of one that was not."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from helpers.listings import content, listed
from helpers.remotes import Watched, put, uploaded
from helpers.trees import tree

from fastfeed.errors import SourceError
from fastfeed.sources import Storage
from fastfeed.sources.listing.journal import folders_listed
from fastfeed.sources.listing.local_tree import LocalTree
from fastfeed.sources.listing.remote_tree import RemoteTree
from fastfeed.sources.listing.skipped_files import SkippedFiles


@pytest.fixture(autouse=True)
def nothing_was_asked():
    Watched.forget()
    yield
    Watched.forget()


def classes(tmp_path: Path) -> Path:
    return tree(
        tmp_path / "photos",
        *(f"{c}/{i}.jpg" for c in "abcdefgh" for i in range(5)),
        "x.jpg",
        "b/n.txt",
    )


@pytest.mark.parametrize("at_once", [1, 3])
def test_it_resumes_where_storage_failed(tmp_path, at_once):
    root = uploaded(classes(tmp_path), "watched")
    listed(root, tmp_path / "whole.csv")
    Watched.forget()
    Watched.refused.add("e")
    with pytest.raises(SourceError) as error:
        listed(root, tmp_path / "out.csv", at_once=at_once)
    assert str(error.value).startswith(f"list_images: cannot list {root}/e: ")
    done, folders = folders_listed(str(tmp_path / "out.csv.partial"))
    assert folders == 8 and done < 8
    assert at_once > 1 or done == 4
    first = {name for what, name in Watched.asked if what == "find"} - {"e"}
    Watched.forget()
    found = listed(root, tmp_path / "out.csv", at_once=at_once)
    assert found.resumed == done
    again = {name for what, name in Watched.asked if what == "find"}
    assert set(Watched.asked.values()) == {1} and len(again) == 8 - done
    assert first | again == set("abcdefgh")
    assert at_once > 1 or not first & again, "no folder is listed twice"
    assert not any(what == "ls" for what, _ in Watched.asked), "nor the first level"
    assert content(tmp_path / "out.csv") == content(tmp_path / "whole.csv")
    assert found.skipped == {".txt": 1}
    assert not list(tmp_path.glob("*.partial"))


def test_it_resumes_where_a_local_one_was_interrupted(tmp_path, monkeypatch):
    outside = tree(tmp_path / "outside", "x.jpg", "y.jpg")
    root = tree(
        tmp_path / "photos",
        f"a/all -> {outside}",
        "b/1.jpg",
        f"b/all -> {outside}",
        f"c/x.jpg -> {outside}/x.jpg",
    )
    listed(root, tmp_path / "whole.csv")
    below, asked = LocalTree.below, []

    def breaks(self, folders, skipped_by_folder):
        asked.extend(folders)
        if asked == ["a", "b"]:
            raise KeyboardInterrupt
        return below(self, folders, skipped_by_folder)

    monkeypatch.setattr(LocalTree, "below", breaks)
    with pytest.raises(KeyboardInterrupt):
        listed(root, tmp_path / "out.csv")
    found = listed(root, tmp_path / "out.csv")
    assert asked == ["a", "b", "b", "c"]
    assert found.resumed == 1
    assert content(tmp_path / "out.csv") == content(tmp_path / "whole.csv")
    assert [row[0] for row in content(tmp_path / "out.csv")] == [
        *("a/all/x.jpg", "a/all/y.jpg", "b/1.jpg", "b/all/x.jpg", "b/all/y.jpg", "c/x.jpg")
    ]


KILLED = """
import os, signal, sys
from pathlib import Path
from helpers.remotes import Watched, uploaded
from fastfeed.sources import Storage
from fastfeed.sources.listing.listing import list_images

def find(self, path, *args, **options):
    if path.endswith("/f"):
        os.kill(os.getpid(), signal.SIGKILL)
    return super(Watched, self).find(path, *args, **options)

Watched.find = find
list_images(uploaded(Path(sys.argv[1]), "watched"), sys.argv[2], storage=Storage(), at_once=1)
"""


def test_it_resumes_after_a_kill(tmp_path, python):
    photos = classes(tmp_path)
    done = python(KILLED, photos, tmp_path / "out.csv")
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert folders_listed(str(tmp_path / "out.csv.partial")) == (5, 8)
    root = uploaded(photos, "watched")
    found = listed(root, tmp_path / "out.csv")
    assert found.resumed == 5
    assert {name for what, name in Watched.asked if what == "find"} == set("fgh")
    assert [row[:4] for row in content(tmp_path / "out.csv")] == [
        *((f"{c}/{i}.jpg", c, n, 7) for n, c in enumerate("abcdefgh") for i in range(5)),
        ("x.jpg", "", -1, 5),
    ]


def test_a_new_folder_is_seen_by_the_next_listing(tmp_path):
    root = uploaded(classes(tmp_path), "watched")
    listed(root, tmp_path / "out.csv")
    put(f"{root}/new/1.jpg", b"x")
    assert "new" in listed(root, tmp_path / "out.csv").classes


def test_what_is_being_asked_is_given_up(tmp_path, monkeypatch):
    """Ctrl-C, or an error in another folder, does not wait for storage that takes its time."""
    begun, end = threading.Event(), threading.Event()

    def find(self, path, *args, **options):
        begun.set()
        end.wait(60)
        return {}

    monkeypatch.setattr(Watched, "find", find)
    tree_of = RemoteTree(uploaded(classes(tmp_path), "watched"), Storage(), [".jpg"], "index")
    with ThreadPoolExecutor(1) as pool:
        walk = pool.submit(lambda: list(tree_of.below(["a"], {"a": SkippedFiles()})))
        assert begun.wait(60)
        tree_of.stop()
        with pytest.raises(SourceError) as error:
            walk.result(60)
        assert str(error.value) == f"index: listing {tree_of.root}/a was interrupted"
        with pytest.raises(SourceError, match="was interrupted"):
            list(tree_of.below(["b"], {"b": SkippedFiles()}))
    assert not end.is_set()
    end.set()
