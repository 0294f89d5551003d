"""How fast do photographs become JPEGs of 512 pixels on the short side, quality 90, 4:2:0, scaled
with Lanczos3?

Contestants get the same files in memory and two threads, and return the new files' bytes. Besides
the rates: SSIM on luma, against full decoding and Pillow's Lanczos, of what each scales to, encoded
at quality 100 and 4:4:4. The native extension scales planes and has no pixels in between; what is
said of RGB pixels is the same kernel as feeds call it.
"""

from __future__ import annotations

import io
import os
import statistics
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cv2
import numpy as np
from PIL import Image, ImageOps
from rounds import DATA, arguments, finish, interleaved, ratio

from fastfeed.decode import DecodeEngine, Header, NativeEngine, PillowEngine, Recoder, Request
from fastfeed.ops import Decode, Resize
from fastfeed.ops.program.compile import fuse
from fastfeed.spec import ENCODED

SIDE, QUALITY, REPEAT = 512, 90, 4
One = Callable[[bytes], Any]


def main() -> None:
    options = arguments(__doc__, rounds=7)
    blobs = [path.read_bytes() for path in sorted((DATA / "photos-large").iterdir())]
    resize, threads = Resize(SIDE, filter="lanczos"), options.threads
    kernel, pillow = (
        Recoder([resize], quality=QUALITY, threads=threads, decode=d) for d in ("native", "pillow")
    )
    vips_file, vips_pixels = vips()
    runs = {
        "fastfeed kernel": lambda: len(kernel(blobs * REPEAT)),
        "fastfeed pillow (draft, same rule)": lambda: len(pillow(blobs * REPEAT)),
        "pyvips thumbnail_buffer + jpegsave": in_threads(vips_file, blobs, threads),
        "Pillow full decode": in_threads(pillow_file, blobs, threads),
    }
    result = interleaved(options.rounds, runs)
    looks: dict[str, One] = {
        "fastfeed kernel, RGB pixels": scaled(NativeEngine(Decode())),
        "fastfeed pillow (draft, same rule)": scaled(PillowEngine(Decode())),
        "pyvips thumbnail_buffer + jpegsave": vips_pixels,
        "Pillow full decode": reference,
    }
    best = Recoder([resize], quality=100, subsampling="4:4:4", decode="native")
    wanted = [reference(blob) for blob in blobs]
    closeness = {}
    for name, look in looks.items():
        pixels = [look(blob) for blob in blobs]
        closeness[name] = similarity(pixels, wanted)
        closeness[f"{name}, at quality 100"] = similarity(
            [shown(saved(one, 100, "4:4:4")) for one in pixels], wanted
        )
    closeness["fastfeed kernel, at quality 100"] = similarity(
        [shown(file) for file in best(blobs)], wanted
    )
    same = kernel(blobs) == Recoder([resize], quality=QUALITY, threads=1, decode="native")(blobs)
    ratios = {f"kernel / {other}": ratio(result, "fastfeed kernel", other) for other in runs}
    report = {
        "result": result,
        "ratios": ratios,
        "closeness": closeness,
        "same_bytes_for_1_and_2_threads": same,
    }
    finish("How fast do photographs become small JPEGs?", report, options.out)


def in_threads(one: One, blobs: list[bytes], threads: int) -> Callable[[], int]:
    def run() -> int:
        with ThreadPoolExecutor(threads) as pool:
            return sum(1 for _ in pool.map(one, blobs * REPEAT))

    return run


def scaled(engine: DecodeEngine, side: int = SIDE) -> One:
    """The pixels that the recoder encodes."""
    program = fuse([Resize(side, filter="lanczos")], ENCODED, fixed=False)

    def one(blob: bytes) -> np.ndarray:
        (header,) = engine.probe([blob])
        assert isinstance(header, Header)
        windows = program.windows([np.empty((0, 0))], np.array([(header.height, header.width)]))
        out = np.empty((1, *windows.sizes[0], 3), np.uint8)
        assert engine.decode(
            Request([blob], [header], windows, program.filter), out, threading.Event()
        ) == [None]
        return out[0]

    return one


def vips(side: int = SIDE) -> tuple[One, One]:
    """Shrink on load to the size that ours has; one libvips thread per image, no cache of
    operations. File, pixels.
    """
    os.environ["VIPS_CONCURRENCY"] = "1"
    import pyvips

    pyvips.cache_set_max(0)

    def thumbnail(blob: bytes) -> Any:
        header = pyvips.Image.new_from_buffer(blob, "")
        turned = "orientation" in header.get_fields() and header.get("orientation") >= 5
        height, width = (header.width, header.height) if turned else (header.height, header.width)
        short = min(height, width)
        return pyvips.Image.thumbnail_buffer(
            blob, side * width // short, height=side * height // short, size="force"
        )

    def file(blob: bytes) -> bytes:
        return thumbnail(blob).jpegsave_buffer(Q=QUALITY, subsample_mode="on", keep="none")

    return file, lambda blob: thumbnail(blob).numpy()


def reference(blob: bytes, side: int = SIDE) -> np.ndarray:
    """Full decoding, upright, Lanczos3 in one step: uint8 (height, width, 3)."""
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(blob))).convert("RGB")
    short = min(image.size)
    size = (side * image.width // short, side * image.height // short)
    return np.asarray(image.resize(size, Image.Resampling.LANCZOS))


def pillow_file(blob: bytes) -> bytes:
    return saved(reference(blob), QUALITY, "4:2:0")


def saved(pixels: np.ndarray, quality: int, subsampling: str) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality, subsampling=subsampling)
    return file.getvalue()


def shown(file: Any) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(file)))


def similarity(pixels: list[np.ndarray], wanted: list[np.ndarray]) -> dict[str, float]:
    values = [ssim(one, other) for one, other in zip(pixels, wanted, strict=True)]
    return {"ssim_mean": round(statistics.mean(values), 4), "ssim_least": round(min(values), 4)}


def ssim(one: np.ndarray, other: np.ndarray) -> float:
    """Wang et al. 2004 on luma: Gaussian window of 11, sigma 1.5, K = 0.01, 0.03."""
    assert one.shape == other.shape
    a, b = (pixels.astype(np.float64) @ (0.299, 0.587, 0.114) for pixels in (one, other))

    def local(x: np.ndarray) -> np.ndarray:
        return cv2.GaussianBlur(x, (11, 11), 1.5)[5:-5, 5:-5]

    ma, mb, c1, c2 = local(a), local(b), 2.55**2, 7.65**2
    va, vb, cov = local(a * a) - ma**2, local(b * b) - mb**2, local(a * b) - ma * mb
    return float(
        ((2 * ma * mb + c1) * (2 * cov + c2) / ((ma**2 + mb**2 + c1) * (va + vb + c2))).mean()
    )


if __name__ == "__main__":
    main()
