"""What does each op cost on one core, next to OpenCV written by hand, Pillow, torchvision,
Albumentations and DALI?

Processor time per 224 x 224 photograph. Everyone gets the same photographs in memory, in the form
that they like best, and leaves the given ones as they are; values are the same where they can be
passed. Ours is the batch that one native thread of a feed makes, parameters included. What handing
images in and out takes, a copy of each, is taken off: of DALI's time and of ours. What replaces
bytes by a table is also measured up to the normalized floats that a trainer gets. Then: a recipe
through a feed against decoding alone, and batches mixed by two threads.

--instructions AVX2 keeps our kernels to those, as on processors without AVX-512; OPENCV_CPU_DISABLE
in the environment does the same for OpenCV.

--with MODULE imports a module first, such as one that makes torchvision importable; what is not
importable is left out and said.
"""

from __future__ import annotations

import importlib
import statistics
from importlib import metadata
from threading import Event
from typing import Any

import cv2
import numpy as np
from augment_cases import (
    CASES,
    FORMS,
    IMAGES,
    SIDE,
    Ours,
    Run,
    each,
    evaluated,
    ours,
    photographs,
    plain,
    rows_of,
)
from bench_feed import decode_alone, walk
from rounds import DATA, cpu_rounds, finish, interleaved, parser

import fastfeed as ff
from fastfeed.backends.cpu.native_program import NativeProgram
from fastfeed.decode.executor import Executor
from fastfeed.ops.program.compile import fuse
from fastfeed.ops.program.layers import choose
from fastfeed.runtime.extension import extension
from fastfeed.runtime.timeline import Timeline

BATCH = 256
# replace each byte by another
ON_BYTES = (
    ff.AutoContrast,
    ff.Brightness,
    ff.Contrast,
    ff.Equalize,
    ff.Gamma,
    ff.Invert,
    ff.LUT,
    ff.Posterize,
    ff.Solarize,
    ff.SolarizeAdd,
)
# without parameters of single images, or composed of ops that have them
OTHERS = (
    "RandAugment",
    "TimmRandAugment",
    "TrivialAugmentWide",
    "AutoAugment",
    "AugMix",
    "ColorJitter",
    "Standardize",
)


def main() -> None:
    made = parser(__doc__, rounds=9)
    made.add_argument(
        "--with", dest="first", metavar="MODULE", help="import this before torchvision"
    )
    made.add_argument("--only", nargs="+", default=[], help="these ops alone, or mix")
    made.add_argument("--instructions", help="the newest that our kernels may use")
    options = made.parse_args()
    extension().testing.use_instruction_set(options.instructions)
    cv2.setNumThreads(1)
    missing: dict[str, str] = {}
    if options.first:
        importlib.import_module(options.first)
    tables = {
        name: table(name, missing)
        for name in ("opencv", "pillow", "vision", "dali", "albumentations_ops", "timm_ops")
    }
    images = photographs()
    ops = {
        name: one(images, tables, options.rounds, name, missing)
        for name in options.only or CASES
        if name != "mix"
    }
    result: dict[str, Any] = {
        "images": IMAGES,
        "unit": "microseconds of processor time per image",
        "ops": ops,
    }
    if "mix" in options.only:
        result["mix"] = batches(options.rounds)
    if not options.only:
        result |= {"tables, to floats": to_floats(images, tables["opencv"], options.rounds)}
        result |= {"feed": recipe(options.rounds, options.threads), "mix": batches(options.rounds)}
    rivals = {
        name: version(name)
        for name in ("torch", "torchvision", "nvidia-dali-cuda130", "albumentations", "timm")
    }
    more = {"rivals": {name: found for name, found in rivals.items() if found}, "missing": missing}
    finish("What does each op cost on one core?", result | more, options.out)


def version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def table(name: str, missing: dict[str, str]) -> Any:
    try:
        return importlib.import_module(f"rival_ops.{name}")
    except ImportError as error:
        missing[name] = str(error)
        return None


