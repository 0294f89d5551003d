"""Tar files as different programs write them, and as accidents leave them."""

from __future__ import annotations

import io
import tarfile
from dataclasses import replace

import pytest
from helpers.tars import END, entry, gnu_tar, header, padded, parse, pax, summed
from hypothesis import example, given
from hypothesis import strategies as st

from fastfeed.errors import SourceError
from fastfeed.sources import TarShards

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
LONG = "d" * 90 + "/" + "e" * 90 + "/" + "f" * 90 + ".jpg"  # 275 characters
NAMES = {  # the format that holds it least -> a name
    "v7": ["a.jpg", "folder/b.jpg", "n" * 93 + ".jpg"],
    "ustar": ["m" * 96 + ".jpg", "p" * 99 + "/" + "q" * 90 + ".jpg", "ü/ö.jpg", "日本.jpg"],
    "gnu": [LONG, "ü" * 100 + ".jpg"],
}


def contents(data: bytes) -> dict[str, bytes]:
    found, notes = parse(data)
    assert notes == []
    assert len({member.name for member in found}) == len(found)
    return {member.name: data[member.offset : member.offset + member.size] for member in found}


def by_python(files: dict[str, bytes], format: str, front: str = "") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=FORMATS[format]) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(front + name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def files_for(format: str) -> dict[str, bytes]:
    kept = [
        name
        for least in NAMES
        for name in NAMES[least]
        if format in ("gnu", "pax") or least in ("v7", format)
    ]
    return {name: bytes([i]) * (300 * i) for i, name in enumerate(kept)}


@pytest.mark.parametrize("format", ["v7", "ustar", "gnu", "pax"])
def test_gnu_tar(tmp_path, format):
    """With folders, an empty file, names in `./`; of every length and alphabet that the format can
    hold.
    """
    files = files_for(format)
    for name, data in files.items():
        path = tmp_path / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    assert contents(gnu_tar(tmp_path / "files", f"--format={format}").read_bytes()) == files


@pytest.mark.parametrize("front", ["", "./", "././", ".//"])
@pytest.mark.parametrize("format", FORMATS)
def test_python(format, front):
    # of the longest names no two writers make the same with `./`
    files = files_for("v7" if front else format)
    assert contents(by_python(files, format, front)) == files


def test_dot_slash_in_long_names_too():
    """The short names of a sample and the long ones must agree."""
    for format in ("gnu", "pax"):
        assert contents(by_python({LONG: b"1"}, format, "./")) == {LONG: b"1"}


SIZES = st.sampled_from([0, 1, 511, 512, 513, 1023, 1024, 1025, 10240])
PARTS = st.text(
    st.characters(exclude_characters="/\0", exclude_categories=("Cs",)), min_size=1, max_size=80
)
PATHS = st.lists(PARTS.filter(lambda part: part not in (".", "..")), min_size=1, max_size=4).map(
    "/".join
)


@given(
    st.lists(st.tuples(PATHS, SIZES, st.integers(0, 255)), max_size=6),
    st.sampled_from(["gnu", "pax"]),
)
def test_the_same_members_as_python_finds(members, format):
    data = by_python({name: bytes([fill]) * size for name, size, fill in members}, format)
    found, notes = parse(data)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        oracle = [
            (member.name, member.offset_data, member.size) for member in archive if member.isreg()
        ]
    assert [(member.name, member.offset, member.size) for member in found] == oracle
    assert notes == []


# -- what is no sample's

REFUSED = {
    "a hard link": (header("b.jpg", kind=b"1"), "a link"),
    "a symbolic link": (header("b.jpg", kind=b"2"), "a link"),
    "a character device": (header("b.jpg", kind=b"3"), "a device"),
    "a block device": (header("b.jpg", kind=b"4"), "a device"),
    "a pipe": (header("b.jpg", kind=b"6"), "a pipe"),
    "a link with a size": (header("b.jpg", 5000, kind=b"2"), "a link"),
    "a volume's name": (header("b.jpg", kind=b"V"), "of unknown kind b'V'"),
    "of some kind, with content": (entry("b.jpg", b"x" * 600, b"Z"), "of unknown kind b'Z'"),
    "an absolute path": (entry("/b.jpg", b"x"), "its name leads out of the archive"),
    "an absolute path, in pax": (
        pax({"path": "/b"}) + entry("b.jpg", b"x"),
        "its name leads out of the archive",
    ),
    "a path upwards": (entry("c/../../b.jpg", b"x"), "its name leads out of the archive"),
    "a sparse file of pax": (
        pax({"GNU.sparse.major": "1"}) + entry("b.jpg", b"x" * 513),
        "a sparse file",
    ),
    "damaged pax": (
        entry("PaxHeaders/0", b"99 path=c.jpg\n", b"x") + entry("b.jpg", b"x"),
        "the names before it are",
    ),
    "pax with a size of no sense": (
        pax({"size": "٣"}) + entry("b.jpg", b"x"),
        "the names before it are damaged",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_left_out_and_noted(what):
    """And the member behind it is found."""
    data, why = REFUSED[what]
    found, notes = parse(entry("a.jpg", b"1") + data + entry("c.jpg", b"3") + END)
    assert [member.name for member in found] == ["a.jpg", "c.jpg"]
    assert len(notes) == 1
    assert (
        notes[0].startswith("left out '")
        and f"at {1024 + data.rindex(b'b.jpg') // 512 * 512}: {why}" in notes[0]
    )


@pytest.mark.parametrize("format", ["gnu", "pax"])
def test_sparse_files_of_gnu_tar(tmp_path, format):
    """With more holes than fit in the header: further blocks follow it, which its size does not
    count.
    """
    (tmp_path / "files").mkdir()
    with (tmp_path / "files" / "b.jpg").open("wb") as file:
        for at in range(0, 40 << 16, 1 << 16):
            file.seek(at)
            file.write(b"x" * 4096)
        file.truncate(40 << 16)
    for name in "ac":
        (tmp_path / "files" / f"{name}.jpg").write_bytes(name.encode())
    data = gnu_tar(
        tmp_path / "files", f"--format={format}", "--sparse", "--hole-detection=raw"
    ).read_bytes()
    found, notes = parse(data)
    assert [(member.name, data[member.offset]) for member in found] == [
        ("a.jpg", ord("a")),
        ("c.jpg", ord("c")),
    ]
    assert len(notes) == 1 and "b.jpg" in notes[0] and notes[0].endswith("a sparse file")


def test_folders_have_no_content_whatever_their_size_says():
    data = (
        header("d/", 4096, b"5")
        + header("e/", 0, b"0")
        + header("/f/", 0, b"5")
        + entry("d/a.jpg", b"1")
        + END
    )
    found, notes = parse(data)
    assert [member.name for member in found] == ["d/a.jpg"]
    assert notes == ["left out '/f/' at 1024: its name leads out of the archive"]


# -- sizes and names that are said elsewhere

HUGE = 9 << 30  # bytes: more than octal digits can say


@pytest.mark.parametrize(
    "front",
    [
        header("b.jpg", b"\x80" + HUGE.to_bytes(11, "big")),
        pax({"size": str(HUGE)}) + header("b.jpg"),
        pax({"size": str(HUGE)}) + header("b.jpg", b"77777777777\0"),
    ],
    ids=["base-256", "pax", "pax, header full of sevens"],
)
def test_members_of_many_gigabytes(tmp_path, front):
    """Jumped over, in a file with a hole in it."""
    with (tmp_path / "a.tar").open("wb") as file:
        file.write(entry("a.jpg", b"1") + front)
        file.seek(HUGE, 1)
        file.write(entry("c.jpg", b"3") + END)
    source = TarShards(tmp_path / "a.tar", label=None)
    assert source.read([0, 1]) == [b"1", b"3"]
    assert (
        f"left out 'b.jpg' at {1024 + len(front) - 512}: {HUGE} bytes, too large for a sample"
        in source.notes[0]
    )


def test_pax_says_another_size_than_the_header():
    data = pax({"size": "3"}) + header("a.jpg", 700) + padded(b"123") + entry("b.jpg", b"4") + END
    assert contents(data) == {"a.jpg": b"123", "b.jpg": b"4"}


def test_pax_headers_for_all_that_follows():
    data = pax({"comment": "x", "path": "all.jpg"}, b"g") + entry("a.jpg", b"1")
    data += pax({"path": "b.jpg"}) + entry("c", b"2")
    assert contents(data + END) == {"all.jpg": b"1", "b.jpg": b"2"}


@pytest.mark.parametrize(
    "size",
    [b"\xff" * 12, b"0o000000017\0", b"1_0\0", b"-0000000017\0", b"89\0", b"\x80" + b"\xff" * 11],
)
def test_sizes_of_no_sense(size):
    found, notes = parse(entry("a.jpg", b"1") + header("b.jpg", size) + entry("c.jpg", b"3") + END)
    assert [member.name for member in found] == ["a.jpg"]
    assert notes[0].partition(": ")[0] in ("damaged header at 1024", "left out 'b.jpg' at 1024")


@pytest.mark.parametrize(
    "size", [b"00000000003 ", b" 3 \0", b"3\0trash", b"           3", b"\x80" + bytes(10) + b"\3"]
)
def test_ways_to_write_a_size(size):
    assert contents(header("a.jpg", size) + padded(b"123") + END) == {"a.jpg": b"123"}


def test_checksums_that_old_programs_counted_with_signs():
    block = bytearray(header("ü.jpg", 1))
    block[148:156] = b"%06o\0 " % (int(block[148:154], 8) - 2 * 256)
    assert contents(bytes(block) + padded(b"1") + END) == {"ü.jpg": b"1"}


# -- the end

A, B = entry("a.jpg", b"1"), entry("b.jpg", b"2")
ENDS = {
    "as it should be": (A + B + END, 2, ""),
    "padded to a record": (A + B + bytes(10240 - 2048), 2, ""),
    "one block of zeros": (A + B + bytes(512), 2, ""),
    "without any": (A + B, 2, "cut off at 2048: the end of the archive is missing"),
    "a block of zeros amid it": (
        A + bytes(512) + B + END,
        2,
        "a block of zeros at 1024, amid the archive",
    ),
    "two archives": (
        A + END + B + END,
        1,
        "another archive begins at 2048, after the end of this one: not read",
    ),
    "something behind it": (
        A + END + b"x" * 99,
        1,
        "there are bytes at 2048, after the end of this one: not read",
    ),
    "empty": (bytes(10240), 0, ""),
    "an empty file": (b"", 0, "empty file"),
    "no tar": (b"hello" * 300, 0, "no tar file at 0: nothing after it can be read"),
    "a few bytes": (b"hello", 0, "cut off at 5: the end of the archive is missing"),
}


@pytest.mark.parametrize("what", ENDS)
def test_the_end(what):
    data, count, note = ENDS[what]
    found, notes = parse(data)
    assert [member.name for member in found] == ["a.jpg", "b.jpg"][:count]
    assert [text.partition(" (")[0] for text in notes] == ([note] if note else [])


@pytest.mark.parametrize(
    ("magic", "name"),
    {
        b"\x1f\x8b": "gzip",
        b"BZh9": "bzip2",
        b"\xfd7zXZ\0": "xz",
        b"\x28\xb5\x2f\xfd": "zstd",
    }.items(),
)
@pytest.mark.parametrize("size", [9, 1000])
def test_compressed(magic, name, size):
    with pytest.raises(
        SourceError, match=f"a.tar is compressed with {name}: .* unpack it to a plain .tar once"
    ):
        parse(magic + bytes(size))


def test_a_name_like_that_of_a_compressed_file():
    assert contents(entry("BZh9.jpg", b"1") + END) == {"BZh9.jpg": b"1"}


# -- damage

WHOLE = (
    by_python({"a.jpg": b"1" * 600, "a.cls": b"12"}, "ustar")[:2560]
    + by_python({LONG: b"2" * 512, "b.cls": b"7"}, "gnu")[: 512 * 6]
    + by_python({"ü" * 90 + ".jpg": b"3" * 10, "empty.jpg": b""}, "pax")
)


def test_cut_anywhere():
    """What lies before the cut is found; at most the last member is incomplete, and notes say what
    is wrong.
    """
    whole, none = parse(WHOLE)
    assert len(whole) == 6 and none == []
    end = whole[-1].offset
    for cut in range(len(WHOLE)):
        found, notes = parse(WHOLE[:cut])
        assert found == whole[: len(found)]
        assert all(member.offset > cut for member in whole[len(found) :])
        assert all(member.offset + member.size <= cut for member in found[:-1])
        assert (
            notes == []
            if cut >= end + 512
            else f"cut off at {cut}" in notes[0] or (notes == ["empty file"]) is (not cut)
        )


HEADERS = [at for at in range(0, len(WHOLE), 512) if WHOLE[at + 257 : at + 262] == b"ustar"]


@given(st.sampled_from(HEADERS), st.integers(0, 511), st.integers(1, 255))
@example(HEADERS[1], 154, 1)
@example(HEADERS[1], 155, 1)
def test_a_byte_of_a_header_is_another(at, place, flip):
    """All before it is found, nothing behind it, and that is said.

    The checksum's last two bytes say nothing.
    """
    data = bytearray(WHOLE)
    data[at + place] ^= flip
    found, notes = parse(bytes(data))
    whole, _ = parse(WHOLE)
    if place in (154, 155) and len(found) == len(whole):
        assert [replace(member, check=0) for member in found] == [
            replace(member, check=0) for member in whole
        ]
        return
    assert found == [member for member in whole if member.offset <= at]
    what = "no tar file" if at == 0 else "damaged header"
    assert notes == [f"{what} at {at}: nothing after it can be read"]


@given(
    st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), max_size=20),
    st.booleans(),
)
def test_any_bytes_are_others(changes, sums):
    """Nothing is raised but for packed files, no member lies outside, none runs into another."""
    data = bytearray(WHOLE)
    for place, value in changes:
        data[place] = value
    for at in HEADERS if sums else ():  # also what is wrong under a right checksum
        data[at : at + 512] = summed(data[at : at + 512])
    try:
        found, _ = parse(bytes(data))
    except SourceError as error:
        assert "is compressed with" in str(error)
        return
    ends = [member.offset + member.size for member in found]
    assert all(member.offset % 512 == 0 and 512 <= member.offset <= len(data) for member in found)
    assert all(end <= member.offset - 512 for end, member in zip(ends, found[1:], strict=False))
