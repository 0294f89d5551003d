"""Feeds on the dali backend, end to end."""

import gc
import importlib
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from conftest import environment
from helpers.real_data import real_data
from helpers.side_by_side import encoded, needs_dali, on_the_processor, picture

import fastfeed as ff
from fastfeed.backends.options import GpuDecode
from fastfeed.errors import MissingExtra
from fastfeed.feed.session import FeedSession


@pytest.fixture
def folder(tmp_path) -> Path:
    """40 images of two classes, 6 of them bad."""
    for k in range(40):
        pixels = picture(50 + 3 * k, 160 - 2 * k, k)
        suffix, blob = (
            ("png", encoded(pixels, "PNG"))
            if k % 5 == 4
            else ("jpg", encoded(pixels, "JPEG", quality=90))
        )
        if k in (3, 17, 30):
            blob = blob[: len(blob) * 2 // 3]
        if k in (8, 25, 36):
            blob = {8: b"", 25: b"<html>not found</html>", 36: blob[:4] + bytes(300)}[k]
        path = tmp_path / "photos" / f"class{k % 2}" / f"{k:03}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(blob)
    return tmp_path / "photos"


def feed(source, backend: str, **options) -> ff.Feed:
    ops = [ff.RandomResizedCrop(32, scale=(0.5, 1)), ff.RandomFlip(), ff.Normalize.imagenet()]
    decode = "pillow" if backend == "cpu" else "auto"
    return ff.Feed(
        source,
        ops,
        **{"batch": 8, "seed": 3, "threads": 2, "backend": backend, "decode": decode} | options,
    )


@needs_dali
@pytest.mark.parametrize("on_bad", ["substitute", "mask"])
def test_a_feed_gives_the_same_samples_and_the_same_quarantine(folder, tmp_path, on_bad):
    seen = {}
    for backend in ("cpu", "dali"):
        listed = tmp_path / f"{backend}.jsonl"
        with feed(ff.ImageFolder(folder), backend, on_bad=on_bad, quarantine=listed) as f:
            seen[backend] = list(f.batches(0)), sorted(listed.read_text().splitlines())
            stages = FeedSession.of(f).timeline.totals()
    assert stages["dali"][0] >= 5
    entries = [[json.loads(line) for line in seen[backend][1]] for backend in seen]
    assert entries[0] == entries[1]
    assert len(entries[0]) == 6
    for a, b in zip(seen["cpu"][0], seen["dali"][0], strict=True):
        assert np.array_equal(a.ids, b.ids)
        assert np.array_equal(a.labels, b.labels)
        assert np.array_equal(a.weights, b.weights)
        assert np.abs(a.images - b.images).mean() * 255 * 0.225 < 1.5, (
            "the cpu backend shrinks JPEGs in the DCT domain"
        )
        assert np.array_equal(a.images[a.weights == 0], b.images[a.weights == 0])


@needs_dali
def test_files_that_native_threads_read_reach_dali(folder, monkeypatch):
    backend = importlib.import_module("fastfeed.backends.dali.backend")
    reached, by_graph = set(), backend.DaliBackend._by_graph

    def counted(self, work, rows):
        reached.update((work.headers[row].format, bytes(work.blobs[row])) for row in rows)
        return by_graph(self, work, rows)

    monkeypatch.setattr(backend.DaliBackend, "_by_graph", counted)
    with feed(ff.ImageFolder(folder), "dali", on_bad="mask", decode=GpuDecode(cpu_share=0)) as f:
        assert sum(len(batch.ids) for batch in f) == 40
    assert Counter(format for format, _ in reached) == {
        "JPEG": 32 - 6,
        "PNG": 8,
    }, "all but the bad ones"


@needs_dali
def test_resuming_gives_the_same_bits(folder):
    with feed(ff.ImageFolder(folder), "dali") as f:
        first = [b for _ in range(2) for b in f]
    with feed(ff.ImageFolder(folder), "dali") as f:
        for _ in zip(range(3), f, strict=False):
            pass
        state = f.state()
    with feed(ff.ImageFolder(folder), "dali", threads=1) as f:
        f.restore(state)
        rest = [b for _ in range(2) for b in f]
    assert [(b.epoch, b.step) for b in rest] == [(b.epoch, b.step) for b in first[3:]]
    for a, b in zip(first[3:], rest, strict=True):
        assert np.array_equal(a.ids, b.ids)
        assert np.array_equal(a.images, b.images)


@needs_dali
def test_pixels_do_not_depend_on_the_batch(folder):
    seen = []
    for batch in (4, 10):
        with feed(ff.ImageFolder(folder), "dali", batch=batch, on_bad="mask") as f:
            seen.append(np.concatenate([b.images for b in f]))
    assert np.array_equal(*seen)


@needs_dali
def test_arrays_and_half_precision():
    source = ff.Arrays(np.stack([picture(40, 56, k) for k in range(20)]), np.arange(20))
    ops = [ff.RandomResizedCrop(24), ff.ToFloat("float16"), ff.ToLayout("CHW")]
    with ff.Feed(source, ops, batch=6, backend="dali", threads=2, tail="pad") as f:
        assert "DALI on" in str(f)
        batches = list(f)
    with ff.Feed(source, ops, batch=6, backend="cpu", threads=2, tail="pad") as f:
        for a, b in zip(batches, f, strict=True):
            assert a.images.dtype == np.float16
            assert a.images.shape == (6, 3, 24, 24)
            assert (
                np.abs(a.images.astype(np.float32) - b.images)[:, :, 1:-1, 1:-1].max() <= 0.005
            )  # a level, and rounding


@needs_dali
def test_maps_of_other_fields_than_images_run():
    source = ff.Arrays(np.full((4, 8, 8, 3), 3, np.uint8), np.arange(4))
    ops = [ff.Invert(), ff.Map(lambda label: label + 1, "label", out="next")]
    with ff.Feed(source, ops, batch=4, shuffle=False, backend="dali") as made:
        assert next(iter(made))["next"].tolist() == [1, 2, 3, 4]


@needs_dali
def test_a_feed_that_renders_nothing_builds_no_graph_and_a_dropped_one_ends_its_threads():
    source = ff.Arrays(np.zeros((16, 24, 24, 3), np.uint8))
    threads = lambda: len(os.listdir("/proc/self/task"))  # noqa: E731 (native ones too)
    gc.collect()
    before = threads()
    f = ff.Feed(source, [ff.RandomFlip()], batch=4, backend="dali", threads=3)
    assert threads() == before
    walk = iter(f)
    next(walk)
    assert threads() > before
    f.close()
    del f, walk
    gc.collect()
    assert threads() <= before


@needs_dali
def test_the_interpreter_ends_in_the_middle_of_an_epoch(folder):
    program = (
        "import sys, fastfeed as ff\nf = ff.Feed(ff.ImageFolder(sys.argv[1]), [ff.Resize((32,"
        " 32))], batch=4, backend='dali', threads=2)\nprint(next(iter(f)).images.shape)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=on_the_processor(),
    )
    assert (done.returncode, done.stdout) == (0, "(4, 32, 32, 3)\n"), done.stderr


def test_without_dali_the_error_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "nvidia.dali", None)  # import raises, as without it
    for module in [name for name in sys.modules if name.startswith("fastfeed.backends.dali.")]:
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(
        MissingExtra, match="needs NVIDIA DALI: pip install 'fastfeed\\[cuda13\\]'"
    ) as caught:
        ff.Feed(ff.Arrays(np.zeros((4, 8, 8, 3), np.uint8)), [], batch=2, backend="dali")
    assert "fastfeed[cuda12]" in str(caught.value)


