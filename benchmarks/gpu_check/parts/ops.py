"""Every op on the GPU against the cpu backend, which defines what it means; in levels of 255."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

import fastfeed as ff
from benchmarks.gpu_check.parts.chains import CHAINS, SIMPLE, Within, in_turn
from benchmarks.gpu_check.parts.setting import Setting
from benchmarks.gpu_check.parts.spoiled import encoded
from fastfeed.backends.cpu import backend as cpu
from fastfeed.backends.dali import backend as dali
from fastfeed.decode.executor import open_executor
from fastfeed.ops import OPS
from fastfeed.ops.program.compile import Program, Work, fuse
from fastfeed.runtime.timeline import Timeline
from fastfeed.spec import ENCODED, PIXELS, Spec


class Case(NamedTuple):
    ops: list[Any]
    given: Spec
    within: Within


# made of the ops here, and of arithmetic on finished batches
_ELSEWHERE = (
    "label",
    "mix",
    "views",
)
_FIXED = Spec((120, 160, 3), "uint8", "HWC")
_SAME = Within(0, 0, 0)
_RESAMPLED = Within(2, 18, 0.3)  # edges: see fastfeed/backends/dali_ops.py
_FLOATS = Within(1e-3, 1e-3, 1e-4)
# NVIDIA's decoder has an inverse DCT and chroma upsampling of its own: a few levels, more at hard
# colored edges
_DECODED = Within(32, 40, 1.5)
_CASES = {
    "Decode": Case([ff.Decode(), ff.Resize((150, 200))], ENCODED, _DECODED),
    "Decode, crop": Case(
        [ff.RandomResizedCrop(128), ff.RandomFlip(), ff.Normalize.imagenet()], ENCODED, _DECODED
    ),
    "Resize": Case([ff.Resize((96, 128))], PIXELS, _RESAMPLED),
    "CenterCrop": Case([ff.CenterCrop((64, 96))], PIXELS, _SAME),
    "RandomResizedCrop": Case([ff.RandomResizedCrop((64, 96))], PIXELS, _RESAMPLED),
    "RandomResizedCrop, bicubic": Case(
        [ff.RandomResizedCrop(64, filter="bicubic")], PIXELS, Within(10, 10, 0.3)
    ),
    "RandomFlip": Case([ff.RandomFlip(direction="both")], _FIXED, _SAME),
    "ToFloat": Case([ff.ToFloat("float16")], _FIXED, Within(0.13, 0.13, 0.06)),
    "Normalize": Case([ff.Normalize.imagenet()], _FIXED, _FLOATS),
    "ToLayout": Case([ff.ToLayout("CHW")], _FIXED, _SAME),
}


def compared(setting: Setting, photos: list[Path]) -> tuple[dict[str, Any], list[str]]:
    """(worst differences by case, what is wrong)."""
    cases = _CASES | {name: Case(ops, _FIXED, within) for name, (ops, within) in CHAINS.items()}
    named = {type(op).__name__ for case in cases.values() for op in case.ops} | {
        type(op).__name__ for op, _ in SIMPLE
    }
    named |= {"Maybe", "Sequential", "Function"}  # inside others; never on a GPU
    wrong = [
        f"no case for {op.__name__}"
        for op in OPS
        if op.__name__ not in named and op.kind not in _ELSEWHERE
    ]
    pictures = [_picture(path) for path in photos[:8]]
    files = [path.read_bytes() for path in photos[:8]] + _others(pictures)
    parts = [np.ascontiguousarray(picture[:120, :160]) for picture in pictures]
    found = {}
    for name, case in cases.items():
        blobs: list[Any] = (
            files if case.given.encoded else parts if case.given == _FIXED else pictures
        )
        program = fuse(case.ops, case.given)
        found[name] = (_apart(_rendered(setting, program, blobs), program), case.within)
    program, work = in_turn(_FIXED, 4 * len(SIMPLE))
    both = _rendered(
        setting, program, [parts[k % len(parts)] for k in range(4 * len(SIMPLE))], work
    )
    for k, (op, within) in enumerate(SIMPLE):
        found[repr(op)[:60]] = (_apart([out[4 * k : 4 * k + 4] for out in both], program), within)
    for name, (apart, case_within) in found.items():
        for what, value, allowed in zip(Within._fields, apart, case_within, strict=True):
            if value > allowed:
                wrong.append(f"{name}: {what} {value:.3g} levels, allowed {allowed}")
    figures = {
        name: {k: float(f"{v:.3g}") for k, v in apart._asdict().items()}
        for name, (apart, _) in found.items()
    }
    return figures, wrong


def _rendered(
    setting: Setting, program: Program, blobs: list[Any], work: Work | None = None
) -> list[np.ndarray]:
    """By the cpu backend, and by DALI: it must not leave to the processor what it can do."""
    executor, outs = open_executor(program, "pillow", setting.cores), []
    engine = executor.pillow
    headers: Any = engine.probe(blobs)
    if work is None:
        rng = np.random.default_rng(5)
        sizes = np.array([(h.height, h.width) for h in headers])
        work = program.work(program.draw(lambda slot, n: rng.random((len(blobs), n))), sizes)
    for backend in (cpu, dali):
        runner = backend.compile(program, executor, Timeline(), len(blobs), decode=_decode(backend))
        if backend is dali and program.decode is None:
            runner._by_engine = _no_engine
        out = runner.empty(
            (len(blobs), *(side or 0 for side in program.spec.shape)), program.spec.dtype
        )
        bad = runner.render(blobs, engine.probe(blobs), work, out, threading.Event())
        runner.synchronize()
        assert not any(bad), f"{program.steps}: {backend.__name__} refused good images: {bad}"
        outs.append(np.asarray(out.get() if hasattr(out, "get") else out).astype(np.float64))
    return outs


def _no_engine(batch: Any, rows: list[int]) -> None:
    if rows:
        raise AssertionError(f"DALI refused {len(rows)} arrays, which cannot be bad")


def _apart(outs: list[np.ndarray], program: Program) -> Within:
    apart, how = np.abs(outs[0] - outs[1]), program.convert
    apart = (np.moveaxis(apart, 1, 3) if how.layout == "CHW" else apart) / np.array(how.scale)
    edge = apart.copy()
    edge[:, 1:-1, 1:-1] = 0
    return Within(float(apart[:, 1:-1, 1:-1].max()), float(edge.max()), float(apart.mean()))


def _decode(backend: Any) -> str:
    return "auto" if backend is cpu or not dali.gpu_count() else "gpu"


def _picture(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        small = image.convert("RGB")
        small.thumbnail((320, 320))
        return np.asarray(small)


def _others(pictures: list[np.ndarray]) -> list[bytes]:
    """Kinds of file that the GPU does not decode, in addition to those that it does."""
    images = [Image.fromarray(picture) for picture in pictures]
    return [
        encoded(images[0], "PNG"),
        encoded(images[1 % len(images)].convert("CMYK"), quality=92),
        encoded(images[2 % len(images)].convert("L"), quality=92),
        encoded(images[3 % len(images)], quality=92, progressive=True, subsampling=0),
    ]
