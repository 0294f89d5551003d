"""An unforeseen error, of whatever code in whatever stage, costs the sample that it is raised at
and no other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.helper_feeds import Failing, side
from helpers.jpegs import NO_KERNEL, encoded
from helpers.photos import jpeg, picture

import fastfeed as ff
from fastfeed.backends.cpu.native_program import NativeProgram
from fastfeed.decode.executor import Executor
from fastfeed.decode.pillow import PillowEngine
from fastfeed.errors import SampleError, SourceError, TooManyFailures
from fastfeed.faults import FaultPolicy
from fastfeed.runtime.extension import is_built
from fastfeed.sources.base import Instances
from fastfeed.spec import ENCODED

N, BAD, BATCH = 16, 5, 8
SIZE, BAD_SIZE = (40, 60), (42, 62)
WHY = "not even its author knows why"
# ops know the bad one by its size or by its color
WHITE = encoded(np.full((*BAD_SIZE, 3), 255, np.uint8))
FILES = [WHITE if i == BAD else jpeg(i, SIZE) for i in range(N)]
OPS = [ff.RandomResizedCrop(16), ff.RandomFlip(), ff.Brightness((1.0, 1.1))]
NEEDS_KERNEL = pytest.mark.skipif(not is_built(), reason=NO_KERNEL)
METHODS = ("read", "label", "weights", "columns", "boxes", "objects", "masks")


class Described:
    """Photographs with all that a source may say of them; its method `fails` raises at one of
    them.
    """

    classes, object_classes, fingerprint, spec, most = ("a", "b"), ("c",), "described", ENCODED, 1

    def __init__(self, fails: str = "", error: Exception | None = None) -> None:
        self._fails, self._error = fails, error or ValueError(WHY)

    def __len__(self) -> int:
        return N

    def _ids(self, name: str, ids: Any) -> np.ndarray:
        ids = np.asarray(ids, np.int64)
        if name == self._fails and BAD in ids:
            raise self._error
        return ids

    def uri(self, i: int) -> str:
        return f"photograph {i}"

    def read(self, ids: Any) -> list[Any]:
        return [FILES[i] for i in self._ids("read", ids)]

    def label(self, ids: np.ndarray) -> np.ndarray:
        return self._ids("label", ids) % 2

    def weights(self, ids: np.ndarray) -> np.ndarray:
        return self._ids("weights", ids).astype(np.float32) + 1

    def boxes(self, ids: np.ndarray) -> np.ndarray:
        return np.full((len(self._ids("boxes", ids)), 4), np.nan)

    def columns(self, ids: np.ndarray) -> dict[str, np.ndarray]:
        return {"number": self._ids("columns", ids) * 10}

    def objects(self, ids: np.ndarray) -> Instances:
        n = len(self._ids("objects", ids))
        return Instances(
            np.tile([4.0, 4.0, 50.0, 36.0], (n, 1)), np.zeros(n, np.int64), np.ones(n, np.int64)
        )

    def masks(self, ids: Any) -> list[Any]:
        return [
            np.full(BAD_SIZE if i == BAD else SIZE, i, np.uint8) for i in self._ids("masks", ids)
        ]


def is_bad(image: np.ndarray) -> bool:
    return bool(image.min() > 250)


def raises(where: Any, name: str, at: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a function or method raise where its arguments fulfill `at`."""
    real = getattr(where, name)

    def broken(*arguments: Any, **options: Any) -> Any:
        if at(*arguments):
            raise ValueError(WHY)
        return real(*arguments, **options)

    monkeypatch.setattr(where, name, broken)


def holds_bad(handle: Any, skip: Any = ()) -> bool:
    skip = np.zeros(len(handle), bool) if not len(skip) else skip
    return any(handle.bytes(k) == WHITE and not skip[k] for k in range(len(handle)))


KERNEL = {  # what raises: what is patched, its name, at which arguments, options of the feed
    "header": (Executor, "_inspected", lambda self, handle, *_: holds_bad(handle), {}),
    "decode": (
        Executor,
        "render",
        lambda self, program, handle, skip, *_: holds_bad(handle, skip),
        {},
    ),
    "crop": (
        ff.RandomResizedCrop,
        "params",
        lambda self, u, sizes: (sizes == BAD_SIZE).all(axis=1).any(),
        {},
    ),
    "mix": (
        *(
            NativeProgram,
            "mix",
            lambda self, samples, members, *_: any(map(is_bad, samples[members[:, 0]])),
        ),
        {"ops": [*OPS, ff.MixUp()]},
    ),
}
PILLOW = {
    "header": (PillowEngine, "probe", lambda self, blobs: WHITE in blobs, {"decode": "pillow"}),
    "decode": (
        PillowEngine,
        "decode",
        lambda self, request, *_: WHITE in request.blobs,
        {"decode": "pillow"},
    ),
    "op": (
        NativeProgram,
        "_through",
        lambda self, parts, handle, *_: min(handle.bytes(0)) > 250,
        {"decode": "pillow"},
    ),
}
CASES = [
    *(pytest.param(None, {"fails": name}, id=f"{name} of a source") for name in METHODS),
    *(
        pytest.param(case, {}, id=f"{name} in the native extension", marks=NEEDS_KERNEL)
        for name, case in KERNEL.items()
    ),
    *(pytest.param(case, {}, id=f"{name} with Pillow") for name, case in PILLOW.items()),
]


