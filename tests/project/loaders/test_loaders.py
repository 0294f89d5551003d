"""Other loaders with a transform, as the examples have them, give the pixels of a feed."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from conftest import ROOT
from helpers.needs import require

import fastfeed as ff

pytestmark = pytest.mark.slow
EXAMPLES = ROOT / "examples" / "loaders"
NEEDS = {  # packages of each example
    "dask_bag": ("dask",),
    "grain_batches": ("grain",),
    "hugging_face_datasets": ("datasets",),
    "ray_data": ("ray", "pandas"),
    "spark_pandas": ("pyspark", "pandas"),
    "spdl_pipeline": ("spdl",),
    "tfdata_keras": ("tensorflow",),
    "torch_dataloader": ("torch",),
    "torchdata_nodes": ("torch", "torchdata"),
    "webdataset_tars": ("webdataset",),
}
SERVERS = {"ray_data", "spark_pandas"}
OPS = {
    "random": [ff.RandomResizedCrop(32), ff.RandomFlip(), ff.ColorJitter(0.4, 0.4, 0.4)],
    "the same for all": [ff.Resize(40), ff.CenterCrop(32), ff.Normalize.imagenet()],
}
BAD = 15  # the made file that ends too early, in the order of paths
# id -> label and pixels of good samples
Rows = dict[int, tuple[int, np.ndarray]]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[str], list[int]]]:
    """Paths and labels; the examples can be imported meanwhile, also by processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        patch.setattr(sys, "argv", ["example"])
        root = load("photos").make(tmp_path_factory.mktemp("photos"))
        patch.setattr(sys, "argv", ["example", "--data", str(root)])
        yield load("photos").files()
        for name in ("photos", *NEEDS):
            sys.modules.pop(name, None)


def load(name: str) -> ModuleType:
    """An example as a module; skipped without its packages."""
    require(*NEEDS.get(name, ()))
    return importlib.import_module(name)


def of_feed(paths: list[str], labels: list[int], ops: Any, epoch: int) -> Rows:
    source = ff.Files(paths, labels)
    options: Any = {"batch": 7, "tail": "pad", "on_bad": "mask", "seed": 3, "threads": 1}
    with ff.Feed(source, ops, **options) as feed:
        return {
            int(i): (int(label), image.copy())
            for batch in feed.batches(epoch)
            for i, label, image, weight in zip(
                batch.ids, batch.labels, batch.images, batch.weights, strict=True
            )
            if weight
        }


def of_batches(batches: Iterable[Mapping[str, Any]]) -> Rows:
    """Rows of batches with "weight", or "bad", unless bad samples have left them."""
    found = {}
    for batch in batches:
        good = np.asarray(batch.get("weight", np.ones(len(batch["id"])))) > 0
        if "bad" in batch:
            good = np.asarray(batch["bad"]) == ""
        columns = (np.asarray(batch[name]) for name in ("id", "label", "image"))
        for i, label, image, is_good in zip(*columns, good, strict=True):
            if is_good:
                found[int(i)] = (int(label), image)
    return found


def of_spdl(pipeline: Any) -> Rows:
    with pipeline.auto_stop():
        return of_batches(pipeline)


def of_tfdata(data: Any) -> Rows:
    images, labels, weights = (
        np.concatenate(column) for column in zip(*data.as_numpy_iterator(), strict=True)
    )
    return of_batches(
        [{"id": np.arange(len(images)), "label": labels, "image": images, "weight": weights}]
    )


def of_spark(frame: Any, like: np.ndarray) -> Rows:
    def image(content: bytes) -> np.ndarray:
        return np.frombuffer(content, like.dtype).reshape(like.shape)

    return {row.id: (row.label, image(row.image)) for row in frame.collect() if not row.bad}


def of_dask(bag: Any) -> Rows:
    rows = bag.compute(scheduler="threads", num_workers=2)
    return {row["id"]: (row["label"], row["image"]) for row in rows if row["bad"] is None}


READ: dict[str, Callable[[Any], Rows]] = {
    "dask_bag": of_dask,
    "spdl_pipeline": of_spdl,
    "tfdata_keras": of_tfdata,
}


def assert_same(found: Rows, wanted: Rows, count: int) -> None:
    assert found.keys() == wanted.keys() == set(range(count)) - {BAD}
    for i, (label, image) in wanted.items():
        assert found[i][0] == label, i
        assert found[i][1].dtype == image.dtype, i
        np.testing.assert_array_equal(found[i][1], image, str(i))


def check(files: Any, read: Callable[[ff.Transform, int], Rows], kinds: Any = OPS) -> None:
    """Compare with a feed: `read` gives the rows of an epoch."""
    for epoch, kind in enumerate(kinds, 1):
        ops = OPS[kind]
        wanted = of_feed(*files, ops, epoch)
        with ff.Transform(ops, seed=3, threads=1) as transform:
            assert_same(read(transform, epoch), wanted, len(files[0]))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # webdataset's files
@pytest.mark.parametrize("name", sorted(NEEDS.keys() - SERVERS))
def test_a_loader_gives_the_pixels_of_a_feed(name: str, files: Any, tmp_path: Path) -> None:
    example = load(name)
    given = (example.write(*files, tmp_path),) if name == "webdataset_tars" else files

    def read(transform: ff.Transform, epoch: int) -> Rows:
        return READ.get(name, of_batches)(example.batches(*given, transform, epoch))

    check(files, read)


@pytest.mark.parametrize("start", [None, "fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_workers_take_a_transform_that_was_used_before(start: str | None, files: Any) -> None:
    example = load("torch_dataloader")

    def read(transform: ff.Transform, epoch: int) -> Rows:
        transform(files[0][:2], ids=[0, 1])
        workers = 0 if start is None else 2
        return of_batches(example.batches(*files, transform, epoch, workers, start))

    check(files, read, ["random"])


@pytest.mark.filterwarnings("ignore")  # its own
def test_actors_of_ray(files: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # Ray reads it once per process: with tokens, nodes of later tests would take this one for dead
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    example = load("ray_data")
    import ray

    paths = os.pathsep.join([str(ROOT), str(EXAMPLES)])
    options: Any = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"}
    ray.init(num_cpus=1, runtime_env={"env_vars": {"PYTHONPATH": paths}}, **options)
    try:
        check(
            files,
            lambda transform, epoch: of_batches(
                example.batches(*files, transform, epoch).iter_batches(batch_size=8)
            ),
            ["random"],
        )
    finally:
        ray.shutdown()


@pytest.mark.filterwarnings("ignore")  # its own
def test_python_workers_of_spark(files: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    example = load("spark_pandas")
    from pyspark.sql import SparkSession

    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(EXAMPLES)]))
    session = SparkSession.builder.master("local[1]").getOrCreate()
    try:
        rows = list(zip(range(len(files[0])), *files, strict=True))
        frame = session.createDataFrame(rows, "id long, path string, label long")

        def read(transform: ff.Transform, epoch: int) -> Rows:
            like = np.empty(transform.spec.shape, transform.spec.dtype)
            return of_spark(example.batches(frame, transform, epoch), like)

        check(files, read, ["random"])
    finally:
        session.stop()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # webdataset's files
@pytest.mark.parametrize("name", sorted(NEEDS.keys() - SERVERS))
def test_an_example_runs(name: str, files: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """On files of which one is bad."""
    load(name).main()
    output = capfd.readouterr().out
    if name == "tfdata_keras":
        assert "loss" in output
    else:
        assert "(8, 64, 64, 3)" in output or "(64, 64, 3)" in output
        assert "truncated" in output
