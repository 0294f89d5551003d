"""Chains of ops on the dali backend, on the processor here; `pytest -s` shows how far they are from
the cpu backend.
"""

import importlib
import threading

import numpy as np
import pytest
from helpers.dali_cases import (
    Differences,
    InTurn,
    allowed,
    alone,
    check,
    composed,
    differences,
    show,
    stored,
)
from helpers.engines import engine_for
from helpers.op_examples import CHANGES, EXAMPLES, ON_DALI, one_of_each
from helpers.opencv_ops import reference as cpu
from helpers.side_by_side import HERE, compiled, encoded, files, needs_dali, picture

import fastfeed as ff
from fastfeed.decode import Header
from fastfeed.decode.executor import open_executor
from fastfeed.errors import ConfigError
from fastfeed.ops.program.compile import fuse
from fastfeed.ops.program.program import Work
from fastfeed.spec import ENCODED, Spec

pytestmark = needs_dali
SIZE, EACH = (40, 56), 5
WORST: dict[str, Differences] = {}


@pytest.fixture(scope="module", autouse=True)
def table():
    yield
    show(WORST, 60)


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    """The tolerances are for the processor."""
    if HERE:
        monkeypatch.setattr(
            importlib.import_module("fastfeed.backends.dali.backend"), "gpu_count", lambda: 0
        )


@pytest.fixture
def graph_alone(monkeypatch):
    """What DALI refuses would come from the cpu backend's kernels, and agree with them."""

    def refuse(backend, batch, rows):
        assert not rows, f"DALI refused {len(rows)} samples"

    monkeypatch.setattr(
        importlib.import_module("fastfeed.backends.dali.backend").DaliBackend, "_by_engine", refuse
    )


def images(n: int, size=SIZE, channels: int = 3) -> list[np.ndarray]:
    """Soft and hard shapes; every fifth is plain, every fifth low in contrast."""
    found = [picture(*size, seed=k, channels=channels) for k in range(n)]
    for k in range(0, n, EACH):
        found[k][:] = found[k][0, 0]
    for k in range(1, n, EACH):
        found[k] = found[k] // 3 + 60
    return found


def both(ops: list, given: Spec, blobs: list) -> tuple[np.ndarray, np.ndarray, object, Work]:
    """(cpu's, dali's, the dali backend, what was done)."""
    made = []
    for backend in (cpu, importlib.import_module("fastfeed.backends.dali.backend")):
        program, runner = compiled(backend, ops, given, len(blobs))
        rng = np.random.default_rng(5)
        sizes = np.tile(np.array([SIZE if given.encoded else given.size]), (len(blobs), 1))
        work = program.work(
            program.draw(lambda slot, n, rng=rng: rng.random((len(blobs), n))), sizes
        )
        made.append(rendered(program, runner, work, blobs))
    return made[0], made[1], runner, work


def rendered(program, runner, work: Work, blobs: list, bad=()) -> np.ndarray:
    headers = engine_for(program, "pillow").probe(blobs)
    assert all(isinstance(h, Header) for h in headers)
    out = np.full((len(blobs), *program.spec.shape), 7, program.spec.dtype)
    done = runner.render(blobs, headers, work, out, threading.Event())
    assert [k for k, why in enumerate(done) if why is not None] == list(bad), done
    return out


def test_every_op_that_changes_pixels_has_a_tolerance():
    missing = {type(op) for op in CHANGES} - set(ON_DALI)
    modules = [
        f"{kind.__name__} needs a tolerance, or None, in ON_DALI of helpers/op_examples"
        for kind in missing
    ]
    assert not missing, "; ".join(modules)
    assert {type(op) for op in composed()} == {kind for kind in ON_DALI if hasattr(kind, "layers")}


@needs_dali
def test_every_op_with_a_tolerance_has_a_lowering():
    lowering = importlib.import_module("fastfeed.backends.dali.chain").LOWERING
    simple = {
        kind
        for kind, within in ON_DALI.items()
        if within is not None and not hasattr(kind, "layers")
    }
    missing = [
        f"{kind.__name__} needs a lowering in backends/dali" for kind in simple - set(lowering)
    ]
    assert not missing, "; ".join(missing)


@pytest.mark.parametrize("channels", [3, 1])
def test_simple_ops_agree(graph_alone, channels, tmp_path):
    """All in one graph: what a sample takes is data."""
    given = Spec((*SIZE, channels), "uint8", "HWC")
    ops = alone(given)
    blobs = images(EACH * (len(ops) + 1), SIZE, channels)
    want, got, _, _ = both([InTurn(ops, EACH)], given, blobs)
    for k, op in enumerate(ops):
        part = slice(EACH * k, EACH * (k + 1))
        WORST[f"{op!r}{' gray' if channels == 1 else ''}"] = found = differences(
            got[part], want[part]
        )
        check(repr(op), found, allowed(op), stored(tmp_path, want[part], got[part]))
    assert np.array_equal(got[-EACH:], np.stack(blobs[-EACH:])), "no op: the pixels themselves"


