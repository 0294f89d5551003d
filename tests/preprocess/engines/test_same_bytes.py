"""What a job writes depends on its plan: not on hash seeds, locales, time zones, folders or the
number of workers.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from helpers.preprocess.outcomes import photographs, tree

from fastfeed.preprocess import Encoding, Packing, Recipe, Scaling, open_input, run

pytestmark = pytest.mark.slow

SHAPES = {
    "jpeg": Scaling(48),
    "webp": Scaling(48, "long"),
    "png": Scaling((40, 56), "cover", enlarge=True),
}
JOBS = [
    ("webdataset", "webp"),
    pytest.param("tfrecord", "jpeg", marks=pytest.mark.nightly),
    ("parquet", "png"),
    pytest.param("mds", "webp", marks=pytest.mark.nightly),
    ("raw", "raw"),
]


@pytest.mark.parametrize(("format", "image"), JOBS)
def test_the_same_bytes_wherever_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str, image: str
) -> None:
    if format == "parquet":
        pytest.importorskip("pyarrow", reason="no PyArrow; pip install 'fastfeed[parquet]'")
    source = photographs(tmp_path / "photos", 14, bad=1)
    names = [f"class{i % 2}/photo{i:03d}.jpg" for i in range(14)]
    rows = [f"{name},{'ab'[i % 2]},a caption é {i},{i / 3}" for i, name in enumerate(names)]
    (tmp_path / "table.csv").write_text(
        "\n".join(["path,label,caption,score", *rows]) + "\n", "utf-8"
    )
    recipe = Recipe(
        SHAPES.get(image, Scaling(40, "contain")),
        Encoding(image),
        packing=Packing(format, samples=4),
    )
    made = []
    for workers, seed, locale, zone in ((1, "1", "C", "UTC"), (2, "2", "C.UTF-8", "Asia/Tokyo")):
        for name, value in (
            ("PYTHONHASHSEED", seed),
            ("LC_ALL", locale),
            ("TZ", zone),
            ("VIPS_CONCURRENCY", seed),
        ):
            monkeypatch.setenv(name, value)  # of the processes that do the work
        (tmp_path / seed).mkdir()
        monkeypatch.chdir(tmp_path / seed)

        def opened(_: object):
            return open_input(
                str(source), labels_file=str(tmp_path / "table.csv"), columns=["score"]
            )

        report = run(opened, tmp_path / seed / "shards", recipe, workers=workers, memory="1GB")
        assert report.complete and report.tally.samples == 13
        made.append(tree(tmp_path / seed / "shards"))
    assert made[0] == made[1] and len(made[0]) > 8
    assert os.listdir(tmp_path / "1") == ["shards"], "nothing is written to the working folder"
