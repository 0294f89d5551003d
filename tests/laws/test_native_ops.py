"""Native threads make what OpenCV and NumPy define: the same bytes, over all ops."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from helpers.engines import engine_for
from helpers.op_examples import ALL, listed, one_of_each
from helpers.opencv_ops import reference
from helpers.photos import folder, picture

import fastfeed.backends.cpu.backend as cpu
from fastfeed.decode.executor import Executor
from fastfeed.ops import (
    Equalize,
    FiveCrop,
    Function,
    Invert,
    JPEGCompression,
    Maybe,
    Normalize,
    OneOf,
    RandomFlip,
    RandomResizedCrop,
    Resize,
    Rotate,
    Sequential,
    Standardize,
    ToFloat,
    ToLayout,
)
from fastfeed.ops.program.compile import fuse
from fastfeed.runtime.extension import is_built
from fastfeed.runtime.timeline import Timeline
from fastfeed.sampling.rng import uniform
from fastfeed.sources import Arrays, ImageFolder

pytestmark = pytest.mark.skipif(not is_built(), reason="the native extension is not built")

N = 6
SIZES = ((40, 56), (31, 33), (1, 1), (3, 70), (64, 5), (70, 90))
NEVER = threading.Event()
PIXELS = [op for op in ALL if op.kind in ("geometry", "change", "views")]


def render_both(source, ops, seed=3):
    """(native, definition): batches as arrays, and the results."""
    program = fuse(ops, source.spec)
    made = []
    ids = np.arange(len(source))
    for branch in (program, *program.others):
        engine = engine_for(branch)
        executor = Executor(branch.decode, 2)
        native = cpu.compile(branch, executor, Timeline(), len(ids))
        python = reference.compile(branch, engine)
        blobs = source.read(ids.tolist())
        headers = engine.probe(blobs)
        sizes = np.array([(header.height, header.width) for header in headers])
        work = branch.work(branch.draw(lambda slot, n: uniform(seed, 1, ids, slot, n)), sizes)
        outs = [np.zeros((len(ids), *branch.shape), branch.spec.dtype) for _ in range(2)]
        samples = executor.read(source.addresses(ids), 1 << 40, NEVER)
        assert np.array_equal(samples.sizes, sizes)
        results = native.render_native(samples, np.zeros(len(ids), bool), work, outs[0], NEVER)
        bad = python.render(blobs, headers, work, outs[1], NEVER)
        assert results == {row: why for row, why in enumerate(bad) if why is not None}
        made.append(outs)
    return made


def check(made, op, levels=0):
    for native, python in made:
        if native.dtype == np.uint8:
            apart = np.abs(native.astype(int) - python)
        else:
            apart = (native != python).astype(int) * 255
        assert apart.max() <= levels, (
            f"{op!r}: {np.count_nonzero(apart)} of {apart.size} differ, by up to {apart.max()}"
        )


@pytest.mark.parametrize("channels", [3, 1])
@pytest.mark.parametrize("op", one_of_each(PIXELS), ids=repr)
def test_arrays(op, channels):
    for size in SIZES:
        images = np.ascontiguousarray(
            np.stack([picture(i, size) for i in range(N)])[..., :channels]
        )
        images[0], images[1] = 0, 200
        images[2] = np.random.default_rng(1).integers(0, 256, images[2].shape)
        try:
            fuse(listed(op, size), Arrays(images).spec)
        except Exception:  # some ops need three channels, or images of a least size
            continue
        check(render_both(Arrays(images), listed(op, size)), op)


@pytest.mark.parametrize("op", one_of_each(PIXELS), ids=repr)
def test_tables_of_neighbors(op):
    """Native threads merge the tables of neighbors into one."""
    if op.kind == "change":
        images = np.stack([picture(i, (31, 43)) for i in range(N)])
        check(render_both(Arrays(images), [Invert(), *listed(op, (31, 43)), Invert()]), op)


@pytest.mark.parametrize("op", one_of_each(PIXELS), ids=repr)
def test_files(op, photographs):
    check(render_both(photographs, [RandomResizedCrop(48), op, Resize((40, 40))]), op)


@pytest.mark.parametrize(
    "end",
    [
        [ToFloat()],
        [ToFloat("float16")],
        [ToFloat("bfloat16")],
        [Normalize.imagenet(), ToLayout("CHW")],
        [ToLayout("CHW")],
        [Standardize(), ToLayout("CHW")],
        [ToFloat("float16"), Standardize()],
        [ToFloat("bfloat16"), Standardize()],
    ],
)
@pytest.mark.parametrize("op", [RandomFlip(), JPEGCompression(), *ALL[-3:]], ids=repr)
def test_conversion(op, end, photographs):
    if op.kind in ("geometry", "change"):
        check(render_both(photographs, [RandomResizedCrop(48), op, *end]), op)


def darker(image, numbers):
    return np.rint(image * numbers[0]).astype(np.uint8)


@pytest.mark.parametrize(
    "ops",
    [
        [darker],
        [Invert(), darker, darker, JPEGCompression()],
        [OneOf([Rotate(30), darker, Equalize(), Function(darker, draws=1)])],
        [
            Maybe(OneOf([darker, Invert()]), 0.6),
            Maybe(Sequential([RandomFlip(1.0), darker, Invert()])),
        ],
        [FiveCrop(20), OneOf([darker, Invert()])],
    ],
)
def test_functions_among_native_ops(ops, photographs):
    check(render_both(photographs, [Resize((40, 40)), *ops]), ops)


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    return ImageFolder(folder(tmp_path_factory.mktemp("photos"), {"a": 5, "b": 5}, (120, 90)))