@pytest.mark.parametrize("size", [(1, 1), (2, 40)])
def test_simple_ops_agree_on_tiny_and_flat_images(graph_alone, size, tmp_path):
    given = Spec((*size, 3), "uint8", "HWC")
    ops = alone(given)
    want, got, _, _ = both([InTurn(ops, 2)], given, images(2 * len(ops), size))
    for k, op in enumerate(ops):
        part = slice(2 * k, 2 * k + 2)
        most = allowed(op)
        most = most._replace(mean=9, far=max(most.far, 0.05))  # one pixel is all of it
        check(
            f"{op!r} on {size}",
            differences(got[part], want[part]),
            most,
            stored(tmp_path, want[part], got[part]),
        )


@pytest.mark.parametrize(
    "op", one_of_each([*composed(), *EXAMPLES.get(ff.AugMix, [])[:2]]), ids=repr
)
def test_ops_made_of_others_agree(graph_alone, op, tmp_path):
    """A sample that takes another op than on the cpu backend is tens of levels away."""
    given = Spec((*SIZE, 3), "uint8", "HWC")
    want, got, _, _ = both([op], given, images(32))
    WORST[repr(op)] = found = differences(got, want)
    check(repr(op), found, allowed(op), stored(tmp_path, want, got))
    each = np.abs(got.astype(int) - want).mean(axis=(1, 2, 3))
    assert each.max() < 4, f"{op!r}: sample {each.argmax()} is {each.max():.1f} levels away"


POLICY = [
    ff.RandAugment(),
    ff.ColorJitter(0.4, 0.4, 0.4, 0.1),
    ff.Maybe(ff.RandomErasing(1.0, fill="noise"), 0.5),
]


def test_a_sample_is_the_same_in_any_batch(graph_alone):
    given = Spec((*SIZE, 3), "uint8", "HWC")
    blobs = images(12)
    _, whole, runner, work = both([*POLICY, ff.ToFloat()], given, blobs)
    program = runner.rendered
    for rows in ([7], [11, 0, 3], list(range(5, 12))):
        part = rendered(program, runner, work[rows], [blobs[row] for row in rows])
        assert np.array_equal(part, whole[rows])