def one(
    images: list[np.ndarray],
    tables: dict[str, Any],
    rounds: int,
    name: str,
    missing: dict[str, str],
) -> dict:
    """Medians of all who have the op, how far their pixels are from ours, and ours against the
    best.
    """
    op, kind = evaluated(name), name.split(",")[0]
    u, sizes = np.random.default_rng(1).random((IMAGES, op.draws)), np.full((IMAGES, 2), SIDE)
    values = choose(op, u, sizes)[0].values[0] if kind not in OTHERS else {}
    rows = rows_of(values)
    mine, copies, picture = ours(op, u, images)
    runs: dict[str, Run] = {"ours": mine, "copies": copies}
    differs = {}
    for label, where, form in FORMS:
        function = getattr(tables[where], "OPS", {}).get(kind)
        if function is None:
            continue
        given = [form(image) for image in images]
        try:
            got = function(given[0], op, rows[0])
        except Exception as error:  # a rival that cannot do it here
            missing[f"{label}, {name}"] = f"{type(error).__name__}: {str(error)[:120]}"
            continue
        if got is None:
            continue
        runs[label] = lambda function=function, given=given: each(function, given, op, rows)
        # not where others draw, nor where torchvision's function is given other values
        if (
            (values or not op.draws)
            and "noise" not in name.lower()
            and (label[0] != "t" or kind != "Affine")
        ):
            differs[label] = round(float(np.abs(plain(got).astype(int) - picture).mean()), 2)
    lacks = getattr(op, "border", "constant") != "constant" or getattr(op, "expand", False)
    if tables["dali"] and not lacks and (found := tables["dali"].runner(kind, op, images)):
        runs |= {"DALI": found, "DALI, nothing": tables["dali"].runner("nothing", op, images)}
    times = cpu_rounds(rounds, runs)
    for label, less in (("ours", "copies"), ("DALI", "DALI, nothing")):
        if less in times:
            taken_off = times.pop(less)
            times[label] = [a - b for a, b in zip(times[label], taken_off, strict=True)]
    faster = {label: against(times, [label]) for label in times if label != "ours"}
    best = [label for label in times if label not in ("ours", "DALI")]
    return {
        "op": repr(op),
        "us": {label: round(statistics.median(took), 1) for label, took in times.items()},
        "spread": {
            label: [round(min(took), 1), round(max(took), 1)] for label, took in times.items()
        },
        "faster than": faster,
        "faster than the best of them": against(times, best),
        "mean difference of pixels, levels": differs,
    }


def to_floats(images: list[np.ndarray], by_hand: Any, rounds: int) -> dict[str, Any]:
    """Ops that are tables, and Normalize behind them, into a batch of float32: ours, and by hand
    with OpenCV.
    """
    normalize = ff.Normalize.imagenet()
    found: dict[str, Any] = {}
    batch = np.empty((len(images), SIDE, SIDE, 3), np.float32)
    scale = 1 / (255 * np.array(normalize.std, np.float32))
    offset = -np.array(normalize.mean, np.float32) / np.array(normalize.std, np.float32)
    for name in CASES:
        op = evaluated(name)
        if not isinstance(op, ON_BYTES):
            continue
        u, sizes = np.random.default_rng(1).random((IMAGES, op.draws)), np.full((IMAGES, 2), SIDE)
        rows, function = rows_of(choose(op, u, sizes)[0].values[0]), by_hand.OPS[name]

        def theirs(op: Any = op, function: Any = function, rows: Any = rows) -> int:
            for row, given in enumerate(images):
                np.multiply(function(given, op, rows[row]), scale, out=batch[row])
                batch[row] += offset
            return len(images)

        mine = Ours([op, normalize], images, u)
        times = cpu_rounds(rounds, {"ours": mine, "OpenCV by hand": theirs})
        found[name] = {
            "us": {label: round(statistics.median(took), 1) for label, took in times.items()},
            "faster than OpenCV by hand": against(times, ["OpenCV by hand"]),
        }
    return found


def against(times: dict[str, list[float]], rivals: list[str]) -> float | None:
    """How many times as long the fastest of them takes, median over rounds."""
    if not rivals:
        return None
    fastest = min(rivals, key=lambda label: statistics.median(times[label]))
    return round(
        statistics.median(b / a for a, b in zip(times["ours"], times[fastest], strict=True)), 2
    )


