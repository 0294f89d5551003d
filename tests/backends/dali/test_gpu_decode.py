"""Decoding alongside DALI: the native extension takes a share.

Here on the processor.
"""

import importlib
import shutil
import threading

import numpy as np
import pytest
from helpers.engines import engine_for
from helpers.side_by_side import encoded, files, needs_dali, picture
from PIL import Image

import fastfeed as ff
from fastfeed.backends.options import GpuDecode, choose
from fastfeed.errors import ConfigError
from fastfeed.feed.config import BACKENDS
from fastfeed.feed.session import FeedSession
from fastfeed.ops.program.compile import Windows, Work, fuse
from fastfeed.spec import ENCODED

OPS = [ff.RandomResizedCrop(32), ff.RandomFlip(), ff.Normalize.imagenet()]


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setattr("fastfeed.backends.dali.backend.gpu_count", lambda: 0, raising=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos")
    for k in range(48):
        blob = encoded(picture(90 + k, 140 - k, k), "JPEG", quality=90, progressive=k % 5 == 0)
        if k in (7, 30):
            blob = blob[: len(blob) // 2]
        path = root / "ab"[k % 2] / f"{k:02}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(blob)
    return root


def feed(folder, decode, **options):
    backend = "dali" if decode != "native" else "cpu"
    defaults = {"batch": 8, "seed": 3, "threads": 2, "backend": backend, "decode": decode}
    return ff.Feed(ff.ImageFolder(folder), OPS, **defaults | options)


CHOICES = {
    "dali": GpuDecode(),
    "half by the native extension": GpuDecode(cpu_share=0.5),
    "all by the native extension": GpuDecode(cpu_share=1.0),
    "measured": GpuDecode(cpu_share=None),
}


@needs_dali
@pytest.mark.parametrize("name", CHOICES)
def test_every_choice_gives_the_same_samples_and_finds_the_same_faults(folder, name):
    with feed(folder, "native") as f:
        want, bad = list(f), {failure.id for failure in f.stats().bad}
    with feed(folder, CHOICES[name]) as f:
        got = list(f)
        assert {failure.id for failure in f.stats().bad} == bad and len(bad) == 2
    for a, b in zip(want, got, strict=True):
        assert np.array_equal(a.ids, b.ids)
        apart = np.abs(a.images - b.images) * 255 * 0.225
        assert apart.mean() < 1.5, "the cpu backend shrinks JPEGs in the DCT domain"


@needs_dali
@pytest.mark.parametrize("name", [name for name in CHOICES if name != "measured"])
def test_pixels_do_not_depend_on_the_batch(folder, name):
    seen = []
    for batch in (4, 12):
        with feed(folder, CHOICES[name], batch=batch, on_bad="mask") as f:
            seen.append(np.concatenate([b.images for b in f]))
    assert np.array_equal(*seen)


@needs_dali
def test_all_by_the_kernel_is_the_cpu_backend_to_the_bit(folder):
    with feed(folder, "native") as want, feed(folder, "cpu") as got:
        assert "converted on the CPU" in str(got)
        for a, b in zip(want, got, strict=True):
            assert np.array_equal(a.images, b.images)


@needs_dali
def test_several_threads_share_the_lanes(folder):
    """On a GPU two graphs work at once; on the processor one, which has all threads."""
    with feed(folder, GpuDecode(lanes=3), threads=3, prefetch=3) as f:
        assert FeedSession.of(f).backend.lanes == 1
        assert len(list(f)) == 6


@needs_dali
def test_a_share_is_measured_also_where_every_batch_has_files_for_the_cpu(
    folder, tmp_path, monkeypatch
):
    """Such as PNGs with transparency: the GPU is then never alone with a batch."""
    monkeypatch.setenv("FASTFEED_CACHE", str(tmp_path / "kept"))
    root = tmp_path / "mixed"
    root.mkdir()
    for path in sorted(folder.rglob("*.jpg"))[:12]:
        shutil.copy(path, root)
    Image.new("RGBA", (60, 50), (9, 99, 199, 128)).save(root / "see-through.png")
    source = ff.ImageFolder(root, labeled=False)
    how = {"batch": len(source), "backend": "dali", "on_bad": "mask"}
    with ff.Feed(source, OPS, decode=GpuDecode(cpu_share=None), threads=2, **how) as made:
        for epoch in range(60):
            if FeedSession.of(made).backend.share.measured:
                break
            for _ in made.batches(epoch, epochs=1):
                pass
        assert FeedSession.of(made).backend.share.measured, "it would ask the GPU alone for ever"


@pytest.mark.parametrize(
    ("decode", "backend", "want"),
    [
        ("auto", None, ("cpu", "auto")),
        ("cpu", None, ("cpu", "auto")),
        ("native", "cpu", ("cpu", "native")),
        ("gpu", None, ("dali", "gpu")),
        ("hybrid", "dali", ("dali", "hybrid")),
        ("auto", "dali", ("dali", "auto")),
        ("cpu", "dali", ("dali", "cpu")),
    ],
)
def test_gpu_decoding_means_the_dali_backend(decode, backend, want):
    assert choose(decode, backend, BACKENDS) == want


@pytest.mark.parametrize(
    ("decode", "backend", "words"),
    [
        (
            "fast",
            None,
            (
                "decode must be one of auto, cpu, native, pillow, gpu, hybrid, or a GpuDecode, got"
                " 'fast'"
            ),
        ),
        ("auto", "gpu", "backend must be one of cpu, dali, nvjpeg, got 'gpu'"),
        ("gpu", "cpu", "backend=\"cpu\" decodes on the CPU, got decode='gpu'; leave backend out"),
        (
            "native",
            "dali",
            (
                "decode='native' is the cpu backend's; with backend=\"dali\" use auto, cpu, gpu or"
                " hybrid"
            ),
        ),
    ],
)
def test_words_for_what_does_not_go_together(decode, backend, words):
    with pytest.raises(ConfigError) as caught:
        ff.Feed(
            ff.Arrays(np.zeros((4, 8, 8, 3), np.uint8)), [], batch=2, decode=decode, backend=backend
        )
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"engine": "nvimagecodec"}, "engine must be one of dali, nvjpeg, got 'nvimagecodec'"),
        ({"hw_load": 1.5}, r"hw_load must be in \[0, 1\], or None, got 1.5"),
        ({"cpu_share": -0.1}, r"cpu_share must be in \[0, 1\], or None, got -0.1"),
        ({"lanes": 0}, "lanes must be an integer >= 1, got 0"),
    ],
)
def test_words_for_wrong_options(options, words):
    with pytest.raises(ConfigError, match=words):
        GpuDecode(**options)


