"""Hard and symbolic links in tar shards: read at their targets' bytes, and never outside of the
archive.
"""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from helpers.photos import jpeg
from helpers.shards import tar_of
from helpers.tars import END, entry, gnu_tar, header, padded, summed

import fastfeed as ff


def link(name: str, target: str, kind: bytes) -> bytes:
    block = bytearray(header(name, kind=kind))
    block[157 : 157 + len(target)] = target.encode()
    return summed(block)


def opened(path: Path, content: bytes, **options: object) -> ff.TarShards:
    path.write_bytes(content)
    return ff.TarShards(path, **options)  # type: ignore[arg-type]


def pixels(source: ff.TarShards) -> np.ndarray:
    """As native threads read them."""
    with ff.Feed(
        source, [ff.Resize((8, 8))], batch=len(source), shuffle=False, on_bad="raise"
    ) as feed:
        return next(iter(feed)).images


@pytest.mark.parametrize("kind", [tarfile.LNKTYPE, tarfile.SYMTYPE])
def test_links_are_read_at_their_targets(kind: bytes, tmp_path: Path) -> None:
    content = entry("0.jpg", jpeg(0)) + entry("0.cls", b"1") + entry("0.txt", b"a boat")
    content += (
        link("1.jpg", "0.jpg", kind)
        + link("1.cls", "0.cls", kind)
        + link("1.txt", "./0.txt", kind)
        + END
    )
    source = opened(tmp_path / "a.tar", content, columns=["txt"])
    assert source.read([0, 1]) == [jpeg(0)] * 2
    assert source.uri(1).endswith(":1.jpg")
    assert source.label(np.arange(2)).tolist() == [1, 1]
    assert source.columns(np.arange(2))["txt"].tolist() == ["a boat"] * 2
    assert source.notes == []
    first, second = pixels(source)
    assert np.array_equal(first, second)


@pytest.mark.parametrize("format", ["gnu", "pax", "ustar"])
def test_as_gnu_tar_writes_them(format: str, tmp_path: Path) -> None:
    root, long = tmp_path / "files", "n" * 90
    (root / "a").mkdir(parents=True)
    (root / "a" / "0.jpg").write_bytes(jpeg(0))
    (root / "a" / f"{long}.jpg").write_bytes(jpeg(1))
    os.link(root / "a" / "0.jpg", root / "a" / "1.jpg")
    (root / "b").mkdir()
    (root / "b" / "2.jpg").symlink_to("../a/0.jpg")
    (root / "b" / "3.jpg").symlink_to(f"../a/{long}.jpg")
    (root / "b" / "4.jpg").symlink_to("5.jpg")  # which comes later, and is a link itself
    (root / "b" / "5.jpg").symlink_to("../a/1.jpg")
    source = ff.TarShards(gnu_tar(root, f"--format={format}"), label=None)
    read = {
        source.uri(i).rpartition(":")[2]: data
        for i, data in enumerate(source.read(range(len(source))))
    }
    expected = {"a/0": 0, "a/1": 0, f"a/{long}": 1, "b/2": 0, "b/3": 1, "b/4": 0, "b/5": 0}
    assert read == {f"{name}.jpg": jpeg(i) for name, i in expected.items()}
    assert source.notes == []


@pytest.mark.parametrize("kind", [tarfile.LNKTYPE, tarfile.SYMTYPE])
@pytest.mark.parametrize(
    "target",
    [
        "{outside}",
        "../secret.jpg",
        "/etc/passwd",
        "none.jpg",
        "1.jpg",
        "",
        "/0.jpg",
        "a/../../0.jpg",
        "d",
    ],
)
def test_links_to_elsewhere_are_left_out(target: str, kind: bytes, tmp_path: Path) -> None:
    (tmp_path / "secret.jpg").write_bytes(jpeg(9))
    (tmp_path / "in").mkdir()
    content = entry("0.jpg", jpeg(0)) + header("d/", kind=b"5")
    at = len(content)
    content += (
        link("1.jpg", target.format(outside=tmp_path / "secret.jpg"), kind)
        + entry("2.jpg", jpeg(2))
        + END
    )
    source = opened(tmp_path / "in" / "a.tar", content, label=None)
    assert source.read(range(len(source))) == [jpeg(0), jpeg(2)]
    assert source.notes == [
        f"{tmp_path}/in/a.tar: left out '1.jpg' at {at}: a link to no file of the archive"
    ]


