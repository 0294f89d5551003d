"""Every instruction set of the machine makes the same bytes: ops, decoding, resampling,
conversion.
"""

from __future__ import annotations

import threading

import numpy as np
import pytest
from helpers.op_examples import ALL, listed, one_of_each
from helpers.photos import folder, picture

import fastfeed.backends.cpu.backend as cpu
from fastfeed.decode import Recoder
from fastfeed.decode.executor import Executor
from fastfeed.ops import Normalize, RandomResizedCrop, Resize, Standardize, ToFloat, ToLayout
from fastfeed.ops.base import FILTERS
from fastfeed.ops.program.compile import fuse
from fastfeed.runtime.extension import is_built
from fastfeed.runtime.timeline import Timeline
from fastfeed.sampling.rng import uniform
from fastfeed.sources import Arrays, ImageFolder

pytestmark = pytest.mark.skipif(not is_built(), reason="the native extension is not built")

N = 3
SIZES = ((31, 33), (1, 1), (3, 70), (70, 90))
NEVER = threading.Event()
PIXELS = [op for op in ALL if op.kind in ("geometry", "change", "views")]


@pytest.fixture(autouse=True)
def fastest_again():
    yield
    kernel().testing.use_instruction_set(None)


def kernel():
    from fastfeed import _native

    return _native


def rendered(source, ops):
    """The batch of every branch of the program, made natively."""
    program = fuse(ops, source.spec)
    made = []
    ids = np.arange(len(source))
    for branch in (program, *program.others):
        executor = Executor(branch.decode, 1)
        native = cpu.compile(branch, executor, Timeline(), len(ids))
        samples = executor.read(source.addresses(ids), 1 << 40, NEVER)
        work = branch.work(branch.draw(lambda slot, n: uniform(5, 1, ids, slot, n)), samples.sizes)
        out = np.zeros((len(ids), *branch.shape), branch.spec.dtype)
        results = native.render_native(samples, np.zeros(len(ids), bool), work, out, NEVER)
        made.append((str(results), out.tobytes()))
    return made


def same_by_all(source, ops):
    native = kernel()
    first, *others = native.instruction_sets()
    native.testing.use_instruction_set(first)
    expected = rendered(source, ops)
    for name in others:
        native.testing.use_instruction_set(name)
        assert rendered(source, ops) == expected, f"{name} differs from {first} for {ops!r}"


def test_names():
    names = kernel().instruction_sets()
    assert names and len(set(names)) == len(names)
    kernel().testing.use_instruction_set(names[-1])
    with pytest.raises(ValueError, match="no instruction set of this machine: MMX"):
        kernel().testing.use_instruction_set("MMX")


@pytest.mark.parametrize("channels", [3, 1])
@pytest.mark.parametrize("op", one_of_each(PIXELS), ids=repr)
def test_ops(op, channels):
    for size in SIZES:
        images = np.ascontiguousarray(
            np.stack([picture(i, size) for i in range(N)])[..., :channels]
        )
        images[0] = np.random.default_rng(1).integers(0, 256, images[0].shape)
        try:
            fuse(listed(op, size), Arrays(images).spec)
        except Exception:  # some ops need three channels, or images of a least size
            continue
        same_by_all(Arrays(images), listed(op, size))


@pytest.mark.parametrize("size", [(7, 9), (48, 48), (130, 100)])
@pytest.mark.parametrize("filter", FILTERS)
def test_decoding(filter, size, photographs):
    """Baseline and progressive files, shrunk in the DCT domain or not, enlarged, resampled and
    flipped.
    """
    same_by_all(photographs, [RandomResizedCrop(size, scale=(0.01, 1.0), filter=filter)])


@pytest.mark.parametrize("subsampling", ["4:2:0", "4:4:4"])
@pytest.mark.parametrize("size", [(7, 9), (48, 37), (130, 101), (300, 401)])
@pytest.mark.parametrize("filter", FILTERS)
def test_recoding(filter, size, subsampling, photographs):
    """Whole JPEGs, scaled in planes; 1 to 6 groups of four weights."""
    files = [path.read_bytes() for path in sorted(photographs.root.rglob("*.jpg"))]
    recode = Recoder(
        [Resize(size, filter=filter)], subsampling=subsampling, threads=1, decode="native"
    )
    native = kernel()
    first, *others = native.instruction_sets()
    native.testing.use_instruction_set(first)
    expected = recode(files)
    assert all(isinstance(file, bytes) for file in expected)
    for name in others:
        native.testing.use_instruction_set(name)
        assert recode(files) == expected, f"{name} differs from {first}"


@pytest.mark.parametrize("size", [(7, 9), (130, 100), (400, 500)])
@pytest.mark.parametrize("filter", FILTERS)
def test_decoding_of_other_formats(filter, size, other_formats):
    same_by_all(other_formats, [RandomResizedCrop(size, scale=(0.05, 1.0), filter=filter)])


@pytest.mark.parametrize("filter", FILTERS)
def test_resampling(filter):
    images = np.stack([picture(i, (57, 91)) for i in range(N)])
    for size in ((20, 30), (57, 40), (30, 91), (200, 150), (1, 1)):
        for channels in (3, 1):
            same_by_all(
                Arrays(np.ascontiguousarray(images[..., :channels])), [Resize(size, filter=filter)]
            )


@pytest.mark.parametrize(
    "end",
    [
        [],
        [ToFloat()],
        [ToFloat("float16")],
        [Normalize.imagenet(), ToLayout("CHW")],
        [ToLayout("CHW")],
        [Standardize()],
    ],
    ids=repr,
)
def test_conversion(end, photographs):
    same_by_all(photographs, [RandomResizedCrop(48), *end])


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    from PIL import Image

    root = folder(tmp_path_factory.mktemp("photos"), {"a": 4, "b": 2}, (120, 90))
    for i, options in enumerate(
        ({"progressive": True}, {"subsampling": 0}, {"quality": 20, "progressive": True})
    ):
        Image.fromarray(picture(i, (151, 203))).save(root / "a" / f"more{i}.jpg", **options)
    return ImageFolder(root)


@pytest.fixture(scope="module")
def other_formats(tmp_path_factory):
    """PNGs, TIFFs and WebPs of every kind that the native extension takes."""
    from PIL import Image

    root = tmp_path_factory.mktemp("others")
    (root / "a").mkdir()
    image = Image.fromarray(picture(3, (309, 427)))
    files = {
        "rgb.png": {},
        "gray.png": {"mode": "L"},
        "palette.png": {"mode": "P"},
        "alpha.png": {"mode": "RGBA"},
        "lossy.webp": {"quality": 80},
        "lossless.webp": {"lossless": True},
        "lzw.tif": {"compression": "tiff_lzw"},
        "deflate.tif": {"compression": "tiff_adobe_deflate"},
        "packbits.tif": {"compression": "packbits"},
        "raw.tif": {},
    }
    for name, options in files.items():
        image.convert(options.pop("mode", "RGB")).save(root / "a" / name, **options)
    return ImageFolder(root)
