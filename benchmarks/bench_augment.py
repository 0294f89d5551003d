"""What does each op cost on one core, beside OpenCV written by hand, Pillow, torchvision and DALI?

Processor time per 224 x 224 photograph. Everyone gets the same photographs in memory, in the form that they like best,
and leaves the given ones as they are; values are the same where they can be passed. Ours is the chain that a feed runs,
parameters included. Of DALI's time, what handing images in and out takes is taken off. Then: a recipe through a feed
beside decoding alone, and batches mixed by two threads.

--with MODULE imports a module first, such as one that makes torchvision importable; what is not importable is left out
and said.
"""

from __future__ import annotations

import importlib
import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cv2
import numpy as np
from bench_feed import decode_alone, walk
from PIL import Image
from rounds import DATA, cpu_rounds, finish, interleaved, parser

import fastfeed as ff
from fastfeed.backends.chain import look_up, run
from fastfeed.backends.kernels import KERNELS
from fastfeed.backends.mixing import mix
from fastfeed.ops import OPS
from fastfeed.ops.layers import layers, taken

IMAGES, SIDE, BATCH, CHUNK = 32, 224, 256, 16
COLOR = ("Brightness", "Contrast", "Saturation", "Hue", "ColorJitter", "Grayscale", "Equalize", "Invert", "LUT")
POLICIES = ("RandAugment", "TrivialAugmentWide", "AutoAugment", "AugMix")
Run = Callable[[], int]

CASES = {
    "Brightness": "Brightness(0.4)",
    "Contrast": "Contrast(0.4)",
    "Saturation": "Saturation(0.4)",
    "Hue": "Hue(0.1)",
    "ColorJitter": "ColorJitter(0.4, 0.4, 0.4, 0.1)",
    "Grayscale": "Grayscale()",
    "Solarize": "Solarize((0, 256))",
    "Posterize": "Posterize((2, 7))",
    "Equalize": "Equalize()",
    "AutoContrast": "AutoContrast()",
    "Invert": "Invert()",
    "Gamma": "Gamma((0.7, 1.5))",
    "LUT": "LUT([*range(255, -1, -1)])",
    "Sharpness": "Sharpness(0.9)",
    "GaussianBlur": "GaussianBlur(23, (0.1, 2.0))",
    "GaussianNoise": "GaussianNoise((1, 25))",
    "JPEGCompression": "JPEGCompression((30, 95))",
    "RandomErasing": "RandomErasing(1.0)",
    "RandomErasing, noise": "RandomErasing(1.0, fill='noise')",
    "CutOut": "CutOut(112)",
    "GridMask": "GridMask()",
    "Rotate": "Rotate(30)",
    "Affine": "Affine(15, (0.1, 0.1), (0.9, 1.1), 10)",
    "Perspective": "Perspective(0.5, 1.0)",
    "RandomFlip": "RandomFlip(1.0)",
    "RandAugment": "RandAugment()",
    "TrivialAugmentWide": "TrivialAugmentWide()",
    "AutoAugment": "AutoAugment('imagenet')",
    "AugMix": "AugMix()",
}


def main() -> None:
    made = parser(__doc__, rounds=9)
    made.add_argument("--with", dest="first", metavar="MODULE", help="import this before torchvision")
    made.add_argument("--only", nargs="+", default=[], help="these ops alone")
    options = made.parse_args()
    cv2.setNumThreads(1)
    missing: dict[str, str] = {}
    if options.first:
        importlib.import_module(options.first)
    tables = {name: table(name, missing) for name in ("opencv", "pillow", "vision", "dali")}
    images = photographs()
    ops = {name: one(images, tables, options.rounds, name, missing) for name in options.only or CASES}
    result: dict[str, Any] = {"images": IMAGES, "unit": "microseconds of processor time per image", "ops": ops}
    if not options.only:
        result |= {"feed": recipe(options.rounds, options.threads), "mix": batches(options.rounds)}
    finish("What does each op cost on one core?", result | {"missing": missing}, options.out)


def table(name: str, missing: dict[str, str]) -> Any:
    try:
        return importlib.import_module(f"rival_ops.{name}")
    except ImportError as error:
        missing[name] = str(error)
        return None


def photographs() -> list[np.ndarray]:
    """Parts of real ones, as a feed cuts them."""
    source = ff.ImageFolder(DATA / "imagenet-sample", labeled=False)
    with ff.Feed(source, [ff.RandomResizedCrop(SIDE)], batch=IMAGES) as feed:
        return list(next(feed.batches(0)).images)