def recipe(rounds: int, threads: int) -> dict[str, Any]:
    """imagenet_train with ColorJitter and RandAugment in it, through a feed, against decoding the
    same crops alone.
    """
    source = ff.ImageFolder(DATA / "imagenet-sample", labeled=False)
    ops = ff.recipes.imagenet_train(SIDE)
    at = next(i for i, op in enumerate(ops) if op.kind == "convert")
    more = [*ops[:at], ff.ColorJitter(0.4, 0.4, 0.4), ff.RandAugment(), *ops[at:]]
    decoding = [op for op in ops if op.kind in ("decode", "geometry")]
    feeds = {
        name: ff.Feed(source, list_, batch=50, threads=threads)
        for name, list_ in (("decode", decoding), ("recipe", ops), ("recipe and more", more))
    }
    result = interleaved(
        rounds,
        {
            "decode alone": decode_alone(feeds["decode"], threads),
            "feed, imagenet_train": lambda: walk(feeds["recipe"]),
            "feed, with ColorJitter and RandAugment": lambda: walk(feeds["recipe and more"]),
        },
    )
    for feed in feeds.values():
        feed.close()
    alone = result["decode alone"]["cpu_ms_per_image"]
    cost = {name: round(of["cpu_ms_per_image"] / alone, 3) for name, of in result.items()}
    return {"ops": list(map(repr, more)), "result": result, "cost in decodings": cost}


def batches(rounds: int) -> dict[str, Any]:
    """A batch of 256 on two native threads: milliseconds."""
    rng = np.random.default_rng(0)
    made = rng.integers(0, 256, (BATCH + 1, SIDE, SIDE, 3), np.uint8)
    source, found = ff.Arrays(made), {}
    executor = Executor(None, 2)
    members = np.stack([np.arange(BATCH), np.arange(BATCH) + 1], axis=1)
    for name, op, by_hand in (
        ("MixUp", ff.MixUp(0.8), blended),
        ("MixUp, per batch", ff.MixUp(0.8, per="batch"), blended),
        ("CutMix", ff.CutMix(1.0), pasted),
        ("CutMix, per batch", ff.CutMix(1.0, per="batch"), pasted),
    ):
        program = fuse([op], source.spec, classes=10)
        native = NativeProgram(program, executor, Timeline(capacity=0))
        out = np.empty((BATCH, *program.shape), program.spec.dtype)
        u = rng.random((1 if op.per == "batch" else BATCH, op.draws))
        how = op.mix_plan(np.broadcast_to(u, (BATCH, op.draws)), (SIDE, SIDE))

        def whole(native: NativeProgram = native, how: Any = how, out: np.ndarray = out) -> int:
            native.mix(made, members, how, out, Event())
            return BATCH

        def theirs(make: Any = by_hand, how: Any = how, out: np.ndarray = out) -> int:
            for row in range(BATCH):
                make(made[row], made[row + 1], how, row, out[row])
            return BATCH

        times = cpu_rounds(rounds, {"ours": whole, "OpenCV by hand": theirs})
        rates = interleaved(rounds, {name: whole})[name]
        found[name] = {
            "cpu us per image": {
                label: round(statistics.median(took), 1) for label, took in times.items()
            },
            "faster than OpenCV by hand": against(times, ["OpenCV by hand"]),
            "ms per batch": round(1e3 * BATCH / rates["images_per_second"], 2),
            "best": round(1e3 * BATCH / rates["spread"][1], 2),
            "cpu ms per batch": round(rates["cpu_ms_per_image"] * BATCH, 2),
        }
    return found


def blended(first: np.ndarray, second: np.ndarray, how: Any, row: int, out: np.ndarray) -> None:
    share = float(how.shares[row, 0])
    cv2.addWeighted(first, share, second, 1 - share, 0, dst=out)


def pasted(first: np.ndarray, second: np.ndarray, how: Any, row: int, out: np.ndarray) -> None:
    top, left, height, width = how.box[row]
    np.copyto(out, first)
    box = slice(top, top + height), slice(left, left + width)
    out[box] = second[box]


if __name__ == "__main__":
    main()