def test_links_in_a_ring(tmp_path: Path) -> None:
    ring = b"".join(link(f"{i}.jpg", f"{(i + 1) % 3}.jpg", tarfile.SYMTYPE) for i in range(3))
    source = opened(tmp_path / "a.tar", ring + entry("3.jpg", jpeg(3)) + END, label=None)
    assert (len(source), len(source.notes)) == (1, 3)


def test_an_index_of_another_tool_that_lacks_them_is_not_used(tmp_path: Path) -> None:
    members = (
        entry("0.jpg", jpeg(0)),
        link("1.jpg", "0.jpg", tarfile.LNKTYPE),
        entry("2.jpg", jpeg(2)),
    )
    path = tmp_path / "a.tar"
    path.write_bytes(b"".join(members) + END)
    at = len(members[0]) + len(members[1]) + 512
    (tmp_path / "a.idx").write_text(
        f"v1.2 2\njpg 512 {len(jpeg(0))} 0.jpg\njpg {at} {len(jpeg(2))} 2.jpg\n"
    )
    source = ff.TarShards(path, label=None)
    assert source.read(range(3)) == [jpeg(0), jpeg(0), jpeg(2)]
    assert source.notes == [f"{path}: a.idx is not used: it leaves out the links of the archive"]


def test_a_link_at_the_end_counts_too(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(entry("0.jpg", jpeg(0)) + link("1.jpg", "0.jpg", tarfile.SYMTYPE) + END)
    (tmp_path / "a.idx").write_text(f"v1.2 1\njpg 512 {len(jpeg(0))} 0.jpg\n")
    assert ff.TarShards(path, label=None).read(range(2)) == [jpeg(0)] * 2


def test_the_target_is_checked_when_it_is_read(tmp_path: Path) -> None:
    content = padded(entry("0.jpg", jpeg(0))) + link("1.jpg", "0.jpg", tarfile.LNKTYPE) + END
    source = opened(tmp_path / "a.tar", content, label=None)
    stat = os.stat(tmp_path / "a.tar")
    (tmp_path / "a.tar").write_bytes(content.replace(b"0.jpg", b"x.jpg", 1))
    os.utime(tmp_path / "a.tar", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert [failure.reason for failure in source.read([0, 1])] == ["changed"] * 2


@pytest.mark.parametrize(
    ("images", "value"), [(["jpg", "png"], "jpg"), (["png", "jpg"], "png"), (["jpg"], "jpg")]
)
@pytest.mark.parametrize("order", [("jpg", "png"), ("png", "jpg")])
def test_images_are_preferred_in_the_order_of_the_list(
    images: list[str], value: str, order: tuple[str, str], tmp_path: Path
) -> None:
    content = {"jpg": b"a jpeg", "png": b"a png"}
    members = [(f"{i}.{extension}", content[extension]) for i in range(2) for extension in order]
    source = opened(tmp_path / "a.tar", tar_of(members), images=images, label=None)
    assert source.read(range(2)) == [content[value]] * 2
    assert [source.uri(i).rpartition(":")[2] for i in range(2)] == [
        f"{i}.{value}" for i in range(2)
    ]
    other = "png" if value == "jpg" else "jpg"
    expected = [f"0.{other} at", f"is not used: the image is 0.{value}"] if len(images) > 1 else []
    assert len(source.notes) == bool(expected)
    assert all(part in source.notes[0] for part in expected)


def test_lists_in_another_order_have_another_index(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(tar_of([("0.png", b"a png"), ("0.jpg", b"a jpeg")]))
    orders: list[list[str] | None] = [["jpg", "png"], ["png", "jpg"], None]
    read = [ff.TarShards(path, images=images, label=None).read([0])[0] for images in orders * 2]
    assert read == [b"a jpeg", b"a png", b"a png"] * 2
