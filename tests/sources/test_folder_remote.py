"""ImageFolder on remote storage: the same images as in a local copy, read through fsspec; and stale
listings.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from helpers.photos import folder
from helpers.remotes import Watched, put, uploaded
from helpers.trees import labels, tree

from fastfeed import Feed, RandomResizedCrop
from fastfeed.errors import ConfigError, SourceError
from fastfeed.faults import Failure
from fastfeed.sources import ImageFolder, Storage
from fastfeed.sources.base import Fetching
from fastfeed.sources.listing.listing import list_images

FILES = (
    *(
        "b/1.jpg",
        "b/2.JPG",
        "b/sub/0.png",
        "b/sub-1/0.jpg",
        "b/sub.jpg",
        "b/.hidden.jpg",
        "b/notes.txt",
        "loose.jpg",
    ),
    *(
        "a/1.jpg",
        "a/10.jpg",
        "a-b/1.jpg",
        "a-b/é.jpg",
        "c d/[1].jpg",
        "c d/?.jpg",
        ".git/1.jpg",
        "zz.txt",
        "README",
    ),
    *("b/sub/.h/1.jpg", "b/sub/.h/2.jpg", "b/sub/.x.jpg"),
)


@pytest.fixture(autouse=True)
def nothing_was_asked():
    Watched.forget()
    yield
    Watched.forget()


def asked(what: str) -> int:
    return sum(count for (verb, _), count in Watched.asked.items() if verb == what)


# -- the same images as in a local copy


@pytest.mark.parametrize(
    "how",
    [{}, {"labeled": False}, {"classes": ("c d", "b", "x", "a", "a-b")}, {"extensions": [".jpg"]}],
)
def test_as_in_a_local_copy(tmp_path, how):
    local = ImageFolder(tree(tmp_path / "photos", *FILES), **how)
    remote = ImageFolder(uploaded(tmp_path / "photos"), **how)
    assert [remote.uri(i) for i in range(len(remote))] == [
        f"{remote.root}/{local.path(i).relative_to(local.root).as_posix()}"
        for i in range(len(local))
    ]
    assert (labels(remote), remote.classes, remote.fingerprint) == (
        labels(local),
        local.classes,
        local.fingerprint,
    )
    assert remote.skipped == local.skipped
    assert repr(remote) == repr(local).replace(repr(str(local.root)), repr(remote.root))
    assert remote.read(range(len(remote))) == local.read(range(len(local)))


REFUSED = [  # files, options, error
    (["x.txt"], {}, "no class folders in {root}: expected one folder per class"),
    (
        *(["1.jpg", "2.png"], {}),
        (
            "no class folders in {root}: 2 images lie in it directly; "
            "move them into one folder per class, or pass labeled=False"
        ),
    ),
    (
        *(["a/1.jpg", "a/2.jpg", "b/1.jpg", "b/notes.txt"], {"min_per_class": 2}),
        (
            "class 'b' has 1 image, a class needs at least 2; add images, remove the folder, or"
            " pass min_per_class=1; left out: 1 .txt"
        ),
    ),
    (["a/x.txt"], {"labeled": False}, "no images below {root}; left out: 1 .txt"),
    (["a/1.jpg", "b/1.jpg"], {"classes": ["a"]}, "{root} has folders that are not in classes: b"),
    ([], {}, "{root} does not exist, or holds nothing; pass the folder that holds the images"),
]


@pytest.mark.parametrize(("files", "how", "text"), REFUSED)
def test_refuses(tmp_path, files, how, text):
    root = uploaded(tree(tmp_path, *files))
    with pytest.raises(SourceError) as error:
        ImageFolder(root, **how)
    assert str(error.value) == f"ImageFolder: {text}".format(root=root)


@pytest.mark.parametrize(("files", "how", "text"), [REFUSED[1], REFUSED[2], REFUSED[4]])
def test_refuses_the_same_in_a_listing(tmp_path, files, how, text):
    root = uploaded(tree(tmp_path, *files))
    list_images(root, str(tmp_path / "all.csv"), storage=Storage())
    with pytest.raises(SourceError) as error:
        ImageFolder(root, listing=tmp_path / "all.csv", **how)
    assert str(error.value) == f"ImageFolder: {text.partition('; left out')[0]}".format(root=root)


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({}, "no class folders in {root}: expected one folder per class"),
        ({"labeled": False}, "no images below {root}"),
    ],
)
def test_refuses_an_empty_listing(tmp_path, how, text):
    (tmp_path / "none.csv").write_text("path,class,label,size,version\n")
    with pytest.raises(SourceError) as error:
        ImageFolder(tmp_path, listing=tmp_path / "none.csv", **how)
    assert str(error.value) == f"ImageFolder: {text}".format(root=tmp_path)


def test_it_is_listed_again_unless_a_listing_is_given(tmp_path):
    root = uploaded(tree(tmp_path / "photos", "a/1.jpg", "a/2.jpg"), "watched")
    list_images(root, str(tmp_path / "train.csv"), storage=Storage())
    put(f"{root}/a/3.jpg", b"3")
    assert len(ImageFolder(root)) == 3
    Watched.forget()
    source = ImageFolder(root, listing=tmp_path / "train.csv")
    assert len(source) == 2
    assert not Watched.asked, "storage is not asked before the first read"


def test_a_folder_that_may_not_be_listed(tmp_path):
    root = uploaded(tree(tmp_path, *(f"{c}/{i}.jpg" for c in "abcd" for i in range(2))), "watched")
    Watched.refused.add("c")
    with pytest.raises(SourceError) as error:
        ImageFolder(root)
    assert str(error.value).startswith(f"ImageFolder: cannot list {root}/c: ")
    assert "c is locked" in str(error.value)


def test_it_is_no_file(tmp_path):
    source = ImageFolder(uploaded(tree(tmp_path, "a/1.jpg", "a/2.jpg")) + "/")
    with pytest.raises(ConfigError) as error:
        source.path(1)
    assert str(error.value) == f"ImageFolder: {source.root}/a/2.jpg is not a local file; use uri(1)"


# -- reading


def test_fetch_begins_reads(tmp_path):
    tree(tmp_path, "a/1.jpg", "a/2.jpg")
    remote, local = ImageFolder(uploaded(tmp_path)), ImageFolder(tmp_path)
    assert isinstance(remote, Fetching) and isinstance(local, Fetching)
    assert (remote.remote, local.remote) == (True, False)
    for source in (remote, local):
        assert [pending.result(10) for pending in source.fetch([1, 0, 1])] == [
            b"a/2.jpg",
            b"a/1.jpg",
            b"a/2.jpg",
        ]


@pytest.mark.parametrize("suffix", [None, ".csv", ".parquet"])
@pytest.mark.parametrize("cached", [False, True])
def test_what_changed_since_it_was_listed(tmp_path, suffix, cached):
    root = uploaded(tree(tmp_path / "photos", *(f"a/{i}.jpg" for i in range(6))))
    how = {"cache": tmp_path / "cache"} if cached else {}
    if suffix:
        list_images(root, str(tmp_path / f"l{suffix}"), storage=Storage())
        how["listing"] = tmp_path / f"l{suffix}"
    source = ImageFolder(root, **how)
    put(f"{root}/a/1.jpg", None)
    put(f"{root}/a/2.jpg", b"larger than it was")
    put(f"{root}/a/3.jpg", b"less")
    put(f"{root}/a/4.jpg", b"")
    put(f"{root}/a/5.jpg", b"a/9.jpg")
    found = source.read(range(6))
    assert [found[0], found[5]] == [b"a/0.jpg", b"a/9.jpg"], (
        "of the same size: the change cannot be detected"
    )
    assert [(bad.id, bad.uri, bad.stage, bad.reason) for bad in found[1:5]] == [
        (1, f"{root}/a/1.jpg", "read", "not_found"),
        (2, f"{root}/a/2.jpg", "read", "changed"),
        (3, f"{root}/a/3.jpg", "read", "changed"),
        (4, f"{root}/a/4.jpg", "read", "changed" if cached else "empty"),
    ]
    assert found[2].detail == "18 bytes, 7 when it was listed"
    assert found[3].detail == "4 bytes, 7 when it was listed"


def test_what_changed_on_this_machine(tmp_path):
    root = tree(tmp_path / "photos", *(f"a/{i}.jpg" for i in range(3)))
    list_images(str(root), str(tmp_path / "l.csv"), storage=Storage())
    source = ImageFolder(root, listing=tmp_path / "l.csv")
    (root / "a/1.jpg").unlink()
    (root / "a/2.jpg").write_bytes(b"larger than it was")
    good, gone, larger = source.read(range(3))
    assert good == b"a/0.jpg"
    assert gone == Failure(1, str(root / "a/1.jpg"), "read", "not_found")
    assert larger == Failure(
        2, str(root / "a/2.jpg"), "read", "changed", "18 bytes, 7 when it was listed"
    )


def test_the_cache_saves_reads(tmp_path):
    root = uploaded(tree(tmp_path / "photos", *(f"a/{i}.jpg" for i in range(4))), "watched")
    list_images(root, str(tmp_path / "l.parquet"), storage=Storage())
    expected = [b"a/0.jpg", b"a/1.jpg", b"a/2.jpg", b"a/3.jpg"]
    assert ImageFolder(root, cache=tmp_path / "cache").read(range(4)) == expected
    assert asked("cat") == 4
    for how in ({}, {"listing": tmp_path / "l.parquet"}):
        assert ImageFolder(root, cache=tmp_path / "cache", **how).read(range(4)) == expected
    assert asked("cat") == 4, "from the disk, whichever way the versions were found"
    put(f"{root}/a/2.jpg", b"changed")
    assert ImageFolder(root, cache=tmp_path / "cache").read(range(4)) == [
        *expected[:2],
        b"changed",
        expected[3],
    ]
    assert asked("cat") == 5


def test_without_versions_nothing_is_cached(tmp_path):
    root = uploaded(tree(tmp_path / "photos", "a/0.jpg", "a/1.jpg"), "watched")
    (tmp_path / "l.csv").write_text("path,class,size,version\na/0.jpg,a,7,\na/1.jpg,a,,\n")
    source = ImageFolder(root, listing=tmp_path / "l.csv", cache=tmp_path / "cache")
    for reads in (2, 4):
        assert source.read([0, 1]) == [b"a/0.jpg", b"a/1.jpg"]
        assert asked("cat") == reads


def test_an_object_larger_than_any_photograph_is_not_read(tmp_path):
    root = uploaded(tree(tmp_path / "photos", "a/0.jpg", "a/1.jpg"), "watched")
    (tmp_path / "l.csv").write_text(f"path,class,size\na/0.jpg,a,{(1 << 30) + 1}\na/1.jpg,a,7\n")
    bad, good = ImageFolder(root, listing=tmp_path / "l.csv").read([0, 1])
    assert (bad.reason, bad.detail) == (
        "bomb",
        f"{(1 << 30) + 1:,} bytes, the limit is {1 << 30:,}",
    )
    assert (good, asked("cat")) == (b"a/1.jpg", 1)


def test_it_pickles_with_what_the_cache_needs(tmp_path):
    root = uploaded(tree(tmp_path / "photos", *(f"a/{i}.jpg" for i in range(4))), "watched")
    source = pickle.loads(pickle.dumps(ImageFolder(root, cache=tmp_path / "cache")))
    assert source.read([2]) == source.read([2]) == [b"a/2.jpg"]
    assert asked("cat") == 1


def test_a_feed_over_it_gives_what_one_over_a_copy_gives(tmp_path):
    folder(tmp_path / "photos", {"a": 7, "b": 6})
    (tmp_path / "photos/b/0003.jpg").write_bytes(b"broken")
    batches = []
    for source in (ImageFolder(tmp_path / "photos"), ImageFolder(uploaded(tmp_path / "photos"))):
        with Feed(source, [RandomResizedCrop(16)], batch=5, threads=2) as feed:
            batches.append(
                [(b.images.copy(), b.labels.copy(), b.ids.copy()) for b in feed.batches(epochs=2)]
            )
    assert len(batches[0]) == len(batches[1]) == 4
    for one, other in zip(*batches, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


# -- listings that are none


def test_links_are_read_like_files(tmp_path, monkeypatch):
    """SFTP lists links with a size of their own."""
    root = uploaded(tree(tmp_path / "photos", "a/1.jpg", "a/2.jpg", "a/notes", "a/more"), "watched")
    find = Watched.find

    def linked(self, path, *args, **options):
        info = find(self, path, *args, **options)
        return {
            name: facts | {"type": "link", "size": 3} if name.endswith(("2.jpg", "more")) else facts
            for name, facts in info.items()
        }

    monkeypatch.setattr(Watched, "find", linked)
    source = ImageFolder(root)
    assert source.read(range(len(source))) == [b"a/1.jpg", b"a/2.jpg"]
    assert source.skipped == {"(none)": 2}


def test_s3_is_listed_page_by_page(s3, tmp_path, monkeypatch):
    s3fs = pytest.importorskip("s3fs", reason="needs s3fs: pip install 'fastfeed[s3]'")
    ask = s3fs.S3FileSystem._call_s3

    def few(self, method, *arguments, **how):
        return ask(
            self,
            method,
            *arguments,
            **how,
            **({"MaxKeys": 4} if method == "list_objects_v2" else {}),
        )

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", few)
    bucket = "test-folder-remote"
    for i in range(11):
        s3.put(f"{bucket}/train/b/{i:02}.jpg", b"%d" % i)
    for key in (
        "train/",
        "train/a/",
        "train/a/x-1/1.jpg",
        "train/a/x/1.jpg",
        "train/.hidden/1.jpg",
        "train/c.jpg",
    ):
        s3.put(f"{bucket}/{key}", key.encode() if key.endswith("jpg") else b"")
    s3.clear_log()
    source = ImageFolder(f"s3://{bucket}/train", storage=s3.options, cache=tmp_path / "cache")
    assert len(s3.log()) == 7, (
        "two pages of the first level, one to see how many folders share a page, a, and b's three"
    )
    assert (len(source), source.classes) == (13, ("a", "b"))
    assert source.skipped == {"(hidden)": 1, "(no class)": 1}
    assert [source.uri(i) for i in (0, 1, 12)] == [
        f"s3://{bucket}/train/{name}" for name in ("a/x/1.jpg", "a/x-1/1.jpg", "b/10.jpg")
    ]
    assert source.read([0, 12]) == [b"train/a/x/1.jpg", b"10"]
    s3.clear_log()
    assert source.read([12, 0]) == [b"10", b"train/a/x/1.jpg"]
    assert not s3.log()
    s3.delete(f"{bucket}/train/b/00.jpg")
    s3.put(f"{bucket}/train/b/01.jpg", b"another one")
    assert [bad.reason for bad in source.read([2, 3])] == ["not_found", "changed"]
    with pytest.raises(SourceError, match="does not exist, or holds nothing"):
        ImageFolder(f"s3://{bucket}/trian", storage=s3.options)
