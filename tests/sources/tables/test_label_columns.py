"""Labels of tables that are no class numbers: numbers, texts, several classes of a sample."""

import json
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.tables import write
from helpers.targets import (
    COLUMNS,
    COUNT,
    FLAGS,
    IMAGES,
    LABELS,
    MATRICES,
    TAGS,
    WANTED,
    images,
    table,
)

import fastfeed as ff
from fastfeed.errors import ConfigError, SourceError
from fastfeed.sources.tables import open_table

FORMATS = ("csv", "jsonl", "parquet", "memory")
VECTORS = np.array(MATRICES, np.float32).reshape(COUNT, 6)
CASES = LABELS["TFRecords"] | {"vector": ("vector", "value")}


def opened(root, format, label, kind, **more):
    if format == "memory":
        made, more["root"] = COLUMNS, images(root)
    else:
        made = table(root, format)
    return ff.Table(made, image="path", label=label, label_kind=kind, **more)


@pytest.mark.parametrize("target", CASES)
@pytest.mark.parametrize("format", FORMATS)
def test_labels_are_what_the_table_holds(tmp_path, format, target):
    wanted = VECTORS if target == "vector" else WANTED[target]
    source = opened(tmp_path, format, *CASES[target])
    found = source.label(np.arange(COUNT))
    np.testing.assert_array_equal(found, wanted)
    assert found.dtype == wanted.dtype and source.label_spec.shape == wanted.shape[1:]
    assert source.read(range(COUNT)) == IMAGES
    names = {"names": ("cat", "dog", "éléphant"), "flags": FLAGS}.get(target, ())
    assert source.classes == names
    again = pickle.loads(pickle.dumps(source))
    np.testing.assert_array_equal(again.label(np.array([5, 5, 0])), wanted[[5, 5, 0]])
    assert again.fingerprint == source.fingerprint


@pytest.mark.parametrize("target", CASES)
def test_labels_are_kept_in_the_cache_of_large_tables(tmp_path, monkeypatch, target):
    monkeypatch.setattr(open_table, "KEEP_BYTES", 1)
    wanted = VECTORS if target == "vector" else WANTED[target]
    for _ in range(2):
        source = opened(tmp_path, "parquet", *CASES[target])
        np.testing.assert_array_equal(source.label(np.arange(COUNT)), wanted)
        assert source._opened.cache_path is not None
    again = pickle.loads(pickle.dumps(source))
    np.testing.assert_array_equal(again.label(np.arange(COUNT)), wanted)


def test_labels_of_several_files_and_row_groups(tmp_path):
    rows = {name: values[:7] for name, values in COLUMNS.items()}
    more = {name: values[7:] for name, values in COLUMNS.items()}
    first = write(images(tmp_path) / "a.parquet", rows, row_group_size=3)
    files = [first, write(tmp_path / "b.parquet", more, row_group_size=2)]
    for target, (label, kind) in CASES.items():
        source = ff.Table(files, image="path", label=label, label_kind=kind)
        wanted = VECTORS if target == "vector" else WANTED[target]
        np.testing.assert_array_equal(source.label(np.arange(COUNT)), wanted)


NULLS = {
    "number": [None, *COLUMNS["price"][1:]],
    "vector": [None, *COLUMNS["vector"][1:]],
    "names": [None, *COLUMNS["tags"][1:]],
    "text": [None, *COLUMNS["caption"][1:]],
}


@pytest.mark.parametrize("target", NULLS)
@pytest.mark.parametrize("format", FORMATS)
def test_a_row_without_a_label_is_a_bad_sample(tmp_path, format, target):
    changed = {CASES[target][0]: NULLS[target]}
    made = COLUMNS | changed if format == "memory" else table(tmp_path, format, **changed)
    label, kind = CASES[target]
    more = {"root": images(tmp_path)} if format == "memory" else {}
    source = ff.Table(made, image="path", label=label, label_kind=kind, **more)
    bad, *good = source.read(range(COUNT))
    assert (bad.reason, bad.detail) == ("label_missing", "row 0: no label")
    assert good == IMAGES[1:]
    wanted = VECTORS if target == "vector" else WANTED[target]
    np.testing.assert_array_equal(source.label(np.arange(1, COUNT)), wanted[1:])
    first = source.label(np.array([0]))
    assert np.isnan(first).all() if kind == "value" else not first.any()


def test_a_row_that_lacks_one_of_several_columns_is_a_bad_sample(tmp_path):
    for label, kind in ((("price", "age"), "value"), (FLAGS, "multi")):
        changed = {label[1]: [*COLUMNS[label[1]][:-1], None]}
        source = ff.Table(
            table(tmp_path, "jsonl", **changed), image="path", label=label, label_kind=kind
        )
        *good, bad = source.read(range(COUNT))
        assert bad.reason == "label_missing" and good == IMAGES[:-1]


def test_an_empty_list_is_a_sample_of_no_class(tmp_path):
    source = opened(tmp_path, "parquet", "tags", "multi")
    assert TAGS[0] == [] and source.label(np.array([0])).tolist() == [[0, 0, 0]]
    assert source.read([0]) == IMAGES[:1]