def test_a_bad_file_costs_no_other_sample_its_chain():
    """Files that DALI shows otherwise are changed on the processor, what is bad is black."""
    ops = [ff.Resize(SIZE), *POLICY]
    kinds = [blob for blob in files(*SIZE) if blob[:6] != b"GIF89a"]
    want, got, runner, work = both(ops, ENCODED, kinds)
    assert np.abs(want.astype(int) - got).mean(axis=(1, 2, 3)).max() < 4
    good = encoded(picture(*SIZE, 1), "JPEG", quality=90)
    # the second one looks complete
    broken = [
        good[: len(good) // 2],
        good[: len(good) // 2] + b"\xff\xd9",
    ]
    rows = [0, 1, 2, 9, 3, 13, 4, 5]
    blobs = [kinds[row] for row in rows]
    blobs[2:2], rows[2:2] = broken[:1], [6]
    again = rendered(runner.rendered, runner, work[rows], blobs, bad=[2])
    assert not again[2].any()
    kept = [k for k in range(len(rows)) if k != 2]
    assert np.array_equal(again[kept], got[[rows[k] for k in kept]])


def test_all_by_the_engine_is_the_cpu_backend_to_the_bit():
    from fastfeed.backends.options import GpuDecode
    from fastfeed.runtime.timeline import Timeline

    blobs = [encoded(picture(*SIZE, k), "JPEG", quality=90) for k in range(9)]
    ops = [ff.Resize(SIZE, fit="pad"), *POLICY, ff.Normalize.imagenet()]
    want, _, runner, work = both(ops, ENCODED, blobs)
    program = runner.rendered
    dali = importlib.import_module("fastfeed.backends.dali.backend")
    executor = open_executor(program, "pillow", 2)
    own = dali.compile(program, executor, Timeline(), 9, decode=GpuDecode(cpu_share=1.0))
    assert np.array_equal(rendered(program, own, work, blobs), want)


def test_ops_that_need_no_number(graph_alone):
    given = Spec((*SIZE, 3), "uint8", "HWC")
    want, got, _, _ = both([ff.Invert(), ff.Grayscale()], given, images(4))
    assert np.abs(want.astype(int) - got).max() <= 1


def test_what_dali_cannot_do_to_some_samples_is_not_left_to_the_processor(monkeypatch):
    """Arrays are never bad, so it is the op."""
    chain = importlib.import_module("fastfeed.backends.dali.chain")
    monkeypatch.setitem(
        chain.LOWERING, ff.Invert, lambda op, values, image, at: chain.fn.reshape(image, shape=[7])
    )
    with pytest.raises(RuntimeError, match="reshape"):
        both([ff.Maybe(ff.Invert(), 0.3)], Spec((*SIZE, 3), "uint8", "HWC"), images(8))


def test_how_many_samples_take_an_op():
    plain = np.full((512, 2, 3, 3), 20, np.uint8)
    seen = {}
    for backend in ("cpu", "dali"):
        ops = [
            ff.Maybe(ff.Invert(), 0.3),
            ff.OneOf([ff.Brightness((0, 0)), ff.Posterize((8, 8))], [1, 3]),
        ]
        with ff.Feed(ff.Arrays(plain), ops, batch=64, seed=3, backend=backend) as feed:
            seen[backend] = np.concatenate([batch.images[:, 0, 0, 0] for batch in feed])
    assert np.array_equal(seen["cpu"], seen["dali"])
    dark, inverted = (seen["dali"] == 0).mean(), (seen["dali"] == 235).mean()
    assert 0.20 < dark < 0.30 and 0.3 * 0.75 - 0.05 < inverted < 0.3 * 0.75 + 0.05


def test_a_filter_that_dali_has_not_is_the_engines_work():
    ops = [ff.Resize(SIZE), ff.Invert(), ff.Resize((20, 30), "box")]
    want, got, runner, _ = both(ops, Spec((60, 70, 3), "uint8", "HWC"), images(3, (60, 70)))
    assert np.array_equal(want, got)
    assert runner.decode_path() == "pixels; converted on the CPU"


def test_a_function_of_the_users_own_is_an_error():
    def darker(image, numbers):
        return image // 2

    for op in (darker, ff.Maybe(ff.Sequential([ff.Invert(), darker]))):
        with pytest.raises(
            ConfigError,
            match=r'backend="dali" cannot run Function\(.*darker\).*; use backend="cpu"',
        ):
            ff.Feed(ff.Arrays(np.zeros((4, 8, 8, 3), np.uint8)), [op], batch=2, backend="dali")


WHOLE = [
    op
    for kind in (ff.FiveCrop, ff.TenCrop, ff.MultiCrop, ff.MixUp, ff.CutMix, ff.Mosaic)
    for op in EXAMPLES[kind]
]


@pytest.mark.parametrize("op", WHOLE, ids=repr)
def test_views_and_mixed_samples_agree(op):
    pixels, labels, made = np.stack([picture(40, 56, k) for k in range(12)]), np.arange(12) % 3, {}
    views = op.kind == "views"
    ops = [op, ff.Maybe(ff.Invert())] if views else [ff.Maybe(ff.Invert()), ff.OneHot(3), op]
    ops = [ff.RandomFlip(), *ops, ff.ToFloat()]
    for backend in ("cpu", "dali"):
        with ff.Feed(ff.Arrays(pixels, labels), ops, batch=4, seed=3, backend=backend) as feed:
            made[backend] = list(feed)
    for want, got in zip(made["cpu"], made["dali"], strict=True):
        assert np.array_equal(want.labels, got.labels)
        for a, b in zip(every(want.images), every(got.images), strict=True):
            assert a.shape == b.shape
            # edges: see dali/graph; and the cpu backend halves an image once for all of its small
            # views
            assert np.abs(a - b).max() <= 18 / 255 and np.abs(a - b).mean() < 2 / 255


def every(images):
    """One array, or one for each size of view."""
    return images if isinstance(images, (list, tuple)) else [images]


ON_THE_HOST = {  # numbers, and noise that is read from a table
    "ExternalSource",
    "Cast",
    "Cat",
    "Reshape",
    "_ArithmeticGenericOp",
    "_Shape",
    "_TensorSubscript",
    "_conditional__Split",
}


def test_the_graph_of_a_gpu_keeps_pixels_there(monkeypatch):
    """It can be written down without one: every operator exists for a GPU, and what enters one
    stays.
    """
    ops = importlib.import_module("fastfeed.backends.dali.graph")
    dali = importlib.import_module("nvidia.dali")
    found: list = []
    monkeypatch.setattr(dali.Pipeline, "build", lambda pipe: found.append(pipe))
    given = Spec((*SIZE, 3), "uint8", "HWC")
    padded = ff.RandomCrop(SIZE, padding=9, mode="reflect")
    program = fuse(
        [padded, InTurn(alone(given), EACH), ff.AugMix(), ff.Pad(9), *POLICY, ff.ToFloat()], given
    )
    ops.build(ops.Graph(program, 8, 2, 0))
    found[0]._build_graph()
    there, seen = dali.ops._registry.gpu_ops(), set()
    for one in found[0]._ops:
        name, device = getattr(one._op, "schema_name", "ExternalSource"), one.outputs[0].device
        came = {node.device for node in one.inputs[: 1 + (name == "_conditional__Merge")]}
        assert device == "cpu" or name in there, name
        assert "gpu" not in came or device == "gpu" or name == "_Shape", (
            f"{name} brings pixels back"
        )
        seen.add((name, device))
    assert {
        ("WarpAffine", "gpu"),
        ("Filter", "gpu"),
        ("Equalize", "gpu"),
        ("_conditional__Split", "gpu"),
    } <= seen
    assert not {name for name, device in seen if device == "cpu"} - ON_THE_HOST
