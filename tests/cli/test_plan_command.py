"""`fastfeed plan`: figures that add up, a picture, and clear refusals."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from helpers.photos import folder
from helpers.shards import shard_folder
from PIL import Image
from typer.testing import CliRunner

from fastfeed.cli import app
from fastfeed.cli.open_source import storage_options
from fastfeed.errors import ConfigError
from fastfeed.sources.detect import kind_of


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
    assert re.search(r"4 ranks x batch 4 = 16 samples per step, 6 steps, shuffle full; an epoch takes 2\.4 s", out)
    for row in ("samples per rank and epoch", "shards in a global batch", "one read per sample, all ranks"):
        assert row in out


def test_figures_add_up(shards: Path):
    found = json.loads(plan(shards / "*.tar", "-w", 4, "-b", 4, "--speed", 10, "--json", "--ranks-per-node", 2))
    sizes = sum(path.stat().st_size for path in shards.glob("*.tar"))
    assert found["samples_per_rank"] == {"least": 24, "mean": 24, "most": 24}
    assert found["requests_per_s_all"] == 40
    assert 0 < found["bytes_per_rank"]["mean"] * 4 < sizes
    assert found["bytes_per_s_all"] == pytest.approx(found["bytes_per_rank"]["mean"] * 4 / found["epoch_s"])
    assert found["units"] == 8 and found["units_per_node_epoch"]["most"] == 8


def test_blocks_read_from_fewer_shards(shards: Path):
    def touched(*more: object) -> float:
        return json.loads(plan(shards / "*.tar", "-w", 4, "-b", 4, "--json", *more))["units_per_rank_epoch"]["mean"]

    assert touched("--blocks", 1, "--lanes", 4) <= 3 < touched()


def test_draws_a_picture(shards: Path, tmp_path: Path):
    out = tmp_path / "plan.png"
    assert "plan.png" in plan(shards / "*.tar", "-w", 3, "-b", 2, "-o", out).replace("\n", "")
    with Image.open(out) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    assert len(np.unique(pixels[70:480, 95:1080].reshape(-1, 3), axis=0)) >= 8  # a color for every shard


def test_draws_where_in_a_folder_batches_come_from(tmp_path: Path):
    source, out = folder(tmp_path / "photos", {"cat": 30, "dog": 30}), tmp_path / "plan.png"
    plan(source, "-w", 2, "-b", 3, "-o", out)
    with Image.open(out) as picture:
        pixels = np.asarray(picture.convert("RGB")).astype(int)
    panel = pixels[70:480:7, 95:1080:100]  # 59 of 60 rows, and each of 10 steps
    read = (panel.sum(axis=-1) < 600).sum(axis=0)
    assert read.tolist() == [pytest.approx(6, abs=1)] * 10, "each step reads 6 samples, from anywhere"


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
    assert kind_of(name) == kind


def test_storage_options():
    assert storage_options(["anon=true", "key=a=b", "n=3"]) == {"anon": True, "key": "a=b", "n": 3}
    with pytest.raises(ConfigError, match="must be name=value"):
        storage_options(["anon"])
