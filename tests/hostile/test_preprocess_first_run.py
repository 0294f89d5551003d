"""A first job on the command line: labels are kept or their absence is told, errors name options,
raw works at once.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from helpers.photos import folder, jpeg
from helpers.preprocess.commands import preprocess
from helpers.small_jobs import InlineEngine

from fastfeed.preprocess.job import job as job_module

SMALL = ("--size", "24", "--shard-samples", "6")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(job_module, "engine_for", lambda *_: InlineEngine())
    folder(tmp_path / "photos", {"cats": 6, "dogs": 6}, (40, 56))


def classes(place: str = "shards") -> list[str]:
    """Of the samples in the tars, sorted; only of those with a .cls."""
    found, labeled = [], set()
    for path in sorted(Path(place).glob("*.tar")):
        with tarfile.open(path) as tar:
            for member in tar:
                if member.name.endswith(".cls"):
                    labeled.add(member.name.partition(".")[0])
            found += [
                json.load(tar.extractfile(m)).get("class", "")  # type: ignore[arg-type]
                for m in tar
                if m.name.endswith(".json") and m.name.partition(".")[0] in labeled
            ]
    return sorted(found)


def captions(*header: str) -> str:
    rows = [
        f"{c}/000{k}.jpg,a photo of {c},{c.upper()}" for c in ("cats", "dogs") for k in range(6)
    ]
    Path("captions.csv").write_text("\n".join([",".join(header), *rows]))
    return "captions.csv"


# -- labels


def test_a_table_of_captions_keeps_the_classes_of_the_folder() -> None:
    table = captions("path", "caption", "other")
    assert preprocess("photos", "shards", *SMALL, "--labels", table)[0] == 0
    assert classes() == ["cats"] * 6 + ["dogs"] * 6
    assert preprocess("photos", "none", *SMALL, "--labels", table, "--label", "")[0] == 0
    assert classes("none") == []
    assert preprocess("photos", "other", *SMALL, "--labels", table, "--label", "other")[0] == 0
    assert classes("other") == ["CATS"] * 6 + ["DOGS"] * 6


def test_a_table_without_a_label_column_says_so_before_the_run() -> None:
    Path("photos/t.csv").write_text(
        "path,kind\n" + "".join(f"cats/000{k}.jpg,x{k}\n" for k in range(3))
    )
    code, said = preprocess("photos/t.csv", "shards", *SMALL)
    assert code == 0 and said.index("the shards will have no labels") < said.index("1 of 1 shards")
    assert "photos/t.csv has none as label; name it with label (--label)" in said
    assert "no labels" in preprocess("photos/t.csv", "dry", *SMALL, "--dry-run")[1]
    for k, label in enumerate(("kind", "")):
        assert (
            "no labels" not in preprocess("photos/t.csv", f"more{k}", *SMALL, "--label", label)[1]
        )


def test_photographs_next_to_class_folders_cost_the_classes_and_that_is_told() -> None:
    Path("photos/loose.jpg").write_bytes(jpeg(77, (40, 56)))
    code, said = preprocess("photos", "shards", *SMALL)
    assert (
        code == 0 and "the shards will have no labels: some images lie directly in photos" in said
    )


def test_shards_of_one_class_suggest_a_shuffle() -> None:
    code, said = preprocess("photos", "shards", *SMALL)
    assert (
        code == 0
        and "2 of 2 shards hold one class only" in said
        and "(--shuffle 0) mixes them" in said
    )
    assert "(--shuffle 0) mixes them" in preprocess("photos", "dry", *SMALL, "--dry-run")[1]
    assert "one class only" not in preprocess("photos", "mixed", *SMALL, "--shuffle", "0")[1]
    assert "one class only" not in preprocess("photos", "whole", "--size", "24")[1]
    assert "one class only" not in preprocess("photos", "shards", *SMALL)[1], "it is too late"


# -- raw


@pytest.mark.parametrize(
    ("words", "shape"),
    [(("--size", "24"), (24, 24)), (("--size", "16x32", "--mode", "contain"), (16, 32))],
)
def test_raw_works_in_one_go(words: tuple[str, ...], shape: tuple[int, int]) -> None:
    code, said = preprocess("photos", "shards", "-f", "raw", *words)
    assert code == 0, said
    assert np.load("shards/shard-000000.npy").shape == (12, *shape, 3)


# -- errors


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ("--label", "x"),
            "--label: labels of a folder are its subfolders, got 'x'; pass \"\" for none",
        ),
        (
            ("--caption", "x"),
            "--caption is for shards and tables, got 'x' for the folder photos; pass labels_file (--labels)",
        ),
        (("--size", "0"), "--size must be in [1, 65500] pixels"),
        (("--mode", "wide"), "--mode must be one of"),
        (("--memory", "lots"), "--memory must be"),
        (("--workers", "0"), "--workers must be"),
        (("--shard-samples", "0"), "--shard-samples must be >= 1"),
        (("--max-aspect", "0.5"), "--max-aspect is long side / short side"),
        (("--min-side", "0"), "--min-side must be"),
        (("--quality", "0"), "--quality must be"),
        (("--val", "2"), "--val must be in [0, 1)"),
        (
            ("--image-format", "gif"),
            "--image-format: image must be one of jpeg, webp, png, raw, got 'gif'",
        ),
        (("--only-formats", "jpg"), "--only-formats must be one of JPEG, PNG"),
        (
            ("-f", "raw", "--mode", "long"),
            '--format "raw" holds one array per shard',
        ),
        (("-f", "raw", "--image-format", "png"), "the image format must be raw, got 'png'"),
        (("--part", "9/8"), "--part must be in [0, 8), got 9"),
        (("--exif", "mood"), "--exif must be one of time, camera, lens, gps, got 'mood'"),
        (("--patience", "-1"), "--patience must be seconds >= 0, got -1"),
        (("--timeout", "0"), "--timeout must be > 0 seconds per image, got 0"),
        (
            ("--columns", "foo"),
            "--columns is for shards and tables, got ('foo',) for the folder photos",
        ),
        (
            ("--labels", "captions.csv"),
            "has no column 'label', nor 'caption'; name one with label (--label)",
        ),
        (("--labels", "few.csv"), 'leave such images out: missing="drop" (--drop-unlabeled)'),
    ],
)
def test_errors_name_options(
    words: tuple[str, ...], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    captions("path", "one", "two")
    Path("few.csv").write_text("path,label\ncats/0000.jpg,x\n")
    if {"--memory", "--workers", "--timeout"} & {*words}:
        monkeypatch.undo()
        monkeypatch.chdir(Path("captions.csv").absolute().parent)
    code, said = preprocess("photos", "shards", *words)
    assert code == 2 and text in said, said


def test_what_a_table_may_read_is_said_as_options() -> None:
    Path("photos/t.csv").write_text("path\n/nowhere/a.jpg\nhttp://127.0.0.1:1/b.jpg\n")
    code, said = preprocess("photos/t.csv", "shards", *SMALL)
    words = "--allow-path /nowhere --allow-scheme http --allow-host 127.0.0.1:1"
    assert code == 2 and said.endswith(f"({words})")
    code, said = preprocess("photos", "bad", *SMALL, "--max-bad", "0")
    assert code == 0


def test_a_target_without_credentials_says_which_option(
    s3, monkeypatch: pytest.MonkeyPatch
) -> None:  # type: ignore[no-untyped-def]
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/nowhere")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    endpoint = ["--target-option", f"endpoint_url={s3.options['endpoint_url']}"]
    code, said = preprocess("run", "photos", "s3://bucket/shards", *SMALL, *endpoint)
    assert code == 4 and "pass the storage options key and secret" in said, said
