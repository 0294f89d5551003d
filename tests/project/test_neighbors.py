"""Ray Data and Spark score the samples of a job, and the scores go into a new one."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from conftest import ROOT, environment
from helpers.needs import require

pytestmark = pytest.mark.slow
EXAMPLES = ROOT / "examples" / "neighbors"
LIMIT_S = 420  # ends a hang


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    require("pyarrow")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield importlib.import_module("job")
    sys.modules.pop("job", None)


def check(folder: Path) -> None:
    """The sharp half is there, each with its score, and no blurred image."""
    from fastfeed.preprocess import plan_table

    rows = plan_table(folder / "scored").to_pylist()
    by_state = {state: [row for row in rows if row["state"] == state] for state in ("done", "bad")}
    assert {row["uri"] for row in by_state["done"]} == {f"sharp/{k:02}.jpg" for k in range(24)}
    assert all(row["columns"]["sharpness"] > 10 for row in by_state["done"])
    reasons = sorted(row["reason"] for row in by_state["bad"])
    assert reasons == ["dropped"] * 25, "the text has no score"
    manifest = json.loads((folder / "scored" / "__job" / "manifest.json").read_text())
    assert manifest["classes"] == ["blurred", "sharp"]


def test_the_way_back(job: ModuleType, tmp_path: Path) -> None:
    table = job.build(tmp_path)
    shards = str(tmp_path / "shards")
    scored = [job.sharpness(rows, shards) for rows in job.shard_tables(table)]
    job.rebuild(tmp_path, table, job.pa.concat_tables(scored))
    check(tmp_path)


def run(name: str, folder: Path, **environ: str) -> str:
    command = [sys.executable, str(EXAMPLES / name), "--folder", str(folder)]
    environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(EXAMPLES)])
    done = subprocess.run(
        command,
        env=environment(**environ),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.nightly
def test_ray_data_on_three_nodes(tmp_path: Path) -> None:
    require("ray", "pandas", "pyarrow")
    # not in pytest's folder: paths of sockets must be short
    folder = tempfile.mkdtemp(prefix="ff", dir="/tmp")
    command = [sys.executable, str(ROOT / "tests/helpers/preprocess/ray_cluster.py"), folder]
    environ = environment(PYTHONPATH=os.pathsep.join([str(ROOT), str(EXAMPLES)]))
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ
    ) as cluster:
        assert cluster.stdin is not None and cluster.stdout is not None
        address = cluster.stdout.readline().split()[0]
        try:
            settings = {"RAY_TMPDIR": folder, "RAY_AUTH_MODE": "disabled", "RAY_ADDRESS": address}
            output = run("ray_data.py", tmp_path, **settings)
        finally:
            cluster.stdin.close()
    assert output.startswith("3 nodes\n24 images, ")
    check(tmp_path)


@pytest.mark.nightly
def test_spark_on_three_workers(tmp_path: Path) -> None:
    require("pyspark", "pandas", "pyarrow")
    if shutil.which("java") is None:
        pytest.skip("no java")
    assert "24 images, " in run("spark.py", tmp_path)
    check(tmp_path)
