"""The file of an unfinished listing: whatever befalls it, what it gives is what was put in, whole
folders only.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fastfeed.errors import SourceError
from fastfeed.sources.listing.file_table import ROWS, FileTable, unpacked
from fastfeed.sources.listing.journal import FileJournal, folders_listed
from fastfeed.sources.listing.skipped_files import SkippedFiles
from fastfeed.sources.tables.string_column import StringColumn

KIND = {"root": "s3://bucket/train", "extensions": [".jpg"]}


def rows(folder: str, first: int, last: int) -> FileTable:
    paths = [f"{folder}/{i:06}.jpg".encode() for i in range(first, last)]
    sizes = np.arange(first, last) * 100
    return FileTable(
        StringColumn.of_bytes(paths),
        sizes,
        StringColumn.of_bytes([b"v%d" % i for i in range(first, last)]),
    )


def read(partial: FileJournal, folder: str) -> list[tuple]:
    found = FileTable.joined(list(partial.rows(folder)))
    assert found.sizes is not None and found.versions is not None
    return list(
        zip(unpacked(found.paths), found.sizes.tolist(), unpacked(found.versions), strict=True)
    )


def expected(folder: str, last: int) -> list[tuple]:
    return [(f"{folder}/{i:06}.jpg".encode(), 100 * i, b"v%d" % i) for i in range(last)]


def filled(path: Path) -> FileJournal:
    """Two folders that have ended, and one that has not."""
    partial = FileJournal(str(path), KIND)
    partial.add("a", rows("a", 0, 3))
    partial.add("b", rows("b", 0, 2))
    partial.add("a", rows("a", 3, 4))
    partial.end("a", SkippedFiles(Counter({".txt": 2}), {".txt": "a/é.txt"}), folders=["y"])
    partial.end("b", SkippedFiles(), folders=["x"])
    partial.add("c", rows("c", 0, 2 * ROWS))
    return partial


def test_it_gives_what_was_put_in(tmp_path):
    path = tmp_path / "x.partial"
    filled(path).close()
    partial = FileJournal(str(path), KIND)
    assert set(partial.ends) == {"a", "b"}
    assert (partial.ends["a"].images, partial.ends["a"].skipped.notes()) == (
        4,
        ["left out 2 .txt files, such as a/é.txt"],
    )
    assert (partial.ends["a"].more, partial.ends["b"].more) == (
        {"folders": ["y"]},
        {"folders": ["x"]},
    )
    partial.close()
    partial = FileJournal(str(path), KIND)
    assert (read(partial, "a"), read(partial, "b")) == (expected("a", 4), expected("b", 2))
    partial.add("c", rows("c", 0, 1))
    partial.end("c", SkippedFiles())
    assert read(partial, "c") == expected("c", 1), "without what an earlier process had of it"
    partial.close(done=True)
    assert not path.exists()


def test_a_large_folder_is_written_in_pieces(tmp_path):
    path = tmp_path / "x.partial"
    partial = FileJournal(str(path), KIND)
    for first in range(0, 2 * ROWS, 1000):
        partial.add("c", rows("c", first, first + 1000))
    partial.end("c", SkippedFiles())
    partial.close()
    partial = FileJournal(str(path), KIND)
    pieces = list(partial.rows("c"))
    assert 1 < len(pieces) < 5
    assert sum(map(len, pieces)) == partial.ends["c"].images == len(range(0, 2 * ROWS, 1000)) * 1000
    partial.close()


def test_it_may_be_cut_anywhere(tmp_path):
    path = tmp_path / "x.partial"
    partial = FileJournal(str(path), KIND)
    for folder in "ab":
        partial.add(folder, rows(folder, 0, 2))
        partial.end(folder, SkippedFiles())
    partial.close()
    whole, seen = path.read_bytes(), []
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        partial = FileJournal(str(path), KIND)
        ends = "".join(sorted(partial.ends))
        seen.append(ends)
        assert all(read(partial, folder) == expected(folder, 2) for folder in ends)
        for folder in "ab":
            if folder not in ends:
                partial.add(folder, rows(folder, 0, 2))
                partial.end(folder, SkippedFiles())
        partial.close()
        partial = FileJournal(str(path), KIND)
        assert read(partial, "a") == expected("a", 2) and read(partial, "b") == expected("b", 2)
        partial.close()
    assert seen == sorted(seen) and set(seen) == {"", "a", "ab"}


@pytest.mark.parametrize("at", [30, 200, -1])
def test_a_changed_byte_ends_it_there(tmp_path, at):
    path = tmp_path / "x.partial"
    filled(path).close()
    content = bytearray(path.read_bytes())
    content[at] ^= 0x55
    path.write_bytes(content)
    partial = FileJournal(str(path), KIND)
    assert all(
        read(partial, folder) == expected(folder, {"a": 4, "b": 2}[folder])
        for folder in list(partial.ends)
    )
    assert (at > 0) == (len(partial.ends) < 2)
    partial.close()


def test_kept(tmp_path):
    path = tmp_path / "x.partial"
    assert folders_listed(str(path)) == (0, 0)
    partial = FileJournal(str(path), KIND)
    assert folders_listed(str(path)) == (0, 0)
    partial.end("", SkippedFiles(), folders=["a", "b"])
    assert folders_listed(str(path)) == (0, 2)
    partial.end("b", SkippedFiles())
    assert folders_listed(str(path)) == (1, 2)
    partial.close()


def test_what_it_refuses(tmp_path):
    path = tmp_path / "x.partial"
    partial = filled(path)
    with pytest.raises(SourceError) as error:
        FileJournal(str(path), KIND)
    assert str(error.value) == f"{path} is being written by another process; write to another place"
    partial.close()
    before = path.read_bytes()
    with pytest.raises(SourceError) as error:
        FileJournal(str(path), KIND | {"root": "s3://bucket/val"})
    assert str(error.value).startswith(f"{path} holds an unfinished listing of something else: ")
    assert str(error.value).endswith("; write to another place, or delete it")
    assert path.read_bytes() == before
    path.write_bytes(b"somebody's notes")
    with pytest.raises(SourceError) as error:
        FileJournal(str(path), KIND)
    assert (
        str(error.value)
        == f"{path} is not an unfinished listing of this version; move it away, or write to another"
        " place"
    )
    assert path.read_bytes() == b"somebody's notes"
