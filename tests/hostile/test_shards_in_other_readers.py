"""The folder of a finished job, opened as a whole by readers of other projects."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import small_jobs
from helpers.needs import needs
from helpers.preprocess.libraries import streaming

import fastfeed as ff
from fastfeed.preprocess.targets.job_state import open_job
from fastfeed.preprocess.targets.target import open_target

HUGGING_FACE = """
import json, sys
import datasets

folder, cache = sys.argv[1:]
by_folder = datasets.load_dataset(folder, cache_dir=cache)
by_format = datasets.load_dataset("parquet", data_dir=folder, cache_dir=cache)
keys = {name: sorted(part["key"]) for name, part in by_folder.items()}
assert keys == {name: sorted(part["key"]) for name, part in by_format.items()}
images = by_folder["train"].cast_column("image", datasets.Image())
assert images[0]["image"].size == (images[0]["width"], images[0]["height"])
json.dump(keys, sys.stdout)
"""
READ_MDS = """
from streaming import LocalDataset, StreamingDataset

folder = sys.argv[1]
local = LocalDataset(folder)
assert all(local[i]["image"].size == (local[i]["width"], local[i]["height"]) for i in range(len(local)))
print(json.dumps(sorted(sample["key"] for sample in StreamingDataset(local=folder, batch_size=1))))
"""


def keys(folder: Path) -> list[str]:
    """The keys of the good samples, from the records."""
    job = open_job(open_target(folder, writes=False))
    return sorted(f"{i:09d}" for record in job.records.values() for i in record.ids)


@needs("pyarrow")
def test_parquet_opens_as_a_folder(tmp_path: Path) -> None:
    from pyarrow import dataset, parquet

    small_jobs.finished_job(tmp_path, "parquet")
    folder = tmp_path / "shards"
    assert sorted(dataset.dataset(folder).to_table()["key"].to_pylist()) == keys(folder)
    assert parquet.read_table(folder).num_rows == 18
    table = ff.Table(folder, image="image", label="label")
    assert len(table) == 18 and set(table.label(np.arange(18)).tolist()) == {0, 1}


def test_parquet_opens_in_hugging_face(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="needs PyArrow: pip install 'fastfeed[parquet]'")
    # of an environment with `datasets`
    python = os.environ.get("FASTFEED_TEST_DATASETS_PYTHON", sys.executable)
    if subprocess.run(
        [python, "-c", "import datasets, PIL"], capture_output=True, check=False
    ).returncode:
        pytest.skip(
            "needs Hugging Face datasets: pip install datasets pillow, here or where"
            " FASTFEED_TEST_DATASETS_PYTHON is"
        )
    small_jobs.finished_job(tmp_path, "parquet")
    command = [python, "-c", HUGGING_FACE, tmp_path / "shards", tmp_path / "cache"]
    environ = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        command, env=environ, capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == {"train": keys(tmp_path / "shards")}


@pytest.mark.slow
def test_mds_opens_in_streaming(tmp_path: Path) -> None:
    small_jobs.finished_job(tmp_path, "mds")
    found = json.loads(streaming(READ_MDS, str(tmp_path / "shards"), folder=tmp_path))
    assert found == keys(tmp_path / "shards")