def test_integers_are_names_of_classes(tmp_path):
    lists = [[10, 9], [9], [], *[[2]] * (COUNT - 3)]
    for format in FORMATS[:3]:
        made = table(tmp_path / format, format, tags=lists)
        source = ff.Table(made, image="path", label="tags", label_kind="multi")
        assert source.classes == ("2", "9", "10")
        assert source.label(np.arange(4)).tolist() == [[0, 1, 1], [0, 1, 0], [0, 0, 0], [1, 0, 0]]


def test_integers_count_classes_of_other_names(tmp_path):
    lists = [[2, 0], [1], [], *[[1]] * (COUNT - 3)]
    for format in FORMATS[:3]:
        made = table(tmp_path / format, format, tags=lists)
        options: dict = {"image": "path", "label": "tags", "label_kind": "multi"}
        source = ff.Table(made, classes=("x", "y", "z", "none"), **options)
        assert source.label(np.arange(3)).tolist() == [[1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
        for classes in (("x", "y"), ("0", "1", "x")):
            with pytest.raises(SourceError, match="labels that are not in classes"):
                ff.Table(made, classes=classes, **options)


def test_integers_are_names_if_a_class_is_called_by_one(tmp_path):
    """What a label means does not depend on the other labels."""
    options: dict = {"image": "path", "label": "tags", "label_kind": "multi"}
    for lists in ([[2, 0], [0]], [[1], [3]], [[0, 1]]):
        made = table(tmp_path, "jsonl", tags=[*lists, *[[]] * (COUNT - len(lists))])
        if lists == [[1], [3]]:
            source = ff.Table(made, classes=("1", "3", "5"), **options)
            assert source.label(np.arange(2)).tolist() == [[1, 0, 0], [0, 1, 0]]
            continue
        text = "not in classes: .*0.*; class '1' is called by an integer, so that integers are"
        with pytest.raises(SourceError, match=text):
            ff.Table(made, classes=("1", "3", "5"), **options)


def test_names_of_a_csv_are_separated(tmp_path):
    texts = ["b;a, c", "b, d", " ", '["a, c"]', "{}", *["b"] * (COUNT - 5)]
    made = table(tmp_path, "csv", tags=texts)
    with pytest.raises(SourceError, match="row 4: column 'tags' must hold lists of names"):
        ff.Table(made, image="path", label="tags", label_kind="multi")
    made = table(tmp_path, "csv", tags=[text.replace("{}", "d") for text in texts])
    source = ff.Table(made, image="path", label="tags", label_kind="multi")
    assert source.classes == ("a, c", "b", "d")
    assert source.label(np.arange(4)).tolist() == [[1, 1, 0], [0, 1, 1], [0, 0, 0], [1, 0, 0]]


def test_classes_order_the_columns(tmp_path):
    names = ("dog", "wolf", "éléphant", "cat")
    source = opened(tmp_path, "csv", "tags", "multi", classes=names)
    wanted = [[float(name in tags) for name in names] for tags in TAGS]
    assert source.classes == names and source.label(np.arange(COUNT)).tolist() == wanted
    flags = opened(tmp_path, "csv", FLAGS, "multi", classes=names)
    assert flags.label(np.arange(COUNT)).tolist() == wanted
    with pytest.raises(SourceError, match="Table: labels that are not in classes: éléphant"):
        opened(tmp_path, "csv", "tags", "multi", classes=("cat", "dog"))


REFUSED = [
    ("price", "value", ["dear"] + ["1"] * 11, "row 0: column 'price' must hold numbers"),
    (
        "price",
        "value",
        [0, 1e39] + [1] * 10,
        "row 1: column 'price' must hold numbers that float32",
    ),
    ("caption", "value", COLUMNS["caption"], "row 0: column 'caption' must hold numbers"),
    ("vector", "value", [[1.0, 2.0], [1.0]] + [[1.0, 2.0]] * 10, "row "),
    ("caption", "multi", COLUMNS["caption"], "row 0: column 'caption' must hold lists of names"),
    ("tags", "multi", [["a"], ["a", ""]] + [["b"]] * 10, "row 1: column 'tags' must hold lists of"),
    ("tags", "multi", [["a"], ["a", None]] + [["b"]] * 10, "row 1: column 'tags' "),
    ("cat", "multi", [0, 2] + [1] * 10, "row 1: column 'cat' must hold 0 or 1, got "),
    ("price", "value", [None] * 12, "no row of .* has a label in column 'price'"),
    ("caption", "text", [None] * 12, "no row of .* has a label in column 'caption'"),
    ("tags", "multi", [None] * 12, "no row of .* has a label in column 'tags'"),
    ("tags", "name", TAGS, "pass label_kind='multi' for several classes of a sample"),
]


@pytest.mark.parametrize(("name", "kind", "values", "text"), REFUSED)
@pytest.mark.parametrize("format", FORMATS[:3])
def test_refused(tmp_path, format, name, kind, values, text):
    if format == "csv" and (kind == "name" or (name, kind) == ("caption", "multi")):
        return  # a list in JSON is the text of a name, and any text is a list of names
    label = [name, "dog"] if name == "cat" else name
    made = table(tmp_path, format, **{name: values})
    with pytest.raises(SourceError, match=f"^Table: .*{text}"):
        ff.Table(made, image="path", label=label, label_kind=kind)


def test_texts_are_utf8(tmp_path):
    texts = pa.StringArray.from_buffers(
        2, pa.py_buffer(np.array([0, 1, 3], np.int32)), pa.py_buffer(b"a\xe9b")
    )
    pq.write_table(pa.table({"path": ["0.jpg", "1.jpg"], "caption": texts}), tmp_path / "t.parquet")
    with pytest.raises(SourceError, match="row 1: column 'caption' must hold texts in UTF-8"):
        ff.Table(tmp_path / "t.parquet", image="path", label="caption", label_kind="text")
    with pytest.raises(SourceError, match="row 1: column 'caption' must hold texts in UTF-8"):
        ff.Table(tmp_path / "t.parquet", image="path", columns=["caption"])
    half = write(tmp_path / "t.jsonl", {"path": ["0.jpg"], "caption": ["\ud800"]})
    with pytest.raises(SourceError, match="row 0: column 'caption' must hold texts in UTF-8"):
        ff.Table(half, image="path", columns=["caption"])
    with pytest.raises(SourceError, match="row 0: column 'caption' must hold texts in UTF-8"):
        ff.Table(half, image="path", label="caption", label_kind="text")


def test_numbers_are_no_texts(tmp_path):
    with pytest.raises(SourceError, match=r"column 'price' must hold texts, got 1\.5"):
        opened(tmp_path, "parquet", "price", "text")


def test_lists_of_names_are_no_column(tmp_path):
    with pytest.raises(SourceError, match="column 'tags' must hold numbers, bools, texts or lists"):
        opened(tmp_path, "parquet", "tags", "multi", columns=["tags"])


def test_none_has_no_labels(tmp_path):
    source = opened(tmp_path, "csv", "price", "none")
    assert source.label(np.arange(3)).tolist() == [-1, -1, -1] and not source.classes


def test_the_names_of_a_schema_are_for_class_numbers_alone(tmp_path):
    about = {"info": {"features": {"price": {"names": ["x"], "_type": "ClassLabel"}}}}
    content = pa.table({"path": ["0.jpg", "1.jpg"], "price": [1, 7]}).replace_schema_metadata(
        {"huggingface": json.dumps(about)}
    )
    pq.write_table(content, images(tmp_path) / "t.parquet")
    source = ff.Table(tmp_path / "t.parquet", image="path", label="price", label_kind="value")
    assert source.label(np.arange(2)).tolist() == [1, 7] and not source.classes


@pytest.mark.parametrize(
    ("labels", "kind", "wanted"),
    [
        (COLUMNS["price"], "value", WANTED["number"]),
        (np.array(MATRICES), "value", WANTED["array"]),
        (TAGS, "multi", WANTED["names"]),
        (COLUMNS["caption"], "text", WANTED["text"]),
    ],
)
def test_files_take_lists_of_labels(tmp_path, labels, kind, wanted):
    paths = [images(tmp_path) / name for name in COLUMNS["path"]]
    source = ff.Files(paths, labels, label_kind=kind)
    np.testing.assert_array_equal(source.label(np.arange(COUNT)), wanted)
    assert source.read(range(COUNT)) == IMAGES


def test_several_labels_need_a_kind(tmp_path):
    with pytest.raises(ConfigError, match="pass label_kind='value', or 'multi' for columns of 0"):
        ff.Table(table(tmp_path, "csv"), image="path", label=["price", "age"])


@pytest.mark.parametrize("source", [ff.Table, ff.HuggingFace])
def test_integers_in_lists_count_the_classes_of_the_schema(tmp_path, source):
    feature = {"feature": {"names": ["sky", "sea", "land"], "_type": "ClassLabel"}, "_type": "List"}
    about = {"info": {"features": {"tags": feature, "image": {"_type": "Image"}}}}
    content = pa.table({"image": IMAGES[:3], "tags": [[2, 0], [], [1]]}).replace_schema_metadata(
        {"huggingface": json.dumps(about)}
    )
    pq.write_table(content, tmp_path / "t.parquet")

    def opened(**more):
        return source(
            tmp_path / "t.parquet", image="image", label="tags", label_kind="multi", **more
        )

    assert opened().classes == ("sky", "sea", "land")
    assert opened().label(np.arange(3)).tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    other = opened(classes=["land", "sea", "sky", "fog"])
    assert other.label(np.arange(3)).tolist() == [[1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 0, 0]]
    pq.write_table(content.set_column(1, "tags", pa.array([[3], [0], [1]])), tmp_path / "t.parquet")
    with pytest.raises(SourceError, match="has a class 3, but there are 3 classes"):
        opened()