@needs_dali
@pytest.mark.parametrize("decode", ["gpu", "hybrid"])
def test_without_a_gpu_gpu_decoding_is_an_error(folder, decode):
    with pytest.raises(
        ConfigError, match=f'decode="{decode}" needs an NVIDIA GPU and its driver, none is here'
    ):
        ff.Feed(ff.ImageFolder(folder), OPS, batch=4, decode=decode)


@needs_dali
def test_the_same_sample_whatever_else_is_in_the_batch():
    """Also files of other kinds, which stay with the engine."""
    dali = importlib.import_module("fastfeed.backends.dali.backend")
    from fastfeed.decode.executor import open_executor
    from fastfeed.runtime.timeline import Timeline

    program = fuse([ff.Resize((48, 64))], ENCODED)
    engine, blobs = engine_for(program, "auto"), files()
    for how in CHOICES.values():
        executor = open_executor(program, "auto", 2)
        runner = dali.compile(program, executor, Timeline(), 32, decode=how)
        out = np.empty((len(blobs), 48, 64, 3), np.uint8)
        headers = engine.probe(blobs)
        windows = Windows(
            np.tile([0.0, 0, 48, 64], (len(blobs), 1)),
            np.zeros((len(blobs), 2), bool),
            np.full((len(blobs), 2), (48, 64)),
        )
        assert runner.render(blobs, headers, Work(windows), out, threading.Event()) == [None] * len(
            blobs
        )
        want = np.empty_like(out)
        from fastfeed.decode import Request

        engine.decode(
            Request(blobs, engine.probe(blobs), windows, "bilinear"), want, threading.Event()
        )
        assert np.abs(out.astype(int) - want).max() <= 1, how
