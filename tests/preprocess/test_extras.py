"""Arrays, texts and numbers that a function of the user adds to samples: written, read back,
committed as all else.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.commands import command_line
from helpers.preprocess.libraries import streaming, tensorflow
from helpers.small_jobs import InlineEngine
from PIL import Image

import fastfeed as ff
from fastfeed.errors import ConfigError, FastfeedError
from fastfeed.preprocess import Encoding, Metadata, Packing, Recipe, Scaling, run

MODULE = """
import os, signal
import numpy as np

def embed(samples):
    return [
        {
            "clip": s.pixels.reshape(-1, 3).mean(0).astype(np.float32),
            "latent": np.full((2, 3), s.label, np.float16),
            "codes": np.array([s.height, -s.width], np.int64),
            "score": np.float32(0.5),
            "tags": ["a", s.uri],
            "text": f"a photograph of {s.uri}",
        }
        for s in samples
    ]

class Count:
    made = 0
    def __init__(self):
        Count.made += 1
    def __call__(self, samples):
        return [{"made": Count.made, "together": len(samples)} for _ in samples]

def bug(samples):
    return [{"x": np.zeros(2) / samples[0].nonsense} for s in samples]

def too_few(samples):
    return [{}]

def shapes(samples):
    return [{"x": np.zeros(1 + i, np.float32)} for i, _ in enumerate(samples)]

def bad_name(samples):
    return [{"Key": 1} for _ in samples]

def objects(samples):
    return [{"x": np.array([None])} for _ in samples]

def no_json(samples):
    return [{"x": object()} for _ in samples]

def fails_on_one(samples):
    if any(s.uri == "b/3.png" for s in samples):
        raise RuntimeError("no such photograph")
    return [{"x": np.ones(1, np.float32)} for _ in samples]

def wide(samples):
    return [{"x": np.zeros(3)} for _ in samples]

def dies(samples):
    if any(s.uri == "b/3.png" for s in samples):
        os.kill(os.getpid(), signal.SIGKILL if os.environ.get("KILL") else signal.SIGSEGV)
    return [{"x": np.ones(1, np.float32)} for _ in samples]
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "extra_functions.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("extra_functions", None)
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for i in range(11):
        path = tmp_path / "photos" / "ab"[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (40, 30 + i, 3), np.uint8)).save(path)
    (tmp_path / "photos/a/broken.png").write_bytes(b"\x89PNG\r\n\x1a\nnothing")
    return tmp_path


def job(place, function, format="webdataset", batch=4, dst="shards", **engine):
    """In this process, or with the engine or workers given."""
    image = Encoding("raw") if format == "raw" else Encoding("png")
    scaling = Scaling(24, mode="cover", enlarge=True) if format == "raw" else Scaling(24)
    recipe = Recipe(
        scaling,
        image,
        packing=Packing(format, samples=8),
        metadata=Metadata(extras=f"extra_functions:{function}", extras_batch=batch),
    )
    return run("photos", dst, recipe, **engine or {"engine": InlineEngine()})


SOURCES = {
    "webdataset": lambda: ff.TarShards(
        "shards/*.tar", columns=["clip.npy", "latent.npy", "codes.npy", "json", "txt"]
    ),
    "tfrecord": lambda: ff.TFRecords(
        "shards/*.tfrecord", columns=["clip", "latent", "codes", "image/meta", "image/caption"]
    ),
    "mds": lambda: ff.MDSShards("shards", columns=["clip", "latent", "codes", "meta", "text"]),
    "parquet": lambda: ff.Table(
        "shards",
        image="image",
        label="label",
        label_kind="index",
        columns=["clip", "latent", "codes", "meta", "text"],
    ),
}


@pytest.mark.parametrize("format", SOURCES)
def test_what_is_added_reaches_the_batch(place, format):
    report = job(place, "embed", format)
    assert report.complete and len(report.bad) == 1 and report.tally.samples == 11
    source = SOURCES[format]()
    columns = list(source.columns(np.arange(len(source))).values())
    clip, latent, codes, meta, text = columns
    metas = [m if isinstance(m, dict) else json.loads(m) for m in meta]
    assert len(source) == 11 and clip.shape == (11, 3) and clip.dtype == np.float32
    ids = np.arange(11)
    labels = source.label(ids)
    latent = latent.reshape(11, 2, 3) if format == "tfrecord" else latent  # they have no shapes
    assert np.array_equal(latent, np.broadcast_to(labels[:, None, None], (11, 2, 3)))
    for row, m in enumerate(metas):
        assert m["columns"] == {"score": 0.5, "tags": ["a", m["uri"]]}
        assert text[row] == f"a photograph of {m['uri']}"
        with Image.open(io.BytesIO(source.read([row])[0])) as image:
            assert codes[row].tolist() == [image.height, -image.width]
    with ff.Feed(source, [ff.RandomResizedCrop(16)], batch=4, shuffle=False, threads=1) as feed:
        batch = next(iter(feed))
    assert np.array_equal(next(iter(batch.columns.values())), clip[:4])


