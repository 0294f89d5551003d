"""Names with accents in Unicode's two forms: macOS writes `é` as two characters (NFD), other
systems as one (NFC).
"""

from __future__ import annotations

import json
import unicodedata

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers.commands import CliRunner
from helpers.photos import jpeg
from helpers.shards import tar_of
from helpers.tables import write

import fastfeed as ff
from fastfeed.cli import app
from fastfeed.errors import ConfigError, SourceError
from fastfeed.sources.class_names import class_names, code_points

NFC, NFD = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))


def _folder(root, *names):
    for k, name in enumerate(names):
        (root / name).mkdir(parents=True)
        (root / name / f"{k}.jpg").write_bytes(jpeg(k, (32, 32)))
    return root


def _tar(folder, names, **options):
    members = [
        member
        for k, name in enumerate(names)
        for member in (
            (f"{k}.jpg", jpeg(k, (8, 8))),
            (f"{k}.json", json.dumps({"key": name}).encode()),
        )
    ]
    (folder / "a.tar").write_bytes(tar_of(members))
    return ff.TarShards(folder / "a.tar", label="json:key", **options)


def _table(folder, names, format, **options):
    table = write(
        folder / f"t.{format}", {"image": [f"{k}.jpg" for k in range(len(names))], "key": names}
    )
    return ff.Table(table, image="image", label="key", **options)


SOURCES = {
    "tar": _tar,
    "csv": lambda folder, names, **options: _table(folder, names, "csv", **options),
    "parquet": lambda folder, names, **options: _table(folder, names, "parquet", **options),
}
everywhere = pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)


def _labels(source):
    return source.label(np.arange(len(source))).tolist()


def test_classes_of_a_folder_are_found_in_the_other_form(tmp_path):
    train = ff.ImageFolder(_folder(tmp_path / "train", "thé", NFC))
    val = ff.ImageFolder(_folder(tmp_path / "val", NFD), classes=train.classes)
    assert train.classes == (NFC, "thé")
    assert (val.classes, _labels(val)) == (train.classes, [0])
    assert val.uri(0) == str(tmp_path / "val" / NFD / "0.jpg")  # as it is on the disk
    assert len(val.read([0])[0]) > 0


def test_two_folders_of_one_name_are_an_error_that_shows_characters(tmp_path):
    _folder(tmp_path / "both", NFC, NFD)
    with pytest.raises(SourceError) as error:
        ff.ImageFolder(tmp_path / "both")
    assert "caf<U+00E9>" in str(error.value) and "cafe<U+0301>" in str(error.value)
    assert len(ff.ImageFolder(tmp_path / "both", labeled=False)) == 2


@everywhere
def test_both_forms_are_one_class(tmp_path, make):
    source = make(tmp_path, [NFD, "the", NFC])
    assert (source.classes, _labels(source)) == ((NFC, "the"), [0, 1, 0])


@everywhere
@pytest.mark.parametrize("classes", [(NFC, "the"), (NFD, "the")], ids=["NFC", "NFD"])
def test_classes_that_are_given_match_both_forms(tmp_path, make, classes):
    source = make(tmp_path, [NFD, "the", NFC], classes=classes)
    assert (source.classes, _labels(source)) == (classes, [0, 1, 0])


@everywhere
def test_one_form_alone_stays_as_it_is(tmp_path, make):
    assert make(tmp_path, [NFD, "the"]).classes == (NFD, "the")


def test_classes_that_are_given_in_both_forms_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="each once"):
        ff.ImageFolder(_folder(tmp_path / "p", NFC), classes=[NFC, NFD])


def test_a_mixture_merges_them(tmp_path):
    one, other = (ff.ImageFolder(_folder(tmp_path / name, name)) for name in (NFC, NFD))
    mixed = ff.Mixture([one, other], [1, 1])
    assert (mixed.classes, _labels(mixed)) == ((NFC,), [0, 0])


def _preprocess(*arguments):
    return CliRunner().invoke(
        app, ["preprocess", *map(str, arguments), "--size", "16", "-f", "parquet", "-w", "1"]
    )


def test_a_labels_file_of_another_system_matches(tmp_path):
    _folder(tmp_path / "p", NFD, "the")
    (tmp_path / "labels.csv").write_text(f"path,label\n{NFC}/0.jpg,cat\nthe/1.jpg,dog\n")
    result = _preprocess(tmp_path / "p", tmp_path / "out", "--labels", tmp_path / "labels.csv")
    assert result.exit_code == 0, result.output
    rows = [
        row for file in tmp_path.glob("out/*.parquet") for row in pq.read_table(file).to_pylist()
    ]
    assert {row["uri"]: row["class"] for row in rows} == {f"{NFD}/0.jpg": "cat", "the/1.jpg": "dog"}


def test_a_job_of_two_folders_of_one_name_is_refused(tmp_path):
    """Rather than made without labels."""
    result = _preprocess(_folder(tmp_path / "p", NFC, NFD), tmp_path / "out")
    assert isinstance(result.exception, SourceError) and "cafe<U+0301>" in str(result.exception)


def test_a_labels_file_with_both_forms_of_a_path_is_refused(tmp_path):
    _folder(tmp_path / "p", unicodedata.normalize("NFD", "àé"))
    half = "à" + unicodedata.normalize("NFD", "é")
    (tmp_path / "labels.csv").write_text(f"path,label\nàé/0.jpg,cat\n{half}/0.jpg,dog\n")
    result = _preprocess(tmp_path / "p", tmp_path / "out", "--labels", tmp_path / "labels.csv")
    assert "rows 0 and 1 have one path" in str(result.exception)
    assert "<U+00E9>" in str(result.exception) and "e<U+0301>" in str(result.exception)


def test_appending_to_a_job_after_a_copy_by_another_system(tmp_path):
    _folder(tmp_path / "p", NFD, "the")
    assert _preprocess(tmp_path / "p", tmp_path / "out").exit_code == 0
    (tmp_path / "p" / NFD).rename(tmp_path / "p" / NFC)
    (tmp_path / "p" / NFC / "more.jpg").write_bytes(jpeg(9, (32, 32)))
    result = _preprocess(tmp_path / "p", tmp_path / "out", "--append")
    assert result.exit_code == 0, result.output
    rows = [
        row for file in tmp_path.glob("out/*.parquet") for row in pq.read_table(file).to_pylist()
    ]
    assert sorted(row["uri"].rpartition("/")[2] for row in rows) == ["0.jpg", "1.jpg", "more.jpg"]
    assert {row["label"] for row in rows if "caf" in row["uri"]} == {0}


def test_names_and_their_order():
    assert class_names([NFD, "b", NFC]) == ("b", NFC)
    assert class_names(["10", "9", "9"]) == ("9", "10")
    assert code_points(NFD) == "cafe<U+0301>"
