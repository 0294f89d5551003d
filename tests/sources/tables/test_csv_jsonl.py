"""Table: CSV and JSON lines as people write them, and what is wrong with them, by line."""

from __future__ import annotations

import csv
import io
import json

import pytest
from helpers.tables import every, labels
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.errors import ConfigError, FastfeedError, SourceError
from fastfeed.sources import Table
from fastfeed.sources.tables import csv_jsonl as lines_module
from fastfeed.sources.tables.csv_jsonl import read_csv, read_json
from fastfeed.sources.tables.read_files import MEMORY

READ = {
    "a byte order mark": "\ufeffpath,label\na,1\nb,2\n",
    "lines that end as on Windows": "path,label\r\na,1\r\nb,2\r\n",
    "no end of the last line": "path,label\na,1\nb,2",
    "empty lines": "path,label\n\na,1\n\n\nb,2\n\n",
    "quotes": '"path","label"\n"a","1"\n"b",2\n',
    "more columns": 'x,label,path,path2\n"1\n2",1,a,"x, y"\n,2,b,"""q"""\n',
}


@pytest.mark.parametrize("what", READ)
def test_csv_that_can_be_read(tmp_path, what):
    (tmp_path / "t.csv").write_bytes(READ[what].encode())
    source = Table(tmp_path / "t.csv", image="path", label="label", label_kind="index", root="/r")
    assert [source.uri(i) for i in range(len(source))] == ["/r/a", "/r/b"]
    assert labels(source) == [1, 2]


def test_tabs(tmp_path):
    (tmp_path / "t.tsv").write_text("path\tlabel\na, b\t1\n")
    source = Table(tmp_path / "t.tsv", image="path", label="label", label_kind="index", root="/r")
    assert (source.uri(0), labels(source)) == ("/r/a, b", [1])


CSV = {
    "too few fields": ("path,label\na,1\nb\n", "{t}, line 3: 1 fields, the header has 2"),
    "too many fields": ("path,label\na,1\nb,2,3\n", "{t}, line 3: 3 fields, the header has 2"),
    "counted by lines": ('path,label\n"a\n\n",1\nb\n', "{t}, line 5: 1 fields, the header has 2"),
    "a quote that is not closed": (
        'path,label\na,1\n"b,2\nc,3\n',
        "{t}, line 4: unexpected end of data",
    ),
    "text behind a quote": ('path,label\na,1\n"b"c,2\n', "{t}, line 3: ',' expected after '\"'"),
    "not UTF-8": (
        b"path,label\na,1\nb\xe4r,2\n",
        "{t}, line 3: not UTF-8 (byte 0xe4 at 1); save the table as UTF-8",
    ),
    "UTF-16": ("path,label\na,1\n".encode("utf-16"), "{t}, line 1: not UTF-8 (byte 0xff at 0)"),
    "empty": ("", "{t} has no header; its first line must name the columns"),
    "begins with an empty line": ("\na,1\n", "{t} has no header"),
    "no header": (
        "a.jpg,1\nb.jpg,2\n",
        "no column 'path' in {t}; it has 'a.jpg', '1'; the first line must name the",
    ),
    "spaces": ("label, path\n1,a\n", "no column 'path' in {t}; it has 'label', ' path'"),
    "semicolons": (
        "path;label\na;1\n",
        "it has 'path;label'; is it separated by semicolons? Save it with commas",
    ),
    "one name twice": (
        "path,label,path\na,1,b\n",
        "2 columns of {t} are called 'path'; give them different names",
    ),
    "many columns": (
        ",".join(f"c{i}" for i in range(1000)) + "\n",
        "it has " + ", ".join(f"'c{i}'" for i in range(30)) + " and 970 more; the first line",
    ),
}


@pytest.mark.parametrize("what", CSV)
def test_csv_that_is_refused(tmp_path, what):
    content, text = CSV[what]
    table = tmp_path / "t.csv"
    table.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises((SourceError, ConfigError)) as error:
        Table(table, image="path", label="label")
    assert str(error.value).startswith("Table: ")
    assert text.format(t=table) in str(error.value)


