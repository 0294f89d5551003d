"""What goes wrong around a JPEG engine: bad files, refusals, no GPU, no memory; and nothing is read
too early.
"""

import gc
import sys
import threading

import numpy as np
import pytest
from helpers.cuda_on_cpu import needs_compiler
from helpers.jpegs import NO_KERNEL, native
from helpers.late_nvjpeg import install
from helpers.needs import needs
from helpers.side_by_side import encoded, picture

import fastfeed as ff
from fastfeed.backends.cpu import backend as cpu
from fastfeed.backends.nvjpeg import backend, decoder_stream
from fastfeed.backends.options import GpuDecode, choose
from fastfeed.decode.executor import open_executor
from fastfeed.errors import ConfigError, DeviceMemory, MissingExtra
from fastfeed.feed.config import BACKENDS
from fastfeed.ops.program.compile import fuse
from fastfeed.runtime.timeline import Timeline
from fastfeed.spec import ENCODED

pytestmark = [needs_compiler, pytest.mark.skipif(native is None, reason=NO_KERNEL)]
OPS = [ff.Resize((48, 48))]
ON_GPU = GpuDecode(engine="nvjpeg")
SIZES = [(80 + k, 90 - k) for k in range(24)]
CUT, TEXT, PROGRESSIVE, PNG, NARROW = 3, 5, 7, 11, 13


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos")
    for k, size in enumerate(SIZES):
        pixels = picture(*size, k)
        blob = (
            encoded(pixels, "PNG")
            if k == PNG
            else encoded(pixels, "JPEG", quality=90, progressive=k == PROGRESSIVE)
        )
        blob = {CUT: blob[: len(blob) // 2], TEXT: b"not a photograph"}.get(k, blob)
        (root / f"{k:02}.{'png' if k == PNG else 'jpg'}").write_bytes(blob)
    return root


@pytest.fixture
def machine(monkeypatch):
    """A fake nvJPEG, and a CuPy whose work is done as late as it may be."""
    return install(monkeypatch)


def feed(folder, ops=OPS, **options):
    source = ff.ImageFolder(folder, labeled=False, progress=False)
    defaults = {
        "batch": 8,
        "shuffle": False,
        "threads": 2,
        "decode": ON_GPU,
        "on_bad": ff.FaultPolicy(max_share=0.5),
    }
    return ff.Feed(source, ops, **defaults | options)


def everything(made):
    """(images of one epoch, ids that were named bad)"""
    with made:
        images = np.stack(
            [batch.images.get() if hasattr(batch.images, "get") else batch.images for batch in made]
        )
        return images.astype(int), {failure.id: failure.reason for failure in made.stats().bad}


def test_bad_files_are_named_and_replaced_as_on_the_cpu(folder, machine):
    fake, _ = machine
    images, bad = everything(feed(folder))
    want, named = everything(feed(folder, decode="cpu"))
    assert bad == named and set(bad) == {CUT, TEXT}
    assert np.abs(images - want).max() <= 1
    assert fake["decoded"] >= len(SIZES) - 4  # the PNG and the progressive file are the CPU's


@pytest.mark.parametrize("what", ["refused_width", "bad_width"])
def test_a_file_that_nvjpeg_refuses_is_decoded_by_the_cpu(folder, machine, what):
    """Before the batch, or within it, where nvJPEG does not say which file is at fault."""
    fake, _ = machine
    fake[what] = SIZES[NARROW][1]
    images, bad = everything(feed(folder))
    want, _ = everything(feed(folder, decode="cpu"))
    assert set(bad) == {CUT, TEXT} and np.abs(images - want).max() <= 1
    assert fake["decoded"] >= 10


@pytest.mark.parametrize(("what", "value"), [("taller", 8), ("asking", 3)])
def test_an_engine_that_takes_nothing_is_said(folder, machine, caplog, what, value):
    """Such as where nvJPEG sees another picture: it would write as much as it sees, over other
    pictures.
    """
    fake, _ = machine
    fake[what] = value
    images, bad = everything(feed(folder))
    want, _ = everything(feed(folder, decode="cpu"))
    assert (images == want).all() and set(bad) == {CUT, TEXT} and fake["decoded"] == 0
    said = [
        record.message
        for record in caplog.records
        if "The JPEG engine takes none of" in record.message
    ]
    assert len(said) == 1


@pytest.mark.parametrize(
    ("what", "value", "said"),
    [
        ("asking", 2, r"asking whether .*: nvJPEG says invalid parameter \(status 2\)"),
        ("always_bad", 1, r"nvJPEG decoded none of \d images that the CPU decodes"),
        ("lost", 1, "decoding: CUDA says CUDA_ERROR_ILLEGAL_ADDRESS"),
    ],
)
def test_a_gpu_that_fails_is_an_error(folder, machine, what, value, said):
    fake, _ = machine
    with feed(folder) as made:
        fake[what] = value
        with pytest.raises(RuntimeError, match=said):
            next(iter(made))


def test_no_memory_left_is_said_and_passes(folder, machine):
    fake, _ = machine
    with feed(folder) as made:
        fake["full"] = 1
        with pytest.raises(
            DeviceMemory, match=r"the memory of GPU 0 has no room to decode .* lower the batch size"
        ):
            next(iter(made))
        fake["full"] = 0
        assert len(next(iter(made)).images) == 8


@pytest.mark.parametrize(
    ("what", "value", "said"),
    [
        ("devices", 0, "no GPU can be used: CUDA says CUDA_ERROR_NO_DEVICE"),
        (
            "no_engine",
            7,
            "this GPU has no JPEG engine that nvJPEG can use: it says architecture mismatch",
        ),
        ("no_engine", 6, r"nvjpegCreateEx: nvJPEG says execution failed \(status 6\)"),
    ],
)
def test_a_machine_that_cannot_do_it_is_told_at_once(folder, machine, what, value, said):
    fake, _ = machine
    fake[what] = value
    gc.collect()
    before = fake["alive"]
    with pytest.raises(
        ConfigError,
        match=f'engine="nvjpeg" cannot start: {said}; use engine="dali" or decode="cpu"',
    ):
        feed(folder)
    gc.collect()
    assert fake["alive"] == before and fake.contexts == 0


def test_a_gpu_without_memory_at_the_start(folder, machine):
    fake, _ = machine
    fake["no_room"] = 1
    with pytest.raises(DeviceMemory, match=r"the memory of GPU 0 has no room to decode"):
        feed(folder)


def test_libraries_that_are_missing_or_too_old(folder, machine, monkeypatch):
    monkeypatch.setattr(backend, "DRIVER", "libno-such-driver.so.1")
    with pytest.raises(
        ConfigError, match=r"libno-such-driver.so.1 cannot be loaded: .*No such file"
    ):
        feed(folder)
    monkeypatch.setattr(backend, "DRIVER", "libm.so.6")
    with pytest.raises(ConfigError, match=r"libm\.so\.6 is too old: it has no cuInit"):
        feed(folder)


def test_cupy_without_its_compiler(folder, machine, monkeypatch):
    _, cupy = machine

    def refuse(**_):
        raise RuntimeError("Failed to find CUDA headers.\nInstall them.")

    monkeypatch.setattr(cupy, "RawModule", refuse)
    with pytest.raises(
        MissingExtra,
        match=r"cannot compile .*Failed to find CUDA headers\. Install.*fastfeed\[cuda13\]",
    ):
        feed(folder)


def test_no_gpu_for_cupy(folder, machine, monkeypatch):
    _, cupy = machine

    def without_driver():
        raise RuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")

    for count, said in (
        (without_driver, "none is here .*cudaErrorNoDevice"),
        (lambda: 0, "this process sees none"),
    ):
        monkeypatch.setattr(cupy.cuda.runtime, "getDeviceCount", count)
        with pytest.raises(ConfigError, match=said):
            feed(folder)


def test_finding_nvjpeg(monkeypatch):
    monkeypatch.setattr(backend, "_packaged", lambda names: [])
    monkeypatch.setattr(backend, "_VERSIONS", (999, 998))
    with pytest.raises(
        MissingExtra, match=r"needs nvJPEG, which is not here: pip install 'fastfeed\[cuda13\]'"
    ):
        backend.find_nvjpeg(1000)
    monkeypatch.setattr(
        backend, "_packaged", lambda names: [__file__] if names == ["libnvjpeg.so.998"] else []
    )
    with pytest.raises(MissingExtra, match=r"not here \(.*invalid ELF header"):
        backend.find_nvjpeg(998)


@needs("nvidia")
def test_ops_that_no_gpu_has(folder, machine):
    with pytest.raises(
        ConfigError, match=r"cannot run Function\(.*your own function on one NumPy image"
    ):
        feed(folder, [*OPS, ff.Function(lambda image, _: np.flipud(image))])


def test_ops_that_dali_has_when_it_is_not_there(folder, machine, monkeypatch):
    monkeypatch.setitem(sys.modules, "fastfeed.backends.dali.pipeline", None)
    with pytest.raises(ImportError):
        feed(folder, [*OPS, ff.Invert()])
    with feed(folder) as made:
        assert len(next(iter(made)).images) == 8


@needs("nvidia")
def test_ops_on_dali_after_the_engine(folder, machine, monkeypatch):
    """In several parts, with bad files and files of the CPU among them."""
    monkeypatch.setattr(decoder_stream, "_BYTES", 40_000)
    fake, _ = machine
    ops = [*OPS, ff.Invert(), ff.RandomErasing(p=1.0), ff.Brightness(0.4), ff.Normalize.imagenet()]
    found = []
    for how in (ON_GPU, "cpu"):
        with feed(folder, ops, decode=how) as made:
            images = [
                batch.images.get() if hasattr(batch.images, "get") else batch.images.copy()
                for batch in made
            ]
            found.append((np.stack(images), {failure.id for failure in made.stats().bad}))
    assert found[0][1] == {CUT, TEXT} and fake["decoded"] >= len(SIZES) - 4
    assert np.abs(found[0][0] - found[1][0]).max() <= 3.001 / 255 / 0.224


def test_arrays_are_refused(machine):
    arrays = ff.Arrays(np.zeros((4, 60, 60, 3), np.uint8))
    with pytest.raises(ConfigError, match="decodes files, got a source of arrays"):
        ff.Feed(arrays, OPS, batch=2, backend="nvjpeg")


@pytest.mark.parametrize("lanes", [1, 3])
def test_parts_that_fit_into_memory(folder, machine, monkeypatch, lanes):
    monkeypatch.setattr(decoder_stream, "_BYTES", 30_000)  # three of these files
    fake, _ = machine
    images, bad = everything(feed(folder, decode=GpuDecode("nvjpeg", lanes=lanes)))
    want, _ = everything(feed(folder, decode="cpu"))
    assert np.abs(images - want).max() <= 1 and set(bad) == {CUT, TEXT}
    assert 0 < fake["most"] <= 2


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_batch_is_there_when_it_returns_and_the_trainer_is_not_waited_for(machine, share):
    """On any stream, which for the trainer's step has work to do."""
    _, cupy = machine
    program = fuse([ff.Resize((48, 64)), ff.ToFloat()], ENCODED)
    executor = open_executor(program, "auto", 2)
    runner = backend.compile(
        program,
        executor,
        Timeline(None),
        8,
        decode=GpuDecode("nvjpeg", cpu_share=share),
    )
    blobs = [encoded(picture(80 + k, 90, k), "JPEG", quality=90) for k in range(8)]
    samples = executor.borrow(blobs, threading.Event())
    work, skip, step = (
        program.work([np.empty((0, 0))] * len(program.window), samples.sizes),
        np.zeros(8, bool),
        [],
    )
    skip[6] = True
    out = runner.empty((8, 48, 64, 3), "float32")
    black = out.values[6].copy()
    cupy.gpu.default.enqueue(lambda: step.append("done"))
    assert runner.render_native(samples, skip, work, out, threading.Event()) == {}
    want = np.empty(out.shape, "float32")
    assert (
        cpu.compile(program, executor, Timeline(None), 8).render_native(
            samples, skip, work, want, threading.Event()
        )
        == {}
    )
    assert np.abs(out.values[~skip] - want[~skip]).max() <= 1.001 / 255
    assert (out.values[6] == black).all() and not step
    stopped = threading.Event()
    stopped.set()
    assert runner.render_native(samples, skip, work, out, stopped) == {}


def test_a_stop_leaves_nothing_behind(folder, machine):
    fake, _ = machine
    gc.collect()
    before = fake["alive"]
    for _ in range(3):
        with feed(folder) as made:
            for _ in made:
                break
        del made, _
    gc.collect()
    assert fake["alive"] == before and fake.contexts == 0


def test_rows_that_were_not_planned_are_refused(machine):
    fake, _ = machine
    decoder = native.NvjpegDecoder(fake.path, fake.path, 0, 1)
    executor = native.Executor(1)
    samples = executor.borrow(
        [encoded(picture(20, 30, 1), "JPEG"), b"text"], 10**6, threading.Event()
    )
    layouts = np.zeros((2, 12), np.int64)
    decoder.plan(samples, np.zeros(2, bool), 0.0, layouts)
    assert (layouts[:, 0] > 0).tolist() == [True, False] and layouts[0, 3:5].tolist() == [30, 20]
    for row, error in ((1, ValueError), (2, IndexError), (-1, IndexError)):
        with pytest.raises(error):
            decoder.decode(
                samples, np.array([row]), np.zeros(1, np.uint64), layouts, np.zeros(1, bool)
            )
    with pytest.raises(ValueError, match="decoders must be in"):
        native.NvjpegDecoder(fake.path, fake.path, 0, 0)
    with pytest.raises(RuntimeError, match="no such GPU: CUDA says CUDA_ERROR_INVALID_DEVICE"):
        native.NvjpegDecoder(fake.path, fake.path, 7, 1)


def test_which_backend_a_choice_means():
    assert (
        choose(ON_GPU, None, BACKENDS) == choose(ON_GPU, "nvjpeg", BACKENDS) == ("nvjpeg", ON_GPU)
    )
    assert choose("hybrid", "nvjpeg", BACKENDS) == ("nvjpeg", "hybrid")
    for decode, name in ((ON_GPU, "dali"), (GpuDecode(), "nvjpeg"), ("pillow", "nvjpeg")):
        with pytest.raises(ConfigError, match=r"engine=|the cpu backend's"):
            choose(decode, name, BACKENDS)
    with pytest.raises(ConfigError, match="no decoder but the engine"):
        GpuDecode("nvjpeg", hw_load=0.5)
