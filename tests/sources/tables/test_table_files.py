"""Table: which files it consists of, and what is refused before any of them is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.tables import FORMATS, write

from fastfeed.errors import ConfigError, SourceError
from fastfeed.sources import Table


def paths(folder: Path, *images: str, name: str = "t.csv") -> Path:
    return write(folder / name, {"path": list(images)})


def test_folders_and_patterns(tmp_path):
    for i in range(3):
        paths(tmp_path, "x.jpg", name=f"t-{i:02}.csv")
    (tmp_path / "README.md").touch()
    (tmp_path / "_SUCCESS.csv").touch()
    (tmp_path / "x.jpg").touch()
    for given in (
        tmp_path,
        f"file://{tmp_path}",
        str(tmp_path / "t-{00..02}.csv"),
        f"{tmp_path}/t-*.csv",
        [tmp_path / f"t-{i:02}.csv" for i in range(3)],
    ):
        assert len(Table(given, image="path")) == 3


def test_a_folder_called_like_a_table(tmp_path):
    """As Spark writes them."""
    write(tmp_path / "t.parquet" / "part-0.snappy.parquet", {"path": ["x.jpg"]})
    (tmp_path / "t.parquet" / "_SUCCESS").touch()
    source = Table(tmp_path / "t.parquet", image="path")
    assert source.uri(0) == str(tmp_path / "t.parquet" / "x.jpg")


REFUSED = {
    "not there": (lambda d: Table(d / "no.csv", image="path"), "Table: cannot open {d}/no.csv"),
    "no table in the folder": (lambda d: Table(d, image="path"), "Table: nothing matches {d}/*"),
    "of no known kind": (
        lambda d: Table(write(d / "t.xlsx", {"path": ["x"]}), image="path"),
        "Table: cannot tell from its name how {d}/t.xlsx is written; .csv, .tsv, .jsonl, .ndjson, .json, .parquet, .arrow can",
    ),
    "of two kinds": (
        lambda d: Table([paths(d, "x"), paths(d, "y", name="t.jsonl")], image="path"),
        "Table: all files must have one format, got CSV and JSON lines; pass the files of one of them",
    ),
    "nothing": (lambda d: Table([], image="path"), "Table needs a path, a pattern"),
    "None": (lambda d: Table(None, image="path"), "Table needs a path, a pattern"),
    "numbers": (lambda d: Table([1, 2], image="path"), "Table needs a path, a pattern"),
    "no name": (
        lambda d: Table(paths(d, "x"), image=None),
        "Table needs image=, the column of paths or images, or path=, a template such as"
        " '{{id}}.jpg', got neither; pass one of them",
    ),
    "image and path": (
        lambda d: Table(paths(d, "x"), image="path", path="{path}.jpg"),
        "or path=, a template such as '{{id}}.jpg', got both; pass one of them",
    ),
    "a number": (
        lambda d: Table(paths(d, "x"), image="path", label=3),
        "Table: label must be a name, several names, each once, or None, got 3",
    ),
    "two boxes": (
        lambda d: Table(paths(d, "x"), image="path", box=("a", "b")),
        "Table: box must name one column, or four (x, y, width, height), got ('a', 'b')",
    ),
    "one column for two sides": (
        lambda d: Table(paths(d, "x"), image="path", box=("a", "b", "c", "c")),
        "Table: box must name one column, or four",
    ),
    "a text for columns": (
        lambda d: Table(paths(d, "x"), image="path", columns="label"),
        "Table: columns must be a list of names, got 'label'; pass ['label']",
    ),
    "a text for classes": (
        lambda d: Table(paths(d, "x"), image="path", classes="owl"),
        "Table: classes must be a list of names, each once, got 'owl'; pass ['owl']",
    ),
    "a number for columns": (
        lambda d: Table(paths(d, "x"), image="path", columns=(1,)),
        "Table: columns must be names of columns, got (1,)",
    ),
    "memory": (
        lambda d: Table(paths(d, "x"), image="path", memory="lots"),
        "Table: memory must be bytes > 0, or a string such as \"2GB\", got 'lots'",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(tmp_path, what):
    make, text = REFUSED[what]
    with pytest.raises((ConfigError, SourceError)) as error:
        make(tmp_path)
    assert text.format(d=tmp_path) in str(error.value)


def test_a_folder_without_tables(tmp_path):
    (tmp_path / "x.jpg").touch()
    with pytest.raises(SourceError) as error:
        Table(tmp_path, image="path")
    assert str(error.value).startswith(f"Table: no table in {tmp_path}; .csv, .tsv")


@pytest.mark.parametrize("format", FORMATS)
def test_a_column_that_is_not_there(tmp_path, format):
    table = write(tmp_path / f"t.{format}", {"path": ["x"], "label": [1]})
    for more in (
        {"image": "file"},
        {"image": "path", "label": "file"},
        {"image": "path", "columns": ["file"]},
    ):
        with pytest.raises(ConfigError) as error:
            Table(table, **more)
        assert str(error.value).startswith(
            f"Table: no column 'file' in {table}; it has 'path', 'label'"
        )


@pytest.mark.parametrize("format", FORMATS)
def test_no_rows(tmp_path, format):
    write(tmp_path / f"t.{format}", {"path": ["x"]})
    table = write(
        tmp_path / f"u.{format}",
        {"path": ["x"][:0]} if format != "parquet" else {"path": np.array([], str)},
    )
    with pytest.raises(SourceError) as error:
        Table(table, image="path")
    assert str(error.value) in (f"Table: {table} has no rows", f"Table: {table} is empty")
    assert len(Table([table, tmp_path / f"t.{format}"], image="path")) == 1