def one(images: list[np.ndarray], tables: dict[str, Any], rounds: int, name: str, missing: dict[str, str]) -> dict:
    """Medians of all who have the op, how far their pixels are from ours, and ours against the best."""
    op, kind = eval(CASES[name], {one.__name__: one for one in OPS}), name.split(",")[0]
    u, sizes = np.random.default_rng(1).random((IMAGES, op.draws)), np.full((IMAGES, 2), SIDE)
    values = taken(op, u, sizes)[0].values[0] if kind not in (*POLICIES, "ColorJitter") else {}
    rows = [
        {key: found[i].item() if found.ndim == 1 else found[i] for key, found in values.items()} for i in range(IMAGES)
    ]
    mine, picture = ours(op, u, sizes, images)
    runs: dict[str, Run] = {"ours": mine}
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
        if (values or not op.draws) and "noise" not in name.lower() and (label[0] != "t" or kind != "Affine"):
            differs[label] = round(float(np.abs(plain(got).astype(int) - picture).mean()), 2)
    for graph, label in ((kind, "DALI"), ("nothing", "DALI, nothing")):
        if tables["dali"] and kind in tables["dali"].OPS and (found := tables["dali"].runner(graph, op, images)):
            runs[label] = found
    times = cpu_rounds(rounds, runs)
    if "DALI" in times:
        times["DALI"] = [a - b for a, b in zip(times["DALI"], times.pop("DALI, nothing"), strict=True)]
    else:
        times.pop("DALI, nothing", None)
    faster = {label: against(times, [label]) for label in times if label != "ours"}
    best = [label for label in times if label not in ("ours", "DALI")]
    return {
        "op": repr(op),
        "us": {label: round(statistics.median(took), 1) for label, took in times.items()},
        "spread": {label: [round(min(took), 1), round(max(took), 1)] for label, took in times.items()},
        "faster than": faster,
        "faster than the best of them": against(times, best),
        "mean difference of pixels, levels": differs,
    }


def tensor(image: np.ndarray) -> Any:
    import torch

    return torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))


FORMS: list[tuple[str, str, Callable[[np.ndarray], Any]]] = [
    ("OpenCV by hand", "opencv", lambda image: image),
    ("Pillow", "pillow", Image.fromarray),
    ("torchvision, PIL", "vision", Image.fromarray),
    ("torchvision, tensors", "vision", tensor),
]


def plain(image: Any) -> np.ndarray:
    if hasattr(image, "numpy"):
        return image.numpy().transpose(1, 2, 0)
    return np.asarray(image)


def each(function: Any, images: list[Any], op: Any, rows: list[dict[str, Any]]) -> int:
    for image, row in zip(images, rows, strict=True):
        function(image, op, row)
    return len(images)


def ours(op: Any, u: np.ndarray, sizes: np.ndarray, images: list[np.ndarray]) -> tuple[Run, np.ndarray]:
    """As a feed does it, and the first image that comes out. Images are copied where a kernel may overwrite them."""
    chain = layers(op)
    copied = any(type(one) in KERNELS for layer in chain for one in layer.ops)
    scratch, out = np.empty_like(images[0]), np.empty_like(images[0])

    def image(row: int, all_taken: Any) -> np.ndarray:
        given = images[row]
        if copied:
            np.copyto(scratch, given)
            given = scratch
        got, left = run(chain, all_taken, row, given)
        return got if left is None else look_up(got, left, out)

    def go() -> int:
        all_taken = taken(op, u, sizes)
        for row in range(len(images)):
            image(row, all_taken)
        return len(images)

    return go, image(0, taken(op, u, sizes)).copy().astype(int)


def against(times: dict[str, list[float]], rivals: list[str]) -> float | None:
    """How many times as long the fastest of them takes, median over rounds."""
    if not rivals:
        return None
    fastest = min(rivals, key=lambda label: statistics.median(times[label]))
    return round(statistics.median(b / a for a, b in zip(times["ours"], times[fastest], strict=True)), 2)


def recipe(rounds: int, threads: int) -> dict[str, Any]:
    """imagenet_train with ColorJitter and RandAugment in it, through a feed, against decoding the same crops alone."""
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
    """A batch of 256, two threads, in the chunks that a feed has: milliseconds."""
    rng = np.random.default_rng(0)
    made = rng.integers(0, 256, (BATCH + 1, SIDE, SIDE, 3), np.uint8)
    out, found = np.empty_like(made[:BATCH]), {}
    members = np.stack([np.arange(BATCH), np.arange(BATCH) + 1], axis=1)
    with ThreadPoolExecutor(2) as pool:
        for name, op in (("MixUp", ff.MixUp(0.8)), ("CutMix", ff.CutMix(1.0))):
            how = op.mixed(rng.random((BATCH, op.draws)), (SIDE, SIDE))

            def chunk(first: int, how: Any = how) -> None:
                rows = slice(first, first + CHUNK)
                mix(made, members[rows], how[rows], out[rows])

            def whole(chunk: Any = chunk) -> int:
                list(pool.map(chunk, range(0, BATCH, CHUNK)))
                return BATCH

            rates = interleaved(rounds, {name: whole})[name]
            found[name] = {
                "ms per batch": round(1e3 * BATCH / rates["images_per_second"], 2),
                "best": round(1e3 * BATCH / rates["spread"][1], 2),
                "cpu ms per batch": round(rates["cpu_ms_per_image"] * BATCH, 2),
            }
    return found


if __name__ == "__main__":
    main()
