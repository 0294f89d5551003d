"""What decoding and every op give on one machine, to be compared with another: `machine_pixels.py`.

    machine_pixels.py files FILES.npz               writes encoded files, once for both machines
    machine_pixels.py record FILES.npz PIXELS.npz   decodes them with this interpreter's fastfeed
    machine_pixels.py compare PIXELS.npz OTHER.npz  exits with the differences

Run from the root of the tree, whose `tests/helpers` has examples of every op. `record` also holds
every instruction set of its machine to the bytes of the fastest, for windows of JPEGs and ops on
pixels.
"""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path.cwd() / "tests"))

SHAPES = ((203, 157), (40, 33), (8, 16))  # height, width of JPEGs
# top, left, height, width as shares
WINDOWS = ((0, 0, 1, 1), (0.15, 0.11, 0.5, 0.4), (0.4, 0.3, 0.08, 0.1))
SEED = 11


def files() -> Iterator[tuple[str, bytes]]:
    """Every layout of JPEG, every format that Pillow reads, and what is not an image, by name."""
    from helpers.jpegs import LAYOUTS, encoded, four_by_two, textured, with_orientation
    from helpers.photos import BROKEN, broken
    from PIL import Image, features

    for name, make in LAYOUTS.items():
        for number, (height, width) in enumerate(SHAPES):
            yield f"jpeg {name} {height}x{width}", make(height, width, number)
    yield "jpeg 4x2", four_by_two(3)
    for orientation in range(1, 9):
        yield (
            f"jpeg orientation {orientation}",
            with_orientation(textured(41, 58), orientation, big=orientation > 4),
        )
    for quality in (5, 50, 100):
        yield (
            f"jpeg quality {quality}",
            encoded(textured(97, 130, quality), quality=quality, progressive=quality == 50),
        )
    for reason in BROKEN:
        yield f"bad {reason}", broken(reason)
    rgb = Image.fromarray(textured(61, 83, 5))
    rgba = rgb.copy()
    rgba.putalpha(rgb.convert("L"))
    deep = Image.fromarray(np.arange(61 * 83, dtype=np.uint16).reshape(61, 83) * 12)
    kinds: list[tuple[str, Image.Image, dict[str, Any]]] = [
        ("png", rgb, {}),
        ("png", rgba, {}),
        ("png", rgb.convert("L"), {}),
        ("png", rgb.quantize(16), {}),
        ("png", deep, {}),
        ("png", rgb.convert("1"), {}),
        ("gif", rgb.quantize(), {}),
        ("bmp", rgb, {}),
        ("tiff", rgb, {}),
        ("tiff", rgb, {"compression": "tiff_lzw"}),
        ("ppm", rgb, {}),
        ("jpeg", rgb.convert("CMYK"), {}),
        ("webp", rgb, {"quality": 80}),
        ("webp", rgba, {"lossless": True}),
    ]
    kinds += [("jpeg2000", rgb, {})] if features.check("jpg_2000") else []
    kinds += [("avif", rgb, {})] if features.check("avif") else []
    for kind, image, options in kinds:
        file = io.BytesIO()
        image.save(file, kind, **options)
        yield " ".join(("pillow", kind, image.mode, *map(str, options.values()))), file.getvalue()


