"""`fastfeed plan`: figures that add up, a picture, and clear refusals."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from helpers.commands import CliRunner
from helpers.hugging_face import README, repository
from helpers.photos import folder
from helpers.shards import shard_folder
from PIL import Image, ImageDraw

from fastfeed.cli import app
from fastfeed.cli.open_source import storage_options
from fastfeed.cli.plan.files import group_samples
from fastfeed.errors import ConfigError, SourceError
from fastfeed.sources import ImageFolder
from fastfeed.sources.detect import detect_kind


def plan(*arguments: object) -> str:
    done = CliRunner().invoke(app, ["plan", *map(str, arguments)], env={"COLUMNS": "120"})
    if done.exception is not None:
        raise done.exception
    return done.output


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shard_folder(tmp_path_factory.mktemp("plan") / "shards", [12] * 8)


def test_says_what_every_rank_reads(shards: Path):
    out = plan(shards / "s-{000..007}.tar", "--world-size", 4, "--batch", 4, "--speed", 10)
    assert "TarShards(" in out and "96 images" in out
    assert re.search(
        r"4 ranks x batch 4 = 16 samples per step, 6 steps, shuffle full; an epoch takes 2\.4 s",
        out,
    )
    for row in (
        "samples per rank and epoch",
        "shards in a global batch",
        "one read per sample, all ranks",
    ):
        assert row in out
    assert re.search(r"\n +min +mean +max\n", out) and "least" not in out


def test_one_of_something_is_singular_and_short_times_are_not_zero(shards: Path):
    out = plan(shards / "s-{000..007}.tar", "--world-size", 1, "--batch", 96, "--speed", 2000)
    assert (
        "1 rank x batch 96 = 96 samples per step, 1 step, shuffle full; an epoch takes 48 ms" in out
    )
    assert "shards per machine of 1 rank and epoch" in out


def test_figures_add_up(shards: Path):
    found = json.loads(
        plan(shards / "*.tar", "-w", 4, "-b", 4, "--speed", 10, "--json", "--ranks-per-node", 2)
    )
    sizes = sum(path.stat().st_size for path in shards.glob("*.tar"))
    assert found["samples_per_rank"] == {"least": 24, "mean": 24, "most": 24}
    assert found["requests_per_s_all"] == 40
    assert 0 < found["bytes_per_rank"]["mean"] * 4 < sizes
    assert found["bytes_per_s_all"] == pytest.approx(
        found["bytes_per_rank"]["mean"] * 4 / found["epoch_s"]
    )
    assert found["units"] == 8 and found["units_per_node_epoch"]["most"] == 8


def test_blocks_read_from_fewer_shards(shards: Path):
    def touched(*more: object) -> float:
        return json.loads(plan(shards / "*.tar", "-w", 4, "-b", 4, "--json", *more))[
            "units_per_rank_epoch"
        ]["mean"]

    assert touched("--blocks", 1, "--lanes", 4) <= 3 < touched()


def test_draws_a_picture(shards: Path, tmp_path: Path):
    out = tmp_path / "plan.png"
    assert "plan.png" in plan(shards / "*.tar", "-w", 3, "-b", 2, "-o", out).replace("\n", "")
    with Image.open(out) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    assert (
        len(np.unique(pixels[70:480, 95:1080].reshape(-1, 3), axis=0)) >= 8
    )  # a color for every shard


def colors(path: Path, columns: slice) -> np.ndarray:
    """The places in the color map of pixels in the rows of both groups, float (2, columns): 0
    least, 1 most.
    """
    from fastfeed.cli.plan.picture import _VIRIDIS

    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB"))[[150, 400], columns].astype(int)
    return np.abs(pixels[:, :, None] - _VIRIDIS.astype(int)).sum(axis=-1).argmin(axis=-1) / 255


def test_draws_how_often_each_class_of_a_folder_is_in_the_batches(tmp_path: Path):
    source, out = folder(tmp_path / "photos", {"cat": 60, "dog": 20}), tmp_path / "plan.png"
    plan(source, "-w", 2, "-b", 4, "-o", out)
    panel = colors(out, slice(310, 1100, 80))  # each of 10 steps
    assert panel.shape == (2, 10) and len(np.unique(panel[0])) > 2
    cats, dogs = panel.mean(axis=1)
    assert cats == pytest.approx(0.5, abs=0.02) and dogs == pytest.approx(0.5, abs=0.1), (
        "1x: shares are normalized"
    )


def test_draws_the_listing_of_a_folder_without_classes_evenly(tmp_path: Path):
    """20 samples in 2 stretches, neither of which is brighter than the other for having more
    samples.
    """
    source, out = folder(tmp_path / "photos", {"cat": 20}) / "cat", tmp_path / "plan.png"
    plan(source, "-w", 1, "-b", 5, "-o", out)
    panel = colors(out, slice(130, 1100, 250))
    assert panel.mean(axis=1).tolist() == [pytest.approx(0.5, abs=0.01)] * 2


def test_groups_are_classes_or_stretches_of_the_listing(tmp_path: Path):
    folder(tmp_path / "photos", {"cat": 3, "dog": 2}, (8, 8))
    unlabeled = ImageFolder(tmp_path / "photos", labeled=False)
    groups = group_samples(unlabeled)
    assert groups.names == ("cat", "dog") and groups.of.tolist() == [0, 0, 0, 1, 1]
    assert groups.counts.tolist() == [3, 2]
    many = ImageFolder(
        folder(tmp_path / "many", {f"c{i:03}": 1 + i % 2 for i in range(150)}, (8, 8))
    )
    joined = group_samples(many)
    assert len(joined.names) == 60 and joined.names[:2] == ("c000 ...", "c003 ...")
    assert joined.counts.sum() == len(many) and joined.of.tolist() == sorted(joined.of.tolist())
    stretches = group_samples(ImageFolder(tmp_path / "photos" / "cat", labeled=False))
    assert stretches.names == () and stretches.of.tolist() == [0, 0, 0]


def test_a_picture_of_few_steps_is_a_sentence(tmp_path: Path):
    source, out = folder(tmp_path / "photos", {"cat": 8, "dog": 8}), tmp_path / "plan.png"
    said = " ".join(plan(source, "-o", out).split())
    assert (
        "no picture: it shows how steps differ, and the epoch has 1 step, fewer than 4; pass a"
        " smaller" in said
    )
    assert not out.exists()
    plan(source, "-w", 1, "-b", 4, "-o", out)
    assert out.exists()


def test_the_last_step_is_named_by_its_number(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    texts: list[str] = []
    monkeypatch.setattr(
        ImageDraw.ImageDraw, "text", lambda self, at, text, *more, **options: texts.append(text)
    )
    for source in (shards / "*.tar", folder(tmp_path / "photos", {"cat": 6, "dog": 6}, (8, 8))):
        texts.clear()
        plan(source, "-w", 2, "-b", 1, "-o", tmp_path / "plan.png")
        assert {text for text in texts if text.startswith("step ")} in (
            {"step 0", "step 47"},
            {"step 0", "step 5"},
        )


def test_refuses(shards: Path, tmp_path: Path):
    with pytest.raises(ConfigError, match=r"--out must be a .png in an existing folder"):
        plan(shards / "*.tar", "-o", tmp_path / "no" / "plan.png")
    with pytest.raises(ConfigError, match=r"the global batch must not exceed the data: got 1024"):
        plan(shards / "*.tar", "-w", 8, "-b", 128)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("train-{000..099}.tar", "tar"),
        ("s3://b/*.tar", "tar"),
        ("photos/train.tar", "tar"),
        ("train.tfrecord-00000-of-00100", "tfrecord"),
        ("train-*.tfrecord", "tfrecord"),
        ("gs://b/train.parquet", "table"),
        ("labels.CSV", "table"),
        ("photos/train", "folder"),
        ("s3://bucket/star/", "folder"),
    ],
)
def test_knows_what_is_meant(name: str, kind: str):
    assert detect_kind(name) == kind


def test_storage_options():
    assert storage_options(["anon=true", "key=a=b", "n=3"]) == {"anon": True, "key": "a=b", "n": 3}
    with pytest.raises(ConfigError, match="must be name=value"):
        storage_options(["anon"])


def test_the_column_of_images_of_a_table_is_recognized(tmp_path: Path):
    images = folder(tmp_path / "photos", {"cat": 4}, (8, 8)) / "cat"
    table = tmp_path / "table.csv"
    table.write_text(
        "\n".join(["image", *(f"photos/cat/{path.name}" for path in images.iterdir())])
    )
    assert "Table(" in plan(table, "-w", 1, "-b", 2)


def test_a_split_of_a_data_set_of_hugging_face(tmp_path: Path):
    root = repository(tmp_path / "birds", "license: mit")
    assert "birds, split test): 2 images" in plan(root, "--split", "test")
    several = repository(tmp_path / "several", README)
    assert "several, configuration full, split held_out): 2" in plan(several, "--split", "held_out")
    with pytest.raises(ConfigError, match="got none; it has test, train; pass split='test'"):
        plan(root)
    with pytest.raises(SourceError, match="images in folders are read by ImageFolder"):
        plan(folder(tmp_path / "photos", {"a": 2}), "--split", "test")
