"""`fastfeed index`: what it writes, what it says, and how it resumes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from helpers.commands import CliRunner, command_line
from helpers.records import record_folder
from helpers.remotes import uploaded
from helpers.shards import shard_folder
from helpers.trees import tree

from fastfeed.cli import app
from fastfeed.sources import ImageFolder, Storage, TarShards
from fastfeed.sources.listing.listing import list_images
from fastfeed.sources.listing.local_tree import LocalTree

FILES = (
    *(f"{c}/{i}.jpg" for c in "abc" for i in range(4)),
    "a/more.jpg",
    "x.jpg",
    "b/n.txt",
    "none/n.txt",
    ".hidden",
)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


def run(*arguments: object) -> dict[str, str]:
    """What the command printed, by the first word of the line."""
    done = CliRunner().invoke(app, ["index", *map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    first, *lines = done.stdout.splitlines()
    assert first == str(arguments[0])
    return {line[:14].strip(): line[14:].strip() for line in lines if line.strip()}


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize("out", [None, "some.csv"])
def test_a_folder(tmp_path, remote, out):
    root = tree(tmp_path / "photos", *FILES)
    place = uploaded(root) if remote else "photos"
    said = run(place, *(["-o", out] if out else []))
    written = out or "photos.parquet"
    assert said.pop("took").endswith(" s")
    listing, _, size = said.pop("listing").partition(", ")
    assert listing == written and size.endswith(("bytes", "kB"))
    assert said == {
        "images": "14",
        "classes": "3, of 4 to 5 images",
        "no class": "1 image, directly in it",
        "size": "99 bytes, 7 bytes per image",
        "empty": "1 folder without images",
        "left out": "2 .txt, 1 (hidden)",
        "Use it:  ff.Im": f"ageFolder({place!r}, listing={written!r})",
    }
    assert len(ImageFolder(place, listing=written)) == 13
    assert not list(tmp_path.glob("*.partial"))


def test_a_folder_without_classes(tmp_path):
    tree(tmp_path / "photos", "1.jpg", "2.jpg")
    said = run("photos", "--out", "flat.jsonl")
    assert (said["images"], said["classes"], said["no class"]) == (
        "2",
        "none",
        "2 images, directly in it",
    )
    assert said["Use it:  ff.Im"] == "ageFolder('photos', listing='flat.jsonl', labeled=False)"
    assert len(ImageFolder("photos", listing="flat.jsonl", labeled=False)) == 2


def test_tar_shards(tmp_path):
    shard_folder(tmp_path / "shards", (3, 1, 4))
    (pattern,) = {f"{path.parent}/*.tar" for path in (tmp_path / "shards").glob("*.tar")}
    said = run(pattern, "--out", "kept.ffindex")
    source = TarShards(pattern, index="kept.ffindex")
    assert said["samples"] == "8" == str(len(source))
    assert said["shards"] == "3, of 1 to 4 samples"
    assert Path(said["index"].partition(",")[0]) == tmp_path / "kept.ffindex"
    assert said["Use it:  ff.Ta"] == f"rShards({pattern!r}, index='kept.ffindex')"
    assert "notes" not in said
    said = run(pattern, "--label", "none")
    assert (said["classes"], said["no label"]) == ("none", "8 samples")
    assert said["Use it:  ff.Ta"] == f"rShards({pattern!r}, label=None)"
    assert Path(said["index"].partition(",")[0]).is_file()


def test_notes_on_damage(tmp_path):
    shard_folder(tmp_path / "shards", (3, 4))
    last = max((tmp_path / "shards").glob("*.tar"))
    last.write_bytes(last.read_bytes()[:2500])
    said = run(f"{last.parent}/*.tar")
    assert last.name in said["notes"] and "cut off" in said["notes"]


def test_records(tmp_path):
    record_folder(tmp_path / "records", (3, 1))
    names = [path.name for path in (tmp_path / "records").iterdir()]
    suffix = Path(min(names)).suffix
    said = run(f"{tmp_path}/records/*{suffix}", "--label", "image/class/label")
    assert (said["samples"], said["shards"]) == ("4", "2, of 1 to 3 samples")
    assert said["Use it:  ff.TF"].startswith("Records(")


def test_ctrl_c_says_how_to_go_on(tmp_path, monkeypatch):
    tree(tmp_path / "photos", *FILES)
    below = LocalTree.below

    def breaks(self, folders, left_outs):
        if folders == ["c"]:
            raise KeyboardInterrupt
        return below(self, folders, left_outs)

    monkeypatch.setattr(LocalTree, "below", breaks)
    done = CliRunner().invoke(app, ["index", "photos", "-o", "all.csv"])
    assert done.exit_code == 130
    assert (
        done.stderr
        == "interrupted: 2 of 4 folders are listed and saved in all.csv.partial; run the same"
        " command again to resume\n"
    )
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert run("photos", "-o", "all.csv")["resumed"] == "2 of 4 folders from an earlier run"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere",), "nowhere does not exist; pass the folder that holds the images"),
        (
            ("photos", "-o", "x.txt"),
            "index: a listing must end in .parquet, .csv, .jsonl, got x.txt",
        ),
        (("photos", "--label", "cls"), "--label is for shards: an image's class is its folder"),
        (
            ("train.parquet",),
            "train.parquet is a table, which needs no index: Table('train.parquet', image=...)",
        ),
        (("photos", "--storage-option", "anon"), "--storage-option must be name=value"),
        (("train-{0..3}.tar",), "cannot open train-0.tar"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(tmp_path, arguments, words):
    tree(tmp_path / "photos", "a/1.jpg")
    done = command_line("index", *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_options_for_storage(tmp_path, s3):
    for i in range(3):
        s3.put(f"test-cli-index/train/a/{i}.jpg", b"x" * 400)
    options = [
        word
        for name, value in s3.options.items()
        for word in ("--storage-option", f"{name}={value}")
    ]
    said = run("s3://test-cli-index/train", *options, "--workers", 2)
    assert (said["images"], said["size"]) == ("3", "1.2 kB, 400 bytes per image")
    assert said["listing"].startswith("train.parquet, ")


def test_progress_is_for_terminals(tmp_path, capsys, monkeypatch):
    root = str(tree(tmp_path / "photos", *FILES))
    list_images(root, "one.csv", storage=Storage())
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    list_images(root, "one.csv", storage=Storage(), progress=False)
    assert capsys.readouterr().err == ""
    list_images(root, "one.csv", storage=Storage())
    shown = capsys.readouterr().err
    assert "writing one.csv" in shown
    assert "4/4" in shown and "folders, 14 images" in shown
