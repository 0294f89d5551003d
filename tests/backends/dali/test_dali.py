"""The dali backend does what the cpu backend does, on the processor here; `pytest -s` shows by how
much they differ.
"""

import importlib
import threading
from typing import NamedTuple

import numpy as np
import pytest
from helpers import dali_cases
from helpers.dali_cases import Differences, differences
from helpers.engines import engine_for
from helpers.meaning import SAME, Within
from helpers.op_examples import ON_DALI
from helpers.opencv_ops import reference as cpu
from helpers.side_by_side import (
    HERE,
    arrays,
    compiled,
    files,
    levels,
    needs_dali,
    picture,
    rendered,
)

import fastfeed as ff
from fastfeed.decode import Request
from fastfeed.ops import OPS
from fastfeed.ops.program.compile import Windows, Work, fuse
from fastfeed.spec import ENCODED, PIXELS, Spec

ELSEWHERE = ("views", "label", "map", "mix")
WORST: dict[str, Differences] = {}


class Case(NamedTuple):
    ops: list
    given: Spec
    within: Within


FIXED = Spec((40, 56, 3), "uint8", "HWC")
RESAMPLED = Within(1, 3, 0.25)  # edges: DALI repeats the outermost pixels, Pillow leaves them out
CASES = {  # every op that is not in ON_DALI, in the smallest program that holds it
    "Decode": Case([ff.Decode(), ff.Resize((48, 64))], ENCODED, Within(1, 1, 0.01)),
    "Resize": Case([ff.Resize((48, 64))], PIXELS, RESAMPLED),
    "CenterCrop": Case([ff.CenterCrop((32, 48))], PIXELS, SAME),
    "Crop": Case([ff.Crop(3, 4, 20)], FIXED, SAME),
    "RandomCrop": Case([ff.RandomCrop((32, 48), padding=9, mode="reflect")], FIXED, SAME),
    "Pad": Case([ff.Pad((7, 40), "reflect"), ff.RandomFlip()], FIXED, SAME),
    "RandomResizedCrop": Case([ff.RandomResizedCrop((32, 48))], PIXELS, RESAMPLED),
    "RandomResize": Case(
        [ff.RandomResize((24, 40)), ff.RandomCrop(20, pad_if_needed=True)], PIXELS, RESAMPLED
    ),
    "RandomFlip": Case([ff.RandomFlip(direction="both")], FIXED, SAME),
    "ToFloat": Case(
        [ff.ToFloat("float16")], FIXED, Within(0.07, 0.07, 0.03)
    ),  # half of float16's last place at most
    "Normalize": Case([ff.Normalize.imagenet()], FIXED, Within(1e-4, 1e-4, 1e-5)),
    "ToLayout": Case([ff.ToLayout("CHW")], FIXED, SAME),
}


def whole_windows(n: int) -> Windows:
    return Windows(
        np.tile([0.0, 0, 48, 64], (n, 1)), np.zeros((n, 2), bool), np.full((n, 2), (48, 64))
    )


@pytest.fixture
def agree(tmp_path):
    """Both backends on the same samples."""

    def check(name: str, ops: list, given: Spec, blobs: list, within: Within) -> None:
        want, got = levels(ops, given, blobs)
        WORST[name] = found = differences(got, want)
        dali_cases.check(name, found, within, dali_cases.stored(tmp_path, want, got))

    return check


@pytest.fixture(scope="module", autouse=True)
def table():
    yield
    dali_cases.show(WORST, 24)


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    """The tolerances are for the processor."""
    if HERE:
        monkeypatch.setattr(
            importlib.import_module("fastfeed.backends.dali.backend"), "gpu_count", lambda: 0
        )


def test_every_op_has_a_case():
    """Views, labels and what mixes samples: see test_dali_chain; with boxes: a test of feeds."""
    named = {
        op.__name__
        for op in OPS
        if getattr(op, "kind", "") not in ELSEWHERE and op not in (ff.IoUCrop, ff.ZoomOut)
    }
    missing = named - {*CASES, *(op.__name__ for op in ON_DALI)}
    assert not missing, (
        f"{', '.join(sorted(missing))}: a case is missing in CASES, or in ON_DALI of op_examples"
    )


@needs_dali
@pytest.mark.parametrize("op", [ff.IoUCrop(), ff.ZoomOut(1.0)], ids=repr)
def test_crops_by_boxes_agree(op):
    images = np.stack([picture(40, 56, k) for k in range(4)])
    source = ff.Objects(ff.Arrays(images), boxes=[[[5, 5, 30, 30]]] * 4)
    made = [
        next(iter(ff.Feed(source, [op, ff.Resize((24, 24))], batch=4, backend=backend))).images
        for backend in ("cpu", "dali")
    ]
    *_, mean, _far = differences(*made)
    assert mean < 1


@needs_dali
@pytest.mark.parametrize("name", CASES)
def test_ops_agree(agree, name):
    case = CASES[name]
    blobs = files() if case.given.encoded else arrays(case.given)
    agree(name, case.ops, case.given, blobs, case.within)