def rows(data: ff.Feed) -> dict[int, tuple[Any, ...]]:
    """All that one epoch says of each sample, by the position that it is due at."""
    with data:
        found: dict[int, tuple[Any, ...]] = {}
        for batch in data:
            for k in range(BATCH):
                more = (
                    []
                    if batch.objects is None or batch.masks is None
                    else [batch.objects.boxes[k].tobytes(), batch.masks[k].tobytes()]
                )
                label, weight = np.asarray(batch.labels[k]).tolist(), float(batch.weights[k])
                what = (
                    int(batch.ids[k]),
                    label,
                    int(batch.columns["number"][k]),
                    batch.images[k].tobytes(),
                    *more,
                )
                found[len(found)] = (weight, *what)
    return found


@pytest.mark.parametrize("on_bad", ["mask", "substitute"])
@pytest.mark.parametrize(("patch", "source"), CASES)
def test_an_unforeseen_error_costs_its_sample_alone(
    patch: tuple[Any, ...] | None,
    source: dict[str, Any],
    on_bad: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = {
        "batch": BATCH,
        "threads": 2,
        "shuffle": False,
        "on_bad": FaultPolicy(on_bad, max_share=1),
    }  # type: ignore[arg-type]
    ops = OPS
    if patch is not None:
        options |= patch[-1]
        ops = options.pop("ops", OPS)
    mixed = ops is not OPS
    made = ff.Feed(Unlocated() if mixed else Described(), ops, **options)
    want = rows(made)
    if patch is not None:
        where, name, at, _ = patch
        raises(where, name, at, monkeypatch)
    data = ff.Feed(Unlocated() if mixed else Described(**source), ops, **options)
    got = rows(data)
    (failure,) = data.stats().bad
    assert (failure.id, failure.uri, failure.reason) == (BAD, f"photograph {BAD}", "internal")
    assert f"ValueError: {WHY} (test_one_sample_alone.py, line " in failure.detail
    place = next(place for place, (_, id, *_) in want.items() if id == BAD)
    touched = {place, place ^ 1} if mixed else {place}  # pairs are mixed
    others = want.keys() - touched
    assert {i: got[i] for i in others} == {i: want[i] for i in others}
    weight, id = got[place][:2]
    assert (weight == 0 and id == BAD) if on_bad == "mask" else (weight == id + 1 and id != BAD)
    if on_bad == "substitute" and not mixed:
        assert got[place][2:4] == (id % 2, 10 * id), "label and column of what it was replaced by"


class Unlocated(Described):
    """Without boxes and masks, for ops that they cannot follow."""

    most = 0

    def objects(self, ids: np.ndarray) -> None:  # type: ignore[override]
        return None

    def masks(self, ids: Any) -> None:  # type: ignore[override]
        return None


def test_in_a_helper_process() -> None:
    with side(Failing("zero"), shuffle=False) as data:
        assert sum(1 for _ in data) == 5
        (failure,) = data.stats().bad
    assert (failure.id, failure.reason) == (
        25,
        "internal",
    ) and "ZeroDivisionError: in the source" in failure.detail


def test_with_dali(monkeypatch: pytest.MonkeyPatch) -> None:
    dali = pytest.importorskip("fastfeed.backends.dali.backend", exc_type=ImportError)
    marked = np.stack([picture(i, SIZE) for i in range(N)])
    marked[BAD] = 255
    raises(dali.DaliBackend, "render", lambda self, blobs, *_: any(map(is_bad, blobs)), monkeypatch)
    source = ff.Arrays(marked, np.arange(N))
    with ff.Feed(
        source,
        [ff.RandomResizedCrop(16)],
        batch=BATCH,
        shuffle=False,
        backend="dali",
        on_bad="mask",
    ) as data:
        weights = np.concatenate([batch.weights for batch in data])
        (failure,) = data.stats().bad
    assert (failure.id, failure.reason) == (BAD, "internal") and np.flatnonzero(
        weights == 0
    ).tolist() == [BAD]


def test_a_policy_that_raises_names_the_sample_and_the_error() -> None:
    with ff.Feed(Described("read"), OPS, batch=BATCH, on_bad="raise") as data:
        with pytest.raises(
            SampleError, match=rf"sample {BAD} .*photograph {BAD}: internal \(ValueError: {WHY}"
        ):
            list(data)


def test_an_error_at_every_sample_ends_the_run_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    raises(ff.RandomResizedCrop, "params", lambda *_: True, monkeypatch)
    with ff.Feed(Described(), OPS, batch=BATCH) as data:
        with pytest.raises(
            TooManyFailures, match=rf"\d+ internal\); check the code that raised it.*\n.*{WHY}"
        ):
            next(iter(data))


@pytest.mark.parametrize(
    "error", [SourceError("the index is gone"), MemoryError("64 GB"), OSError(24, "many files")]
)
def test_what_is_no_sample_s_fault_ends_the_run(error: Exception) -> None:
    with ff.Feed(Described("read", error), OPS, batch=BATCH, shuffle=False) as data:
        with pytest.raises(type(error), match=str(error.args[-1])):
            list(data)
        assert not data.stats().bad