JSON = {
    "cut off": ('{"path": "a"}\n{"path": "b\n', "{t}, line 2: not JSON (Unterminated string"),
    "no JSON": ('{"path": "a"}\n\npath: b\n', "{t}, line 3: not JSON (Expecting value"),
    "not UTF-8": (
        b'{"path": "a"}\n{"path": "\xe4"}\n',
        "{t}, line 2: not JSON ('utf-8' codec can't decode",
    ),
    "deep": ('{"path": ' + "[" * 100_000 + "\n", "{t}, line 1: not JSON (maximum recursion depth"),
    "digits": ('{"path": ' + "1" * 10_000 + "}\n", "{t}, line 1: not JSON (Exceeds the limit"),
    "one array": (
        '[{"path": "a"},\n{"path": "b"}]\n',
        "{t}, line 1: not an object like {{...}}, but b'[{{\"path",
    ),
    "one array in one line": (
        '[{"path": "a"}]\n',
        "; write one object per line instead of one array",
    ),
    "a number": ('{"path": "a"}\n7\n', "{t}, line 2: not an object like {{...}}, but b'7\\n'"),
    "no such key": (
        '{"file": "a"}\n{"label": 1}\n',
        "no column 'path' in {t}; it has 'file', 'label'",
    ),
    "of two kinds": (
        '{"path": "a"}\n{"path": null}\n{"path": 7}\n',
        "{t}, row 2: column 'path' holds 7; a column holds numbers, or texts, or lists of numbers, "
        'and this one began with "a"',
    ),
    "numbers, then a text": (
        '{"path": 1}\n{"path": 2.5}\n{"path": "a"}\n',
        "{t}, row 2: column 'path' holds \"a\"",
    ),
    "an object": ('{"path": {"x": 1}}\n', "{t}, row 0: column 'path' holds {{\"x\": 1}}"),
    "empty": ("", "{t} has no rows"),
    "only empty lines": ("\n\n", "{t} has no rows"),
}


@pytest.mark.parametrize("what", JSON)
def test_json_that_is_refused(tmp_path, what):
    content, text = JSON[what]
    table = tmp_path / "t.jsonl"
    table.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises((SourceError, ConfigError)) as error:
        Table(table, image="path")
    assert text.format(t=table) in str(error.value)


def test_json_keys_that_are_not_everywhere(tmp_path):
    (tmp_path / "t.ndjson").write_text('\ufeff{"path": "a"}\n\n{"path": "b", "year": 5}\n')
    source = Table(tmp_path / "t.ndjson", image="path", columns=["year"])
    assert source.columns(every(source))["year"].tolist() == [
        pytest.approx(float("nan"), nan_ok=True),
        5,
    ]


def test_a_table_that_may_not_be_read(tmp_path, monkeypatch):
    table = tmp_path / "t.csv"
    table.write_text("path\na\n")

    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refused)
    with pytest.raises(SourceError) as error:
        Table(table, image="path")
    assert str(error.value) == f"Table: cannot read {table}: Permission denied"


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_many_rows_are_read_in_portions(tmp_path, monkeypatch, name):
    """Types are those of the whole column, and rows are counted through."""
    monkeypatch.setattr(lines_module, "_ROWS", 3)
    numbers = [0, 1, 2, 3, 4, 5, 6, 7.5, 8.5, 9.5]
    rows = [
        {"path": f"{i}", "n": n, "kind": "ab"[i % 2], "gap": None if i < 4 else i}
        for i, n in enumerate(numbers)
    ]
    if name == "t.csv":
        with (tmp_path / name).open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    else:
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = Table(tmp_path / name, image="path", label="kind", columns=["n", "gap"], root="/r")
    found = source.columns(every(source))
    assert found["n"].tolist() == numbers
    assert found["gap"][4:].tolist() == [4, 5, 6, 7, 8, 9]
    assert labels(source) == [0, 1] * 5
    assert [source.uri(i) for i in (2, 3, 9)] == ["/r/2", "/r/3", "/r/9"]
    with pytest.raises(SourceError, match="row 5: column 'n' must hold numbers >= 0, got -5"):
        text = (tmp_path / name).read_text().replace('"n": 5', '"n": -5').replace("5,5,", "5,-5,")
        (tmp_path / name).write_text(text)
        Table(tmp_path / name, image="path", weight="n")


TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6)
PIECES = [*(b"%c" % c for c in b'",\n\ra\xff\x001{}:[]'), b'{"a":1}', b'{"a":null}\n']


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=8))
def test_csv_comes_back_as_it_was_written(rows):
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["a", "b"])
    writer.writerows(rows)
    blocks = [io.BytesIO(text.getvalue().encode())]
    parts = list(read_csv(blocks, "t", {"b": False, "a": True}, ",", MEMORY))
    assert [text for part in parts for text in part["b"].values.tolist()] == [
        row[1] for row in rows
    ]
    codes = [part["a"].values for part in parts]
    assert [c.texts[code] for c in codes for code in c.codes.tolist()] == [row[0] for row in rows]


@given(st.lists(st.sampled_from(PIECES), max_size=30))
def test_whatever_lies_in_a_file_the_error_is_ours(pieces):
    data = b"".join(pieces)
    for read in (
        lambda: read_csv([io.BytesIO(b"a,b\n" + data)], "t", {"a": False, "b": True}, ",", MEMORY),
        lambda: read_csv([io.BytesIO(data)], "t", {"a": False}, "\t", MEMORY),
        lambda: read_json([io.BytesIO(b'{"a": 2}\n' + data)], "t", {"a": True}, MEMORY),
    ):
        try:
            assert sum(len(part["a"]) for part in read()) <= data.count(b"\n") + 2
        except FastfeedError as error:
            assert str(error).startswith("Table: ")
