"""Listings of ImageFolder: what is none is refused, and one may be remote."""

from __future__ import annotations

import pytest
from helpers.remotes import put, uploaded
from helpers.trees import tree

from fastfeed.errors import ConfigError, SourceError
from fastfeed.sources import ImageFolder, Storage
from fastfeed.sources.listing.listing import list_images


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            "path,class,size\n../x.jpg,a,1\n",
            "the path of row 0 leads out of the folder: '../x.jpg'",
        ),
        (
            "path,class,size\na/1.jpg,a,1\na/../../x.jpg,a,1\n",
            "the path of row 1 leads out of the folder",
        ),
        (
            "path,class,size\n/etc/passwd,a,1\n",
            "the path of row 0 leads out of the folder: '/etc/passwd'",
        ),
        ("path,class,size\n,a,1\n", "the path of row 0 is empty"),
        ("path,class,size\na/1.jpg,a,large\n", "its sizes are not numbers"),
    ],
)
def test_a_listing_that_is_none(tmp_path, text, what):
    (tmp_path / "l.csv").write_text(text)
    with pytest.raises(SourceError) as error:
        ImageFolder(tmp_path, listing=tmp_path / "l.csv")
    assert f"ImageFolder: {tmp_path}/l.csv is not a listing, {what}" in str(error.value)
    assert str(error.value).endswith("; `fastfeed index` makes one, and Table reads other tables")


def test_other_files_as_listings(tmp_path):
    with pytest.raises(
        ConfigError,
        match=r"ImageFolder: a listing must end in \.parquet, \.csv, \.jsonl, got l\.txt",
    ):
        ImageFolder(tmp_path, listing="l.txt")
    with pytest.raises(
        SourceError, match=r"ImageFolder: cannot read nowhere\.csv: No such file or directory"
    ):
        ImageFolder(tmp_path, listing="nowhere.csv")
    (tmp_path / "l.csv").write_text("image,label\na/1.jpg,3\n")
    with pytest.raises(ConfigError, match="no column 'path' in"):
        ImageFolder(tmp_path, listing=tmp_path / "l.csv")


def test_a_listing_may_be_remote_too(tmp_path):
    root = uploaded(tree(tmp_path / "photos", "a/1.jpg", "a/2.jpg", "b/1.jpg", "b/2.jpg"))
    for name in ("l.csv", "l.parquet"):
        list_images(root, str(tmp_path / name), storage=Storage())
        put(f"{root}/{name}", (tmp_path / name).read_bytes())
        assert ImageFolder(root, listing=f"{root}/{name}").read([3]) == [b"b/2.jpg"]


# -- S3