def test_the_means_are_those_of_the_pixels_in_the_shard(place):
    job(place, "embed")
    source = ff.TarShards("shards/*.tar", columns=["clip.npy"])
    images = [np.asarray(Image.open(io.BytesIO(blob))) for blob in source.read(range(11))]
    means = np.stack([image.reshape(-1, 3).mean(0) for image in images]).astype(np.float32)
    assert np.array_equal(source.columns(np.arange(11))["clip.npy"], means)


def test_raw_arrays_lie_next_to_the_pixels(place):
    job(place, "embed", "raw")
    notes = ff.RawShards("shards").notes
    assert "left out shards/shard-000000.clip.npy: an array of shards/shard-000000.npy" in notes
    assert len(ff.RawShards("shards")) == len(ff.RawShards("shards/*.npy")) == 11
    for stem in ("shard-000000", "shard-000001"):
        pixels, clip = np.load(f"shards/{stem}.npy"), np.load(f"shards/{stem}.clip.npy")
        assert np.array_equal(clip, pixels.reshape(len(pixels), -1, 3).mean(1).astype(np.float32))
        assert np.load(f"shards/{stem}.latent.npy").shape == (len(pixels), 2, 3)


@pytest.mark.slow  # test_writers_mds has the format, the test above the arrays
def test_streaming_reads_the_arrays(place):
    job(place, "embed", "mds")
    program = """
from streaming import StreamingDataset
sample = StreamingDataset(local="shards", shuffle=False, batch_size=1)[3]
arrays = {k: [str(sample[k].dtype), sample[k].tolist()] for k in ("latent", "clip")}
print(json.dumps(arrays | {"text": sample["text"]}))
"""
    sample = json.loads(streaming(program, folder=place).splitlines()[-1])
    source = ff.MDSShards("shards", columns=["latent", "clip", "text"])
    expected = source.columns(np.array([3]))
    assert sample["latent"] == ["float16", expected["latent"][0].tolist()]
    assert (
        sample["clip"] == ["float32", expected["clip"][0].tolist()]
        and sample["text"] == expected["text"][0]
    )


@pytest.mark.slow  # test_writers_tfrecord has the format
def test_tensorflow_reads_the_arrays(place):
    job(place, "embed", "tfrecord")
    program = """
spec = {
    "clip": tf.io.FixedLenFeature([3], tf.float32),
    "latent": tf.io.FixedLenFeature([2, 3], tf.float32),
    "codes": tf.io.FixedLenFeature([2], tf.int64),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64),
}
records = tf.data.TFRecordDataset("shards/shard-000000.tfrecord")
examples = [tf.io.parse_single_example(record, spec) for record in records]
assert all((x["latent"].numpy() == x["image/class/label"].numpy()).all() for x in examples)
assert examples[0]["codes"].numpy()[1] < 0
print(len(examples))
"""
    assert int(tensorflow(program)) > 1


def test_bytes_depend_on_neither_workers_nor_interruption(place):
    job(place, "embed")
    job(place, "embed", dst="again", workers=2)
    files = sorted(p.name for p in Path("shards").glob("*.*"))
    assert files and all(
        (Path("shards") / n).read_bytes() == (Path("again") / n).read_bytes() for n in files
    )
    record = Path("again/__job/records/shard-000001.json")
    record.unlink()
    Path("again/shard-000001.tar").unlink()
    job(place, "embed", dst="again")
    assert (
        Path("again/shard-000001.tar").read_bytes() == Path("shards/shard-000001.tar").read_bytes()
    )


def test_another_function_is_another_job(place):
    job(place, "embed")
    with pytest.raises(
        ConfigError, match=r"metadata\.extras: 'extra_functions:embed' -> 'extra_functions:Count'"
    ):
        job(place, "Count")


