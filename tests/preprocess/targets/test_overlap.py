"""Source and target: next to each other."""

from __future__ import annotations

import os

import pytest

from fastfeed.errors import ConfigError
from fastfeed.preprocess.targets.overlap import check_overlap


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    for folder in ("photos/2024", "out", "photos[1]"):
        os.makedirs(tmp_path / folder)
    os.symlink(tmp_path / "photos", tmp_path / "link")
    os.symlink(tmp_path / "photos" / "2024", tmp_path / "out" / "year")
    monkeypatch.chdir(tmp_path)


SAME = "are the same"
IN_TARGET = "the source is inside the target"
IN_SOURCE = "the target is inside the source"


@pytest.mark.parametrize(
    ("source", "target", "how"),
    [
        ("photos", "photos", SAME),
        ("photos/", "./out/../photos", SAME),
        ("link", "photos", SAME),
        ("photos", "photos/shards", IN_SOURCE),
        ("photos", "link/new/shards", IN_SOURCE),
        ("photos/2024", "photos", IN_TARGET),
        ("out/year", "link", IN_TARGET),
        ("photos/list.csv", "photos", IN_TARGET),
        ("photos/*/a.tar", "photos", IN_TARGET),
        ("photos/**/*.tar", "photos/out", IN_SOURCE),
        ("photos/*/*.tar", "photos/out", IN_SOURCE),
        ("photos/2*/*.tar", "photos/2025", IN_SOURCE),
        ("photos/{a,b/c}.tar", "photos/out", IN_SOURCE),
        ("photos[1]", "photos[1]/x", IN_SOURCE),
        ("/", "out", IN_SOURCE),
        ("file://{here}/photos", "photos", SAME),
        ("s3://bucket/photos", "s3://bucket/photos/", SAME),
        ("s3://bucket/photos", "s3a://bucket//photos/out", IN_SOURCE),
        ("s3://bucket", "s3://bucket/out", IN_SOURCE),
        ("s3://bucket/photos/*/*.tar", "s3://bucket/photos/out", IN_SOURCE),
        ("gs://bucket/photos/a.tar", "gcs://bucket/photos", IN_TARGET),
        ("sftp://me:word@host/a", "sftp://host/a", SAME),
    ],
)
def test_refused(tmp_path, source, target, how):
    source = source.replace("{here}", str(tmp_path))
    with pytest.raises(ConfigError) as caught:
        check_overlap(source, target)
    assert how in str(caught.value) and str(caught.value).startswith(
        f"source and target must not overlap, got {source} and {target}: "
    )


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("photos", "out"),
        ("photos", "photos2"),
        ("photos2", "photos"),
        ("photos.csv", "photos"),
        ("photos/*.tar", "photos/out"),  # no file of the target is meant by it
        ("photos/1*/*.tar", "photos/2025"),
        ("photos[1]", "photos1/x"),
        ("s3://bucket/photos", "s3://bucket/photos2"),
        ("s3://bucket/photos", "s3://other/photos"),
        ("s3://bucket/photos", "gs://bucket/photos"),
        ("s3://bucket/photos", "bucket/photos"),
        ("nowhere/at/all", "neither/here"),
    ],
)
def test_accepted(source, target):
    check_overlap(source, target)
