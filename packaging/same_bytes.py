"""Compares what two installations decode: the same bytes of pixels, of every kind of file and of
your own folders.

`make same-bytes PHOTOS="folder ..."` compares the source build in .venv with a wheel that is
installed in a clean room. Each image is decoded whole, scaled, in windows, and recoded, and lists
of ops run over some; an image that cannot be decoded must have the same reason. Exits with the
names of images that differ.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import logging
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

EXTENSIONS = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".tif", ".tiff")
LARGEST = 40_000_000  # bytes of a file
MADE = "made"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "other",
        nargs="?",
        type=Path,
        help="a wheel, or the Python of an installation; default: dist/",
    )
    parser.add_argument(
        "--python", default=sys.executable, help="the Python of the first installation"
    )
    parser.add_argument("--photos", nargs="*", default=[], type=Path, metavar="FOLDER")
    parser.add_argument("--child", nargs="+", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        warnings.simplefilter("ignore")  # of Pillow, about damaged files
        logging.getLogger("fastfeed").setLevel(logging.ERROR)
        json.dump(decoded(arguments.child), sys.stdout)
        return
    with tempfile.TemporaryDirectory(prefix="fastfeed-same-") as name:
        room = Path(name)
        make_images(room / MADE)
        other = arguments.other
        if other is None or other.suffix == ".whl":
            from clean_room import installation

            (room / "clean").mkdir()
            installation(room / "clean", arguments.python, other, [])
            other = (
                room
                / "clean"
                / "venv"
                / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
            )
        folders = [room / MADE, *(folder.resolve() for folder in arguments.photos)]
        first, second = (
            results(os.path.abspath(python), folders, room) for python in (arguments.python, other)
        )
    for kernel in (first.pop("kernel"), second.pop("kernel")):
        print("kernel:", kernel)
    faults = differences(first, second)
    if faults:
        sys.exit(f"{len(faults)} of {len(first)} images differ:\n" + "\n".join(faults))
    by = [about["by"].partition(":")[0] for about in first.values()]
    counts = ", ".join(f"{by.count(kind)} {kind}" for kind in sorted(set(by)))
    print(f"The same bytes from both: {len(first)} images ({counts}).")


def differences(first: dict[str, dict[str, str]], second: dict[str, dict[str, str]]) -> list[str]:
    """One line per image that is not the same in both, with what differs."""
    lines = []
    for name in sorted(first.keys() | second.keys()):
        ours, theirs = first.get(name, {}), second.get(name, {})
        kinds = [
            kind
            for kind in sorted(ours.keys() | theirs.keys())
            if ours.get(kind) != theirs.get(kind)
        ]
        if kinds:
            lines.append(
                f"{name}: "
                + ", ".join(f"{kind} {ours.get(kind)} and {theirs.get(kind)}" for kind in kinds)
            )
    return lines


def results(python: str, folders: list[Path], room: Path) -> dict[str, Any]:
    """By image, hashes of what one installation makes of it; `kernel` says what that is."""
    command = [python, str(Path(__file__).resolve()), "--child", *map(str, folders)]
    # not in a tree, which Python would import
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=room)
    return json.loads(done.stdout)


def make_images(folder: Path) -> None:
    """JPEGs, PNGs, WebPs and TIFFs of every layout that Pillow writes, with odd sizes, damaged ones
    among them.
    """
    import numpy as np
    from PIL import Image, ImageFile

    ImageFile.MAXBLOCK = 1 << 22  # else it cannot write progressive files of quality 100
    folder.mkdir()
    for number, (height, width) in enumerate(((203, 157), (64, 64), (9, 17), (480, 641))):
        y, x = np.mgrid[:height, :width]
        noise = np.random.default_rng(number).integers(0, 60, (height, width, 4))
        waves = [100 + 90 * np.sin(x / (5 + 2 * i) + i) * np.cos(y / (7 - i)) for i in range(4)]
        pixels = (np.stack(waves, -1) + noise).clip(0, 255).astype(np.uint8)
        for progressive, quality, rows in itertools.product((False, True), (30, 90, 100), (0, 1)):
            options: dict[str, Any] = {"quality": quality, "progressive": progressive}
            options |= {"restart_marker_rows": rows} if rows else {}
            end = f"{height}x{width}-q{quality}{'-progressive' if progressive else ''}{'-restarts' if rows else ''}.jpg"
            for subsampling, name in enumerate(("444", "422", "420")):
                Image.fromarray(pixels[..., :3]).save(
                    folder / f"{name}-{end}", subsampling=subsampling, **options
                )
            Image.fromarray(pixels[..., 0]).save(folder / f"gray-{end}", **options)
            Image.fromarray(pixels, "CMYK").save(folder / f"cmyk-{end}", **options)
        for orientation in range(2, 9):
            exif = Image.Exif()
            exif[0x0112] = orientation
            Image.fromarray(pixels[..., :3]).save(
                folder / f"exif{orientation}-{height}x{width}.jpg", exif=exif
            )
        file = io.BytesIO()
        Image.fromarray(pixels[..., :3]).save(file, "jpeg", quality=90)
        blob = bytearray(file.getvalue())
        (folder / f"truncated-{height}x{width}.jpg").write_bytes(blob[: len(blob) * 2 // 3])
        blob[len(blob) * 3 // 4 : len(blob) * 3 // 4 + 8] = b"\xff\xff\x00\x12\xff\xd9\x55\xaa"
        (folder / f"damaged-{height}x{width}.jpg").write_bytes(blob)
        _other_formats(folder, pixels)
    large = np.tile(pixels, (4, 3, 1))  # so large that libwebp is asked to shrink it
    _webps(
        folder,
        {"rgb": Image.fromarray(large[..., :3]), "rgba": Image.fromarray(large)},
        "x".join(map(str, large.shape[:2])),
    )


def _other_formats(folder: Path, pixels: Any) -> None:
    import numpy as np
    from PIL import Image

    size = "x".join(map(str, pixels.shape[:2]))
    color, alpha, gray = (
        Image.fromarray(some) for some in (pixels[..., :3], pixels, pixels[..., 0])
    )
    modes = {
        "rgb": color,
        "rgba": alpha,
        "gray": gray,
        "palette": color.quantize(64),
        "1bit": gray.convert("1"),
    }
    modes["16bit"] = Image.fromarray(pixels[..., 0].astype(np.uint16) * 257)
    for mode, image in modes.items():
        image.save(folder / f"{mode}-{size}.png")
    _webps(folder, modes, size)
    for mode, compression in itertools.product(
        ("rgb", "gray", "16bit"), (None, "tiff_lzw", "tiff_adobe_deflate")
    ):
        modes[mode].save(folder / f"{mode}-{size}-{compression}.tif", compression=compression)
    for name in (f"rgb-{size}.png", f"rgb-{size}-q80.webp", f"rgb-{size}-tiff_lzw.tif"):
        blob = (folder / name).read_bytes()
        (folder / f"truncated-{name}").write_bytes(blob[: len(blob) * 2 // 3])


def _webps(folder: Path, modes: dict[str, Any], size: str) -> None:
    for mode in ("rgb", "rgba"):
        for quality in (30, 80, 100):
            modes[mode].save(folder / f"{mode}-{size}-q{quality}.webp", quality=quality)
        modes[mode].save(folder / f"{mode}-{size}-lossless.webp", lossless=True, method=0)


# -- what runs in each installation


def decoded(folders: list[Path]) -> dict[str, Any]:
    """Hashes of everything that is made of the images below the folders."""
    import fastfeed
    from fastfeed.cli.doctor.machine import find_extension
    from fastfeed.decode import NativeEngine

    kernel = find_extension()
    if kernel is None:
        sys.exit(f"fastfeed in {Path(fastfeed.__file__).parent} has no kernel; nothing to compare.")
    result: dict[str, Any] = {
        "kernel": f"libjpeg-turbo {kernel.libjpeg}, {kernel.instruction_set} {kernel.huffman}"
    }
    engine = NativeEngine(fastfeed.Decode())
    for folder in folders:
        files = sorted(
            path
            for path in folder.rglob("*")
            if path.suffix.lower() in EXTENSIONS and path.is_file()
        )
        for path in files:
            if path.stat().st_size <= LARGEST:
                result[str(path)] = hashes(path.read_bytes(), engine)
        if folder.name == MADE:
            result["made, through ops"] = augmented(folder)
    return result


def augmented(folder: Path) -> dict[str, str]:
    """Hashes of batches that a feed makes of a folder, by list of ops."""
    import hashlib

    import fastfeed as ff

    crop = [ff.RandomResizedCrop(96), ff.RandomFlip()]
    lists: dict[str, list[Any]] = {
        "policies": [
            *crop,
            ff.ColorJitter(0.4, 0.4, 0.4, 0.1),
            ff.RandAugment(),
            ff.RandomErasing(0.5),
        ],
        "augmix": [*crop, ff.AugMix(), ff.Normalize.imagenet()],
    }
    digests = {"by": "kernel"}
    for name, ops in lists.items():
        digest = hashlib.sha256()
        with ff.Feed(
            ff.ImageFolder(folder, labeled=False), ops, batch=16, seed=3, on_bad="mask"
        ) as feed:
            for batch in feed.batches(0, epochs=1):
                digest.update(batch.images.tobytes())
        digests[name] = digest.hexdigest()[:16]
    return digests


def hashes(blob: bytes, kernel: Any) -> dict[str, str]:
    """`by`: who decodes it, or why it cannot be; then a hash per way to decode it."""
    import hashlib
    from threading import Event

    import numpy as np

    import fastfeed as ff
    from fastfeed.decode import DecodeFailure, PillowEngine, Recoder, Request
    from fastfeed.ops.program.compile import fuse
    from fastfeed.sampling.rng import uniform
    from fastfeed.spec import ENCODED

    def pixels(
        op: Any, filter: str, shape: tuple[int, int], engine: Any
    ) -> np.ndarray | DecodeFailure:
        program, ids = fuse([op], ENCODED), np.arange(1)
        (header,) = engine.probe([blob])
        if isinstance(header, DecodeFailure):
            return header
        sizes = np.array([(header.height, header.width)])
        windows = program.windows(program.draw(lambda slot, n: uniform(7, 0, ids, slot, n)), sizes)
        out = np.zeros((1, *shape, 3), np.uint8)
        (bad,) = engine.decode(Request([blob], [header], windows, filter), out, Event())
        return bad or out

    whole = ff.Resize((64, 48))
    alone = pixels(whole, "bilinear", (64, 48), kernel)
    by_kernel = not isinstance(alone, DecodeFailure)
    engine = kernel if by_kernel else PillowEngine(ff.Decode())
    scaled = pixels(whole, "bilinear", (64, 48), engine)
    if isinstance(scaled, DecodeFailure):
        return {"by": f"bad: {scaled.reason}"}
    digests = {"by": "kernel" if by_kernel else "Pillow"}
    (header,) = engine.probe([blob])
    size = (header.height, header.width)  # type: ignore[union-attr]
    ways: dict[str, Any] = {
        "unscaled": (ff.Resize(size), "bilinear", size),
        "scaled": (whole, "bilinear", (64, 48)),
        "lanczos": (ff.Resize((100, 60), filter="lanczos"), "lanczos", (100, 60)),
        "box": (ff.Resize((31, 33), filter="box"), "box", (31, 33)),
        "window": (ff.RandomResizedCrop(96), "bilinear", (96, 96)),
    }
    if max(size) * min(size) > 60_000_000:
        ways.pop("unscaled")
    for way, arguments in ways.items():
        out = pixels(*arguments, engine)
        digests[way] = (
            f"bad: {out.reason}"
            if isinstance(out, DecodeFailure)
            else hashlib.sha256(out.tobytes()).hexdigest()[:16]
        )
    (file,) = Recoder([ff.Resize(128)], quality=85)([blob])
    digests["recoded"] = (
        f"bad: {file.reason}"
        if isinstance(file, DecodeFailure)
        else hashlib.sha256(file).hexdigest()[:16]
    )
    return digests


if __name__ == "__main__":
    main()
