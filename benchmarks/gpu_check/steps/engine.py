"""fastfeed on the JPEG engine through nvJPEG: its pixels against the CPU's, then its rates by what
can be chosen.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.gpu_check.parts.contestants import Ours
from benchmarks.gpu_check.parts.setting import Wrong
from benchmarks.gpu_check.steps.feeds import TINY, endless, ff, threads_here
from fastfeed.backends.options import GpuDecode
from fastfeed.feed.session import FeedSession

# of 255, at most: the engine has an inverse DCT of its own, and sums are rounded
_LEVELS, _MEAN = (
    8,
    0.5,
)
_CELL = 4.0  # seconds that one row takes at most: build, warm up, measure
_SHARE = {"imagenet": 0.75}  # of the time that is left, for a set; the last takes all
_ORIENTATION = 0x0112


def run(context: Any) -> None:
    setting = context.setting()
    first = next(iter(setting.sets.values()))
    wrong = _pixels(context, setting, first)
    for name, folder in list(setting.sets.items())[: 1 if context.stand_in else 2]:
        with context.part(_SHARE.get(name, 1.0)):
            wrong += _rates(context, setting, name, folder)
    if wrong:
        raise Wrong(wrong, context.figures)


def _decode(context: Any, **how: Any) -> Any:
    return "cpu" if context.stand_in else GpuDecode("nvjpeg", **how)


def _pixels(context: Any, setting: Any, folder: Path) -> list[str]:
    """Photographs, and every kind of file that the engine is said to take, cut in several ways."""
    kinds = context.work / "kinds"
    kinds.mkdir(exist_ok=True)
    photos = sorted(path for path in folder.rglob("*") if path.suffix == ".jpg")[
        : 4 if context.stand_in else 32
    ]
    for name, blob in _kinds(photos[0]):
        (kinds / f"{name}.jpg").write_bytes(blob)
    side = TINY if context.stand_in else 320  # the CPU shrinks none of them in the DCT domain first
    cuts = {
        "Resize": [ff.Resize((side, side))],
        "RandomResizedCrop": [ff.RandomResizedCrop(side, scale=(0.2, 1.0)), ff.RandomFlip()],
        "lanczos": [ff.Resize((side, side), filter="lanczos")],
        "padded": [
            ff.Resize((side, side - 9)),
            ff.Pad(16, "reflect"),
            ff.RandomFlip(direction="both"),
        ],
        "Normalize": [ff.Resize((side, side)), ff.Normalize.imagenet(), ff.ToLayout("CHW")],
    }
    found, wrong = {}, []
    for name, ops in cuts.items():
        for of, where in (("photographs", folder), ("kinds", kinds)):
            count = len(photos) if of == "photographs" else len(list(kinds.iterdir()))
            got, decoded = _batch(setting, where, ops, count, _decode(context))
            want, _ = _batch(setting, where, ops, count, "cpu")
            if not decoded and not context.stand_in:
                wrong.append(f"{of}, {name}: the engine decoded none of {count} files")
            unit = 1 / (255 * 0.225) if name == "Normalize" else 1.0
            apart = np.abs(got - want).reshape(count, -1) / unit
            worst = float(apart.max())
            found[f"{of}, {name}"] = {
                "levels": round(worst, 2),
                "mean": round(float(apart.mean()), 3),
            }
            if worst > _LEVELS or apart.mean(axis=1).max() > _MEAN:
                row = int(apart.mean(axis=1).argmax())
                wrong.append(
                    f"{of}, {name}: {worst:.0f} levels apart, file {row} {apart[row].mean():.2f} on"
                    " average"
                )
    context.note("levels against cpu", found)
    return wrong


def _kinds(photo: Path) -> Iterator[tuple[str, bytes]]:
    """One picture, as many files."""
    with Image.open(photo) as opened:
        picture = opened.convert("RGB").resize((501, 375))
    for name, how in (("444", 0), ("422", 1), ("420", 2)):
        yield name, _written(picture, subsampling=how)
    yield "gray", _written(picture.convert("L"))
    yield "restarts", _written(picture, restart_marker_rows=1)
    yield "progressive", _written(picture, progressive=True)
    for orientation in (2, 3, 6, 8):
        exif = Image.Exif()
        exif[_ORIENTATION] = orientation
        yield f"turned-{orientation}", _written(picture, exif=exif.tobytes())


def _written(picture: Image.Image, **how: Any) -> bytes:
    made = io.BytesIO()
    picture.save(made, "JPEG", quality=90, **how)
    return made.getvalue()


def _batch(setting: Any, folder: Path, ops: Any, count: int, decode: Any) -> tuple[np.ndarray, int]:
    """The first files, in their order, and how many images the engine has decoded by then."""
    source = ff.ImageFolder(folder, labeled=False, progress=False)
    with ff.Feed(
        source, ops, batch=count, shuffle=False, threads=setting.cores, decode=decode, seed=7
    ) as feed:
        images = next(iter(endless(feed)))
        there = np.asarray(images.get() if hasattr(images, "get") else images).astype(np.float64)
        return there, getattr(FeedSession.of(feed).backend, "decoded", 0)


def _rates(context: Any, setting: Any, name: str, folder: Path) -> list[str]:
    """Each alone, the likely ones first."""
    most, *fewer = threads_here(context.stand_in, (2, 4, 8, 16))[::-1]
    batch = 8 if context.stand_in else 32 if name == "stock" else 256
    rows: dict[str, tuple[int, dict[str, Any], int]] = {f"{most} threads": (most, {}, 2)}
    if not context.stand_in:
        rows |= {
            f"{most} threads, {lanes} lanes": (most, {"lanes": lanes}, lanes) for lanes in (3, 4, 1)
        }
        rows |= {f"{threads} threads": (threads, {}, 2) for threads in fewer}
        rows |= {
            f"{most} threads, {part:.0%} by the CPU": (most, {"cpu_share": part}, 2)
            for part in (0.1, 0.25, 0.4)
        }
    found: dict[str, Any] = {}
    for key, (threads, how, prefetch) in rows.items():
        if context.skips(f"{name}, {key}", _CELL):
            continue
        seconds = 0.1 if context.stand_in else 1.2
        try:
            one = Ours(
                replace(setting, cores=threads), folder, _decode(context, **how), batch, prefetch
            )
            try:
                one.warm(seconds / 2)
                found[key] = one.run(seconds)._asdict()
                stages = one.feed.stats().stage_ms
                found[key]["stages, ms"] = ", ".join(
                    f"{stage} {ms:.3f}" for stage, ms in stages.items()
                )
            finally:
                one.close()
        except Exception as error:  # the other rows are worth having
            found[key] = {"error": f"{type(error).__name__}: {error}"[:300]}
        context.note(name, found)
    return [f"{name}, {key}: {row['error']}" for key, row in found.items() if "error" in row]
