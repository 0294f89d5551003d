"""The order of work on a GPU: DALI and CuPy as late as they may be, over the pixels
of the processor.
"""

import importlib
import threading
import types

import numpy as np
import pytest
from helpers.engines import engine_for
from helpers.late_dali import install
from helpers.late_gpu import LateGpu
from helpers.side_by_side import encoded, needs_dali, picture

import fastfeed as ff
from fastfeed.backends.options import GpuDecode
from fastfeed.decode.executor import open_executor
from fastfeed.ops.mix import BLEND, MOSAIC, PASTE, MixPlan
from fastfeed.ops.program.compile import Windows, Work, fuse
from fastfeed.runtime.timeline import Timeline
from fastfeed.spec import ENCODED

pytestmark = needs_dali
BLOBS = [encoded(picture(60 + k, 70, k), "JPEG", quality=90) for k in range(8)]
OTHERS = [encoded(picture(70, 60 + k, 20 + k), "JPEG", quality=90) for k in range(8)]
GIF = encoded(picture(50, 60, 9), "GIF")  # which DALI is not given
DECODES = {
    "dali": GpuDecode(),
    "half by the processor": GpuDecode(cpu_share=0.5),
    "all by the processor": GpuDecode(cpu_share=1.0),
}


@pytest.fixture
def cupy(monkeypatch):
    """A machine with one GPU, on which nothing is done before it has to be."""
    return install(LateGpu(), monkeypatch)


def compiled(ops, decode, batch=8, spec=ENCODED):
    program = fuse(ops, spec)
    engine = engine_for(program, "pillow")
    backend = importlib.import_module("fastfeed.backends.dali.backend")
    executor = open_executor(program, "pillow", 1)
    return backend.compile(program, executor, Timeline(None), batch, decode=decode), engine


def work(engine, blobs):
    boxes = np.array([[0, 0, header.height, header.width] for header in engine.probe(blobs)], float)
    return Work(Windows(boxes, np.zeros((len(blobs), 2), bool), np.full((len(blobs), 2), (48, 64))))


def rendered(runner, engine, blobs, out):
    assert runner.render(
        blobs, engine.probe(blobs), work(engine, blobs), out, threading.Event()
    ) == [None] * len(blobs)


def wanted(ops, blobs, decode, monkeypatch):
    """The same on the processor."""
    backend = importlib.import_module("fastfeed.backends.dali.backend")
    with monkeypatch.context() as without:
        without.setattr(backend, "gpu_count", lambda: 0)
        runner, engine = compiled(ops, decode)
    out = np.zeros((len(blobs), 48, 64, 3), runner.rendered.spec.dtype)
    rendered(runner, engine, blobs, out)
    return out


@pytest.mark.parametrize("name", DECODES)
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_a_batch_is_there_when_render_returns(cupy, monkeypatch, name, dtype):
    """On any stream: no one else waits for ours.

    Nor do we wait for the trainer's, which has a step to do.
    """
    ops = [ff.Resize((48, 64)), *([ff.ToFloat()] if dtype == "float32" else [])]
    runner, engine = compiled(ops, DECODES[name])
    blobs = [*BLOBS[:-1], GIF]
    out = runner.empty((8, 48, 64, 3), dtype)
    step = []
    cupy.gpu.default.enqueue(lambda: step.append("done"))
    rendered(runner, engine, blobs, out)
    want = wanted(ops, blobs, DECODES[name], monkeypatch)
    assert np.abs(out.values.astype(float) - want).max() <= (1 if dtype == "uint8" else 1 / 255)
    assert not step