@needs_dali
@pytest.mark.parametrize(
    ("filter", "within"),
    [
        ("bilinear", RESAMPLED),
        ("bicubic", Within(6, 3, 0.25)),  # Pillow clips overshoot to bytes between its two passes
        ("lanczos", Within(9, 3, 0.25)),
        ("box", SAME),
        ("nearest", SAME),
    ],
)
@pytest.mark.parametrize("size", [(24, 30), (200, 260)])
def test_filters_agree(agree, filter, within, size):
    ops = [ff.RandomResizedCrop(size, filter=filter)]
    agree(f"{filter} to {size[0]}x{size[1]}", ops, PIXELS, arrays(PIXELS), within)


BORDERED = {
    "letterbox": [
        ff.Resize((40, 30), fit="pad", fill=(10, 200, 30)),
        ff.RandomFlip(direction="both"),
    ],
    "padded crop": [ff.RandomCrop((64, 80), padding=20, fill=(255, 0, 9)), ff.RandomFlip()],
    "padded, scaled": [
        ff.Pad((9, 30), "reflect"),
        ff.Resize((64, 48)),
        ff.RandomFlip(direction="both"),
    ],
    "all but beyond": [ff.Resize((40, 56)), ff.Pad(90, "edge"), ff.CenterCrop((60, 70))],
    "mirrored from beyond": [
        ff.RandomCrop((20, 20), padding=(30, 30, 40, 40), mode="reflect"),
        ff.RandomFlip(),
    ],
    "nothing of it": [
        ff.Resize((20, 20)),
        ff.Pad((30, 0, 0, 0), fill=(1, 2, 3)),
        ff.Crop(0, 0, 10),
    ],
}


@needs_dali
@pytest.mark.parametrize("changed", [False, True], ids=["decoded", "in the chain"])
@pytest.mark.parametrize("name", BORDERED)
def test_borders_agree(agree, name, changed):
    before = [ff.Resize((48, 60)), ff.Invert()] if changed else []
    agree(
        f"{name}{', in the chain' * changed}",
        [*before, *BORDERED[name]],
        PIXELS,
        arrays(PIXELS),
        Within(4, 4, 0.5),
    )


@needs_dali
def test_noise_is_the_worst_case(agree):
    blobs = [
        np.random.default_rng(k).integers(0, 256, (90 + k, 120, 3), dtype=np.uint8)
        for k in range(8)
    ]
    agree("bilinear, pure noise", [ff.Resize((32, 40))], PIXELS, blobs, Within(1, 18, 0.5))


@needs_dali
def test_windows_away_from_the_edge_agree_to_one_level():
    """Down to boxes of one pixel and boxes that lie between pixels."""
    dali = importlib.import_module("fastfeed.backends.dali.backend")
    boxes = np.array(
        [
            [20, 30, 1, 1],
            [33.3, 40.7, 60.2, 50.9],
            [30, 30, 1, 70],
            [25.5, 31, 80, 1.25],
            [40, 40, 24, 32],
        ]
    )
    flips = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [0, 1]], bool)
    windows = Windows(boxes, flips, np.full((5, 2), (24, 32)))
    blobs, out = [picture(130, 140, k) for k in range(5)], {}
    for backend in (cpu, dali):
        program, runner = compiled(backend, [ff.Resize((24, 32))], PIXELS)
        out[backend] = np.empty((5, 24, 32, 3), np.uint8)
        runner.render(
            blobs,
            engine_for(program, "pillow").probe(blobs),
            Work(windows),
            out[backend],
            threading.Event(),
        )
    assert np.abs(out[cpu].astype(int) - out[dali]).max() <= 1
    assert np.array_equal(out[dali][4], blobs[4][40:64, 40:72][:, ::-1]), (
        "nothing to scale: the pixels themselves"
    )


@needs_dali
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    "ops",
    [[], [ff.ToLayout("CHW")], [ff.ToFloat()], [ff.ToFloat("float16"), ff.ToLayout("CHW")]],
    ids=str,
)
def test_conversions_agree(agree, channels, ops):
    blobs = [picture(20, 31, k, channels) for k in range(3)]
    given = Spec((20, 31, channels), "uint8", "HWC")
    name = f"{channels} ch {'+'.join(type(op).__name__ for op in ops)}"
    agree(name, ops, given, blobs, Within(0.07, 0.07, 0.03))


@needs_dali
def test_only_what_dali_shows_alike_reaches_its_decoder():
    plain_rows = importlib.import_module("fastfeed.backends.dali.plain").plain_rows
    program = fuse([ff.Resize((48, 64))], ENCODED)
    blobs = files()
    headers = engine_for(program, "pillow").probe(blobs)
    plain = plain_rows(program, blobs, headers)
    jpegs = [True] * 9 + [False, True]
    assert plain == [
        *jpegs,
        True,
        True,
        False,
        False,
        False,
        False,
        False,
        False,
        True,
        False,
        *[False] * 4,
    ]
    short, doubtful = blobs[0][:-40], blobs[0][:900] + b"\xff\xdb" + blobs[0][900:]
    for blob in (short, doubtful):
        assert plain_rows(program, [blob], engine_for(program, "pillow").probe([blob])) == [False]


