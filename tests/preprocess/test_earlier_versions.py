"""Files that jobs of earlier versions wrote: they are read as they are, and written in the same
way.
"""

from __future__ import annotations

import io
import json
import zlib
from pathlib import Path

import numpy as np
from helpers import small_jobs
from helpers.preprocess.surveying import MemoryTarget

from fastfeed.preprocess.model.plan import ORDER, PLAN, JobPlan
from fastfeed.preprocess.model.record import ShardRecord
from fastfeed.preprocess.planning.survey import ROW, completed_pieces, load_survey
from fastfeed.preprocess.reports.statistics import statistics
from fastfeed.preprocess.targets.job_state import BAD, MANIFEST, TIMES

PLAN_JSON = {
    "hash": "e09d295457760703",
    "source": "photos",
    "first_uri": "photos/cats/0000.jpg",
    "left_out": {"duplicate_exact": 1},
    "version": 1,
    "recipe": {
        "scaling": {
            "size": None,
            "mode": "buckets",
            "filter": "lanczos",
            "enlarge": False,
            "buckets": [[24, 32], [32, 24]],
            "matte": [255, 255, 255],
            "fill": [0, 0, 0],
        },
        "encoding": {"image": "jpeg", "quality": 90, "subsampling": "4:2:0", "keep_small": False},
        "limits": {"min_side": 1, "max_aspect": 0.0, "formats": [], "max_pixels": 300000000},
        "packing": {"format": "webdataset", "samples": 4, "group_bytes": 67108864},
        "choice": {
            "shuffle": 3,
            "val": 0.3,
            "split_seed": 0,
            "split_by": "looks",
            "dedupe": "near",
            "distance": 4,
        },
    },
    "fingerprint": "names 497cda7caf637617 labels 9bf285369ab92aad content "
    "feee4e5670e39effbff41132890e338d9c35472d6335fd7f0f48318b2206bc99",
    "length": 22,
    "classes": ["cats", "dogs"],
    "groups": [["train/24x32", 9], ["val/24x32", 12]],
    "made_with": {
        "pillow": "13.0.0",
        "libjpeg": "3.2.0",
        "littlecms": "2.19",
        "webp": "1.6.0",
        "avif": "1.4.2",
        "openjpeg": "2.5.4",
        "libtiff": "4.7.2",
        "zlib": "2.3.3",
        "kernel": "0.1.0.dev0, libjpeg-turbo API 62",
        "vips": "8.18.7",
    },
}
ORDER_IDS = [15, 9, 17, 1, 0, 13, 18, 12, 8, 5, 4, 19, 10, 6, 3, 2, 14, 7, 20, 11, 16]
RECORD_JSON = {
    "bad": [
        {"detail": "", "id": 1, "reason": "empty", "uri": "photos/cats/0000_0.jpg"},
        {
            "detail": "the file ends before the image does",
            "id": 2,
            "reason": "truncated",
            "uri": "photos/cats/0000_1.jpg",
        },
        {
            "detail": "starts with b'<html>40'",
            "id": 3,
            "reason": "not_image",
            "uri": "photos/cats/0000_2.jpg",
        },
    ],
    "files": [
        {
            "bytes": 20480,
            "name": "shard-000000.tar",
            "sha256": "928a4f7ce0a1e68cece86b594dea9655a29876e0ffcde728f9cc57ae304c9305",
        },
        {
            "bytes": 251,
            "name": "shard-000000.idx",
            "sha256": "cbb220399103153865c19de43cc8bee572a27c22df4cdab8be500616c35332d4",
        },
    ],
    "ids": [0, 4, 5],
    "index": 0,
    "offsets": [0, 3584, 7680],
    "plan": "0221a2fe0d47d589",
    "shard": "shard-000000",
    "tally": {
        "aspects": {"1.41": 3},
        "bytes_in": 3819,
        "bytes_out": 2933,
        "enlarged": 0,
        "formats": {"JPEG": 3},
        "icc": {"none": 3},
        "kept": 0,
        "megapixels": {"0.00195312": 3},
        "modes": {"RGB": 3},
        "orientations": {"1": 3},
        "pixels_in": 6720,
        "pixels_out": 2448,
        "samples": 3,
        "sizes": {"24x34": 3},
    },
}
SURVEY_JSON = {
    "bounds": [0, 3],
    "fingerprint": "names 1",
    "max_pixels": 300_000_000,
    "pixels": True,
    "version": 1,
}
RUN_JSON = {
    "bytes_in": 2,
    "bytes_out": 3,
    "images": 4,
    "seconds": 1.5,
    "shards": 5,
    "stages": {"read": 0.5},
    "workers": 6,
}


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def test_a_plan() -> None:
    text = json.dumps(PLAN_JSON, indent=1).encode() + b"\n"
    order = npy(np.array(ORDER_IDS, np.int64))
    plan = JobPlan.load(text, order, "shards")
    assert plan.hash == PLAN_JSON["hash"]
    assert plan.files() == {ORDER: order, PLAN: text}


def test_a_record() -> None:
    text = json.dumps(RECORD_JSON, sort_keys=True, separators=(",", ":")).encode() + b"\n"
    record = ShardRecord.load(text, "__job/records/shard-000000.json")
    assert record.tally.samples == len(record.ids) == 3 and record.dump() == text


def test_a_piece_of_a_survey() -> None:
    rows, shelf = np.zeros(3, ROW), MemoryTarget()
    rows["id"] = range(3)
    array = npy(rows)
    footer = json.dumps(SURVEY_JSON | {"crc32": zlib.crc32(array)}, sort_keys=True).encode()
    shelf.write("__job/survey/000000.npy", array + b"\n#survey " + footer + b"\n")
    assert completed_pieces(shelf, np.array([0, 3]), "names 1", True) == {0}  # type: ignore[arg-type]
    assert np.array_equal(load_survey(shelf, range(1)).rows, rows)  # type: ignore[arg-type]


def test_keys_of_what_a_job_writes(tmp_path: Path) -> None:
    job = small_jobs.finished_job(tmp_path)

    def read(name: str) -> str:
        return (job.target.read(name) or b"").decode()

    assert json.loads(read(PLAN)).keys() == PLAN_JSON.keys()
    assert json.loads(read("__job/records/shard-000000.json")).keys() == RECORD_JSON.keys() | {
        "sums"
    }
    assert list(json.loads(read(BAD).splitlines()[0])) == ["id", "uri", "shard", "reason", "detail"]
    assert json.loads(read(TIMES)).keys() == RUN_JSON.keys()
    assert set(json.loads(read(MANIFEST))) == {
        "bad",
        "bytes",
        "classes",
        "left_out",
        "made_with",
        "plan",
        "recipe",
        "samples",
        "shards",
    }
    job.target.write(TIMES, json.dumps(RUN_JSON).encode() + b"\n")
    took = statistics(job).took
    assert (took.seconds, took.worker_seconds, took.images, took.stages) == (
        1.5,
        9.0,
        4,
        {"read": 0.5},
    )