def test_an_output_of_dali_is_held_while_a_part_of_it_is_copied(cupy, monkeypatch):
    """Of a batch with a bad file: its good rows are gathered by work that is queued, too."""
    runner, engine = compiled([ff.Resize((48, 64))], DECODES["dali"])
    blobs = [*BLOBS[:3], BLOBS[3][: len(BLOBS[3]) // 2], *BLOBS[4:]]
    out = runner.empty((8, 48, 64, 3), "uint8")
    results = runner.render(blobs, engine.probe(blobs), work(engine, blobs), out, threading.Event())
    assert [bad is None for bad in results] == [k != 3 for k in range(8)]
    good = [k for k in range(8) if k != 3]
    want = wanted([ff.Resize((48, 64))], [BLOBS[k] for k in good], DECODES["dali"], monkeypatch)
    assert np.array_equal(out.values[good], want) and not out.values[3].any()


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_a_mixed_batch_is_there_when_mix_returns(cupy, dtype):
    runner, _ = compiled(
        [ff.Resize((48, 64)), *([ff.ToFloat()] if dtype == "float32" else [])], GpuDecode()
    )
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (6, 48, 64, 3)).astype(dtype)
    how = np.array([BLEND, PASTE, MOSAIC, 0, BLEND])
    shares = np.tile([0.25, 0.75, 0, 0], (5, 1))
    box = np.array([[0, 0, 0, 0], [5, 6, 20, 30], [10, 20, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]])
    members, plan = (
        np.array([[k, (k + 1) % 6, (k + 2) % 6, (k + 3) % 6] for k in range(5)]),
        MixPlan(how, shares, box),
    )
    samples, out = runner.empty(pixels.shape, dtype), runner.empty((5, *pixels.shape[1:]), dtype)
    np.copyto(samples.values, pixels)
    runner.mix(samples, members, plan, out, threading.Event())
    want = np.empty(out.shape, dtype)
    importlib.import_module("fastfeed.backends.cpu.mixing").mix(pixels, members, plan, want)
    assert np.abs(out.values.astype(float) - want).max() <= (1 if dtype == "uint8" else 1e-4)


@pytest.fixture
def photos(tmp_path):
    """16 files, two of which are no images."""
    for k, blob in enumerate([*BLOBS, *OTHERS]):
        path = tmp_path / "ab"[k % 2] / f"{k:02}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"<html>not found</html>" if k in (5, 12) else blob)
    return tmp_path


@pytest.mark.parametrize("on_bad", ["mask", "substitute"])
@pytest.mark.parametrize("views", [0, 2])
def test_a_feeds_batch_is_there_when_it_arrives(cupy, monkeypatch, photos, on_bad, views):
    """Also the rows that are made black, or again, after its samples were rendered, and crops of a
    second size.
    """
    sizes = ff.MultiCrop((ff.View(48, 1, scale=(0.4, 1)), ff.View(32, 1, scale=(0.1, 0.4))))
    ops = [sizes if views else ff.Resize((48, 64))]

    def seen():
        how = {"threads": 2, "backend": "dali", "decode": GpuDecode(), "on_bad": on_bad, "seed": 3}
        with ff.Feed(ff.ImageFolder(photos), ops, batch=8, **how) as feed:
            for batch in feed:
                arrays = batch.views or (batch.images,)
                yield [getattr(array, "values", array).copy() for array in arrays], batch.weights

    there = list(seen())
    monkeypatch.setattr("fastfeed.backends.dali.backend.gpu_count", lambda: 0)
    for (got, weights), (want, _) in zip(there, seen(), strict=True):
        assert all(np.abs(a.astype(int) - b).max() <= 1 for a, b in zip(got, want, strict=True))
        assert not any(a[weights == 0].any() for a in got)
    assert sum(weights.sum() for _, weights in there) == (14 if on_bad == "mask" else 16)


def test_rows_of_a_second_size_are_written_on_that_sizes_stream(cupy):
    """Each size has a stream and memory of its own: what is copied on the other's is given back too
    early for it.
    """
    rows = importlib.import_module("fastfeed.feed.batch.rows")
    runners = [compiled([ff.Resize(size)], GpuDecode())[0] for size in ((48, 64), (24, 32))]
    branches = [
        rows.Branch(one.rendered, one, 4, 2, types.SimpleNamespace(rows=4, threads=1))
        for one in runners
    ]
    for one in runners:

        def render(blobs, headers, work, out, stop, number, one=one):
            with one.device_context():
                out[...] = one.xp.asarray(np.full(out.shape, 7, np.uint8))
            one.synchronize()
            return [None] * len(blobs)

        one.render = render
        one._executor = types.SimpleNamespace(blob=lambda samples, row: b"")
    samples = types.SimpleNamespace(
        ids=np.arange(4),
        bad={2: None},
        native=types.SimpleNamespace(header=lambda row: None),
        image_sizes=None,
    )
    samples.work = lambda program, draws, located: np.arange(4)
    annotator = types.SimpleNamespace(fill=lambda *_: None, before=lambda annotations: annotations)
    outs = [branch.buffers.take() for branch in branches]
    batch = types.SimpleNamespace(stop=threading.Event(), number=0)
    with pytest.MonkeyPatch.context() as patch, runners[0].device_context():
        patch.setattr(rows, "clear", lambda *_: None)
        maker = rows.RowMaker(branches, annotator, None, None)
        maker.fill({"": samples}, [[], []], rows.RowArrays(outs, None), batch)
    for one, out in reversed(list(zip(runners, outs, strict=True))):  # none waits for the other's
        one.synchronize()
        assert (out.values[[0, 1, 3]] == 7).all() and not out.values[2].any()