def test_a_class_is_created_once_and_called_with_batches(place):
    job(place, "Count", batch=3)
    source = ff.TarShards("shards/*.tar", columns=["json"])
    columns = [m["columns"] for m in source.columns(np.arange(11))["json"]]
    assert {c["made"] for c in columns} == {1}
    assert {c["together"] for c in columns} <= {1, 2, 3} and 3 in {c["together"] for c in columns}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            "bug",
            (
                r"extra_functions:bug raised AttributeError: .*extra_functions\.py:[0-9]+.*, for"
                r" a/0\.png"
            ),
        ),
        ("too_few", r"must return one mapping or Drop per sample, 4 here, got 1"),
        (
            "shapes",
            (
                r"same names, types and shapes: x float32 \(1,\) so far, a/10\.png has x float32"
                r" \(2,\)"
            ),
        ),
        ("bad_name", r"names must be lower-case letters.*got 'Key', for a/0\.png"),
        ("objects", r"'x' must be an array of float16.*got object \(1,\)"),
        ("no_json", r"'x' must be a NumPy array, a text, a number, or what JSON can hold"),
        ("missing", r"extra_functions has none called 'missing'"),
    ],
)
def test_what_is_wrong_is_said(place, function, message):
    with pytest.raises(ConfigError, match=message):
        job(place, function)


def test_nothing_is_planned_for_a_function_that_is_not_there(place):
    with pytest.raises(ConfigError, match="none called"):
        job(place, "missing")
    assert not Path("shards/__job/plan.json").exists()
    with pytest.raises(ConfigError, match=r"no_such_module raised ModuleNotFoundError.*PYTHONPATH"):
        run(
            "photos",
            "shards",
            Recipe(Scaling(24), metadata=Metadata(extras="no_such_module:embed")),
        )


def test_tfrecords_have_no_float64(place):
    with pytest.raises(ConfigError, match="convert 'x' to float32"):
        job(place, "wide", "tfrecord")


@pytest.mark.parametrize("batch", [1, 4])
def test_a_function_that_fails_on_one_sample_costs_that_sample(place, batch):
    report = job(place, "fails_on_one", batch=batch)
    assert report.complete and report.tally.samples == 10
    (bad,) = [bad for bad in report.bad if bad.reason == "internal"]
    assert Path(bad.uri).name == "3.png" and "RuntimeError: no such photograph" in bad.detail


def test_a_crash_with_one_sample_costs_that_sample(place):
    report = job(place, "dies", batch=1, workers=1)
    assert report.complete
    assert {Path(bad.uri).name: bad.reason for bad in report.bad} == {
        "3.png": "worker_crash",
        "broken.png": "truncated",
    }
    assert report.tally.samples == 10


@pytest.mark.slow  # the test above has the crash, test_job.py the resumption
def test_a_crash_with_several_ends_the_job_which_can_be_resumed(place):
    with pytest.raises(FastfeedError, match="3 times"):
        job(place, "dies", batch=4, workers=1)
    function = Path("extra_functions.py")
    function.write_text(function.read_text().replace("b/3.png", "none"))
    report = job(place, "dies", batch=4, workers=1)
    assert report.complete and report.tally.samples == 11


def test_command(place):
    command = [
        str(Path(sys.executable).with_name("fastfeed")),
        "preprocess",
        "photos",
        "shards",
        "--size",
        "24",
        "--with",
    ]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [*command, "extra_functions:embed", "--with-batch", "2", "-w", "1"],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    source = ff.TarShards("shards/*.tar", columns=["clip.npy"])
    assert source.columns(np.arange(2))["clip.npy"].shape == (2, 3)
    wrong = command_line(*command[1:], "nothing")
    assert (
        wrong.returncode == 2 and "--with must be 'module:function', got 'nothing'" in wrong.stderr
    )


def test_nested_lists_of_parquet_are_arrays_or_lists(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "PNG")
    good = [[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [[7.0, 8.0, 9.0], [0.0, 1.0, 2.0]]]
    for name, lists in {"good": good, "odd": [good[0], [[1.0, 2.0], [3.0, 4.0, 5.0]]]}.items():
        pq.write_table(
            pa.table({"image": [file.getvalue()] * 2, "latent": lists}),
            tmp_path / f"{name}.parquet",
        )
    source = ff.Table(tmp_path / "good.parquet", image="image", columns=["latent"])
    assert np.array_equal(source.columns(np.arange(2))["latent"], np.array(good))
    odd = ff.Table(tmp_path / "odd.parquet", image="image", columns=["latent"])
    assert odd.columns(np.arange(2))["latent"][1] == [[1.0, 2.0], [3.0, 4.0, 5.0]]
