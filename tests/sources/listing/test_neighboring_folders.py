"""Many small folders of S3: a page holds the images of several, so that requests are as many as the
keys need.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.errors import SourceError
from fastfeed.sources import ImageFolder, Storage
from fastfeed.sources.listing import remote_tree
from fastfeed.sources.listing.listing import list_images
from fastfeed.storage.reads import Stat


class Bucket:
    """Answers as S3 does: keys in the order of their bytes, `page` at a time, folders folded at the
    first level.
    """

    def __init__(self, keys, page):
        self.keys, self.page, self.requests, self.fails_at = (
            sorted(set(keys), key=str.encode),
            page,
            [],
            None,
        )

    async def look(self, system, path, deep, token, after):
        self.requests.append((deep, token or after))
        if len(self.requests) == self.fails_at:
            raise SourceError("interrupted")
        prefix = path.partition("bucket/")[2].rstrip("/") + "/"
        below = [
            key[len(prefix) :] for key in self.keys if key.startswith(prefix) and key != prefix
        ]
        if not deep:
            folders = sorted({key.partition("/")[0] for key in below if "/" in key})
            return remote_tree._Page(
                [(key, Stat(1, "e")) for key in below if "/" not in key], folders
            )
        first = bisect_right([key.encode() for key in below], (token or after).encode())
        files = [(key, Stat(1, "e")) for key in below[first : first + self.page]]
        return remote_tree._Page(files, [], files[-1][0] if first + self.page < len(below) else "")


@pytest.fixture
def serve(monkeypatch):
    def serving(keys, page=1000):
        bucket = Bucket(keys, page)
        monkeypatch.setattr(remote_tree, "_s3", bucket.look)
        monkeypatch.setattr(
            remote_tree.RemoteTree,
            "_request",
            lambda self, address, question, policy: asyncio.run(
                question(None, address.partition("://")[2])
            ),
        )
        return bucket

    return serving


def _paths(source):
    return [source.uri(i).removeprefix("s3://bucket/p/") for i in range(len(source))]


def test_requests_are_as_many_as_the_keys_need(serve):
    keys = [f"p/c{k:04}/{i}.jpg" for k in range(1000) for i in range(3)]
    bucket = serve(keys)
    source = ImageFolder("s3://bucket/p", storage=Storage())
    assert (len(source), len(source.classes)) == (3000, 1000)
    assert _paths(source) == [key[2:] for key in keys]
    assert len(bucket.requests) <= 2 + 2 * 3


def test_folders_that_fill_pages_are_still_in_flight_together(serve):
    bucket = serve([f"p/c{k:04}/{i}.jpg" for k in range(100) for i in range(13)], page=10)
    assert len(ImageFolder("s3://bucket/p", storage=Storage())) == 1300
    groups = {after for deep, after in bucket.requests[2:] if after.endswith("/")}
    assert len(groups) == 50 and len(bucket.requests) <= 2 + 130 + 50


def test_a_few_large_folders_have_requests_of_their_own(serve):
    bucket = serve([f"p/{name}/{i:05}.jpg" for name in "ab" for i in range(2500)])
    assert len(ImageFolder("s3://bucket/p", storage=Storage())) == 5000
    assert len(bucket.requests) == 2 + 2 * 3


def test_what_lies_between_is_skipped_with_a_request(serve):
    """Hidden folders with many keys, and images in the root itself, are no folders to list."""
    between = [f"p/.cache/{i:05}.jpg" for i in range(5000)] + [
        f"p/b{i:05}.jpg" for i in range(5000)
    ]
    keys = [
        f"p/{name}/{i}.jpg"
        for name in ("-a", *map("c{:03}".format, range(200)), "b")
        for i in range(2)
    ]
    bucket = serve(keys + between)
    source = ImageFolder("s3://bucket/p", storage=Storage())
    assert sorted(_paths(source)) == sorted(key[2:] for key in keys)
    assert source.skipped == {"(hidden)": 1, "(no class)": 5000}
    assert len(bucket.requests) <= 2 + 3 * 64


names = st.text("ab-.é/", min_size=1, max_size=5).filter(
    lambda name: "//" not in name and name[0] != "/"
)


@given(st.lists(names, min_size=1, max_size=40), st.integers(1, 5), st.integers(1, 3))
def test_the_same_as_folder_by_folder(keys, page, at_once):
    """With folders that begin other folders' names, and keys of folders themselves."""
    keys = [f"p/{key}.jpg" if not key.endswith("/") else f"p/{key}" for key in keys] + ["p/b/1.jpg"]
    patch = pytest.MonkeyPatch()
    try:
        bucket = Bucket(keys, page)
        patch.setattr(remote_tree, "_s3", bucket.look)
        patch.setattr(
            remote_tree.RemoteTree,
            "_request",
            lambda self, address, question, policy: asyncio.run(
                question(None, address.partition("://")[2])
            ),
        )
        listed = []
        for grouped in (
            lambda self, folders: [[folder] for folder in folders],
            remote_tree.RemoteTree.groups,
        ):
            patch.setattr(remote_tree.RemoteTree, "groups", grouped)
            source = ImageFolder("s3://bucket/p", storage=Storage(), min_per_class=0)
            listed.append((_paths(source), source.classes, source.skipped))
        assert listed[0] == listed[1]
    finally:
        patch.undo()


def test_it_resumes_after_the_folders_that_are_whole(serve, tmp_path):
    keys = [f"p/c{k:02}/{i}.jpg" for k in range(20) for i in range(5)]
    bucket = serve(keys, page=7)
    patch = {"storage": Storage(), "at_once": 1}
    whole = list_images("s3://bucket/p", str(tmp_path / "whole.csv"), **patch)
    bucket.requests, bucket.fails_at = [], 10
    with pytest.raises(SourceError, match="interrupted"):
        list_images("s3://bucket/p", str(tmp_path / "out.csv"), **patch)
    bucket.fails_at = None
    again = list_images("s3://bucket/p", str(tmp_path / "out.csv"), **patch)
    assert (again.images, again.classes) == (whole.images, whole.classes) and again.resumed > 0
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