@pytest.mark.slow
@needs_dali
def test_real_files_end_alike():
    """Every file of the malformed collection: the same verdict, and what is handed over has the
    same pixels.
    """
    data = real_data() / "bad-images"
    if not data.is_dir():
        pytest.skip("needs the collection of bad images: FASTFEED_TEST_DATA is not set")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CORPUS, str(data)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout)
    assert report["verdicts"] == []
    assert report["pixels"] == []
    assert report["files"] > 500


CORPUS = """
import json, resource, sys, threading
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, (24 << 30, 24 << 30))  # a hostile file must not take the machine with it
import numpy as np, fastfeed as ff
from helpers.opencv_ops import reference as cpu
from fastfeed.backends.dali import backend as dali
from fastfeed.backends.dali.plain import plain_rows
from fastfeed.decode import DecodeFailure
from fastfeed.decode.executor import open_executor
from fastfeed.ops.program.compile import Work, fuse
from fastfeed.spec import ENCODED
from fastfeed.runtime.timeline import Timeline
program = fuse([ff.Resize((64, 64))], ENCODED)
executor, clock = open_executor(program, "pillow", 2), Timeline()
engine = executor.pillow
runners = [b.compile(program, executor, clock, 64) for b in (cpu, dali)]
files = sorted(p for p in Path(sys.argv[1]).rglob("*") if p.is_file())
files = [p for p in files if not isinstance(h := engine.probe([p.read_bytes()])[0], DecodeFailure) and h.height * h.width < 4e7]
verdicts, pixels = [], []
for k in range(0, len(files), 64):
    blobs = [p.read_bytes() for p in files[k : k + 64]]
    outs, said = np.zeros((2, len(blobs), 64, 64, 3), np.uint8), []
    for runner, out in zip(runners, outs):
        headers = engine.probe(blobs)
        plain = plain_rows(program, blobs, headers)
        windows = program.windows([np.empty((0, 0))], np.array([(h.height, h.width) for h in headers]))
        said.append(runner.render(blobs, headers, Work(windows), out, threading.Event()))
    apart = np.abs(outs[0].astype(int) - outs[1]).mean((1, 2, 3))
    for path, a, b, direct, far in zip(files[k : k + 64], *said, plain, apart):
        if direct and a and a.detail == "damaged pixel data":
            continue  # DALI decodes these files, and does not say so: docs/formats.md
        if (a and a.reason) != (b and b.reason):
            verdicts.append([path.name, a, b])
        if far > (6 if direct else 0):
            pixels.append([path.name, far])
print(json.dumps({"files": len(files), "verdicts": verdicts, "pixels": pixels}))
"""


@needs_dali
def test_gray_files_are_decoded_by_the_cpu(folder):
    ops = [ff.Decode(channels=1), ff.RandomResizedCrop(32), ff.Invert(), ff.ToFloat()]
    made = {}
    for backend in ("cpu", "dali"):
        options = {"batch": 8, "seed": 3, "threads": 2, "backend": backend, "on_bad": "mask"}
        decode = "pillow" if backend == "cpu" else "auto"
        with ff.Feed(ff.ImageFolder(folder), ops, decode=decode, **options) as f:
            made[backend] = next(iter(f)).images
            assert ("pillow; converted on" in str(f)) == (backend == "dali")
    np.testing.assert_allclose(made["dali"], made["cpu"], atol=1e-6)