@needs_dali
def test_bad_samples_are_named_and_black_and_the_others_untouched():
    dali = importlib.import_module("fastfeed.backends.dali.backend")
    ops = [ff.Resize((48, 64)), ff.Normalize.imagenet(), ff.ToLayout("CHW")]
    good = files()[:8]
    whole, _ = rendered(dali, ops, ENCODED, good)
    broken = good[0][: len(good[0]) // 2]
    hidden = broken + b"\xff\xd9"  # complete as far as can be seen without decoding
    blobs = [*good[:3], broken, *good[3:6], hidden, *good[6:]]
    program, runner = compiled(dali, ops, ENCODED)
    out = np.empty((10, *program.spec.shape), np.float32)
    windows = whole_windows(10)
    for _ in range(3):  # the graph outlives the errors
        done = runner.render(
            blobs, engine_for(program, "pillow").probe(blobs), Work(windows), out, threading.Event()
        )
        assert done[3] is not None and done[3].reason == "truncated"
        assert [k for k, why in enumerate(done) if why is not None and k != 7] == [3]
        assert np.array_equal(out[[0, 1, 2, 4, 5, 6, 8, 9]], whole)
        assert np.array_equal(
            out[3], np.broadcast_to(program.convert.table()[0][:, None, None], out[3].shape)
        )


@needs_dali
def test_what_dali_refuses_is_found_and_decoded_by_the_engine(monkeypatch):
    """A batch that fails as a whole is halved until the culprits are alone."""
    dali = importlib.import_module("fastfeed.backends.dali.backend")
    program, runner = compiled(dali, [ff.Resize((48, 64))], ENCODED)
    blobs, runs = files()[:9], []
    run, refused = (
        importlib.import_module("fastfeed.backends.dali.pipeline").RenderPipeline.run,
        {blobs[2], blobs[7]},
    )

    def refuse(lane, blobs, *rest):
        runs.append(len(blobs))
        if refused.intersection(blobs):
            raise RuntimeError("nvImageCodec failure")
        return run(lane, blobs, *rest)

    monkeypatch.setattr("fastfeed.backends.dali.pipeline.RenderPipeline.run", refuse)
    got, want = np.empty((2, 9, 48, 64, 3), np.uint8)
    engine, windows = engine_for(program, "pillow"), whole_windows(9)
    assert (
        runner.render(blobs, engine.probe(blobs), Work(windows), got, threading.Event())
        == [None] * 9
    )
    engine.decode(Request(blobs, engine.probe(blobs), windows, "bilinear"), want, threading.Event())
    assert np.abs(got.astype(int) - want).max() <= 1
    assert len(runs) < 2 * 9


@needs_dali
def test_what_the_parser_refuses_stays_out_of_the_batch():
    """It would end the process, not only the batch."""
    dali = importlib.import_module("fastfeed.backends.dali.backend")
    plain = importlib.import_module("fastfeed.backends.dali.plain")
    program, runner = compiled(dali, [ff.Resize((48, 64))], ENCODED)
    good = files()[0]
    start = good.index(b"\xff\xdb")
    odd = good[:start] + b"\0" + good[start:]  # libjpeg skips what lies between segments
    blobs = [*files()[:8] * 3, odd]
    headers = engine_for(program, "pillow").probe(blobs)
    assert plain.PLAIN["JPEG"](odd, headers[-1].handle.look(odd), 1)
    assert plain.plain_rows(program, blobs, headers) == [True] * 24 + [False]
    out = np.empty((25, 48, 64, 3), np.uint8)
    assert (
        runner.render(blobs, headers, Work(whole_windows(25)), out, threading.Event())
        == [None] * 25
    )
    assert np.array_equal(out[-1], out[0])


@needs_dali
@pytest.mark.parametrize("why", ["CUDA allocation failed: out of memory", "the driver is gone"])
def test_failures_that_are_not_the_samples_fault_are_raised(monkeypatch, why):
    dali = importlib.import_module("fastfeed.backends.dali.backend")
    program, runner = compiled(dali, [ff.Resize((48, 64))], ENCODED)

    def fail(*_):
        raise RuntimeError(why)

    monkeypatch.setattr("fastfeed.backends.dali.pipeline.RenderPipeline.run", fail)
    windows = whole_windows(4)
    blobs = files()[:4]
    with pytest.raises(RuntimeError, match=why):
        runner.render(
            blobs,
            engine_for(program, "pillow").probe(blobs),
            Work(windows),
            np.empty((4, 48, 64, 3), np.uint8),
            threading.Event(),
        )