def record(
    blobs: dict[str, bytes], pictures: np.ndarray
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Arrays by name; and where instruction sets of this machine differ."""
    from fastfeed import _native as native

    first, *others = native.instruction_sets()
    arrays, differ = dict[str, np.ndarray](), []
    for name in (first, *others):
        native.testing.use_instruction_set(name)
        rest = (
            (*recoded(blobs), *augmented(blobs, pictures))
            if name == first
            else augmented({}, pictures, ("pixels",))
        )
        for key, array in (*kernel(blobs), *rest):
            if name == first:
                assert key not in arrays, key
                arrays[key] = array
            elif arrays[key].tobytes() != array.tobytes():
                differ.append(f"{key}: {name} is not {first}")
    print(f"{len(arrays)} results, instruction sets {first} {' '.join(others)}", flush=True)
    return arrays, differ


def kernel(blobs: dict[str, bytes]) -> Iterator[tuple[str, np.ndarray]]:
    """Windows of JPEGs by the native extension, with every filter; and files written by it."""
    from helpers.jpegs import FILTERS, NEVER, decode

    from fastfeed import _native as native

    jpegs = {name: blob for name, blob in blobs.items() if name.startswith(("jpeg", "bad"))}
    info = np.zeros((len(jpegs), 9), np.int32)
    native.probe(list(jpegs.values()), info, 1 << 30)
    yield "headers", info
    pool = native.Pool(1)
    shares = np.array(WINDOWS)
    for (name, blob), (height, width) in zip(jpegs.items(), info[:, 1:3].tolist(), strict=True):
        boxes = shares * [height, width, height, width]
        for number, box in enumerate(boxes):
            filter = FILTERS[(number + len(name)) % len(FILTERS)]
            for size, enlarge in (((24, 20), 1.5), ((64, 40), NEVER)):
                out, why = decode(
                    [blob],
                    [box],
                    size,
                    filter,
                    flips=[[number == 1, number == 2]],
                    pool=pool,
                    enlarge=enlarge,
                )
                yield (
                    f"{name}, window {number} to {size} by {filter}",
                    out if why == [None] else np.array(str(why)),
                )


def recoded(blobs: dict[str, bytes]) -> Iterator[tuple[str, np.ndarray]]:
    """Smaller JPEGs of all files, as preprocessing writes them, by the native extension and, where
    it declines, by Pillow.
    """
    from fastfeed.decode.recode import Recoder
    from fastfeed.ops import Resize

    for subsampling in ("4:2:0", "4:4:4"):
        recoded_files = Recoder([Resize(32)], quality=88, subsampling=subsampling, threads=1)(
            list(blobs.values())
        )
        for name, file in zip(blobs, recoded_files, strict=True):
            array = (
                np.frombuffer(file, np.uint8) if isinstance(file, bytes) else np.array(str(file))
            )
            yield f"{name}, recoded {subsampling}", array


def augmented(
    blobs: dict[str, bytes],
    pictures: np.ndarray,
    kinds: Sequence[str] = ("files", "pixels", "gray"),
) -> Iterator[tuple[str, np.ndarray]]:
    """Batches of feeds, one for every example of every op: of files, pixels, gray pixels."""
    from helpers.op_examples import ALL, listed

    from fastfeed.errors import ConfigError
    from fastfeed.feed.feed import Feed
    from fastfeed.ops import Resize
    from fastfeed.sources import Arrays, ImageFolder

    labels, classes = np.arange(len(pictures)) % 3, ["a", "b", "c"]
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, blob) in enumerate(blobs.items()):
            if not name.startswith("bad"):
                (Path(folder) / f"class{number % 3}").mkdir(exist_ok=True)
                (Path(folder) / f"class{number % 3}" / f"{number:03}.jpg").write_bytes(blob)
        gray = np.ascontiguousarray(pictures[..., :1])
        sources = {
            "files": lambda: ImageFolder(folder),
            "pixels": lambda: Arrays(pictures, labels, classes=classes),
            "gray": lambda: Arrays(gray, labels, classes=classes),
        }
        for kind in kinds:
            source = sources[kind]()
            for op in {repr(op): op for op in (Resize((36, 28)), *ALL)}.values():
                for ops in ([op], listed(op, (36, 28))):
                    try:
                        feed = Feed(
                            source, ops, batch=len(source), seed=SEED, threads=1, prefetch=0
                        )
                    except (
                        ConfigError
                    ):  # it needs images of one size, three channels, or another op before it
                        continue
                    break
                else:
                    continue
                with feed:
                    batch = next(iter(feed))
                    for number, images in enumerate(batch.views or (batch.images,)):
                        yield f"{op!r} of {kind}, view {number}", images
                    yield f"{op!r} of {kind}, labels", batch.labels


def load(path: str) -> dict[str, np.ndarray]:
    with np.load(path) as file:
        return {name: file[f"result{number}"] for number, name in enumerate(file["names"].tolist())}


def compare(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> list[str]:
    """What is not the same to the byte, and what only one of them has."""
    faults = [f"{key}: only on one machine" for key in ours.keys() ^ theirs.keys()]
    for key in ours.keys() & theirs.keys():
        a, b = ours[key], theirs[key]
        if a.shape != b.shape or a.dtype != b.dtype:
            faults.append(f"{key}: {a.dtype}{a.shape} and {b.dtype}{b.shape}")
        elif a.dtype.kind == "U":
            faults += [f"{key}: {a} and {b}"] if a != b else []
        elif a.tobytes() != b.tobytes():
            apart = np.abs(a.astype(float) - b.astype(float))
            faults.append(
                f"{key}: {np.count_nonzero(apart)} of {apart.size} differ, by up to {apart.max():g}"
            )
    return sorted(faults)


def main() -> None:
    match sys.argv[1:]:
        case ["files", path]:
            from helpers.photos import picture

            pictures = np.stack([picture(seed, (40, 56), detail=3) for seed in range(6)])
            pictures[0] = np.random.default_rng(SEED).integers(0, 256, pictures[0].shape)
            blobs = dict(files())
            arrays = {
                f"file{number}": np.frombuffer(blob, np.uint8)
                for number, blob in enumerate(blobs.values())
            }
            np.savez(path, pictures=pictures, names=np.array(list(blobs)), **arrays)
        case ["record", inputs, path]:
            with np.load(inputs) as file:
                blobs = {
                    name: file[f"file{number}"].tobytes()
                    for number, name in enumerate(file["names"].tolist())
                }
                results, differ = record(blobs, file["pictures"])
            names = np.array(list(results))
            np.savez(
                path,
                names=names,
                **{f"result{number}": array for number, array in enumerate(results.values())},
            )
            if differ:
                sys.exit("\n".join(differ))
        case ["compare", ours, theirs]:
            faults = compare(load(ours), load(theirs))
            print(*faults, sep="\n")
            if faults:
                sys.exit(f"{len(faults)} results differ.")
            print("They are the same to the byte.")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
