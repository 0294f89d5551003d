"""How fast are JPEGs decoded, cut, scaled and antialiased to 224 x 224, next to the tools people
use for it?

Contestants get the same files in memory, two threads, an antialiased triangle filter, and write
uint8 RGB. Random crops are drawn from the same distribution (area 8-100 %, aspect 3/4-4/3); DALI
and tf.data draw their own. jpeg_limit is libjpeg-turbo asked only for the window, then a plain C
resize: a measuring stick, compiled here if it is found.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from rounds import DATA, arguments, finish, interleaved, ratio

import fastfeed as ff
from fastfeed.decode import NativeEngine, PillowEngine, Request
from fastfeed.ops.program.compile import fuse
from fastfeed.sampling.rng import uniform
from fastfeed.spec import ENCODED

SIZE, MODES = 224, {"random crop": 0, "whole image": 1}
Run = Callable[[], int]


def main() -> None:
    options = arguments(__doc__, rounds=7)
    threads, result, ratios = options.threads, {}, {}
    for folder, mode, repeat in (
        ("imagenet-sample", "random crop", 6),
        ("photos-large", "random crop", 4),
        ("photos-large", "whole image", 4),
    ):
        files = sorted(str(p) for p in (DATA / folder).iterdir())
        blobs = [Path(f).read_bytes() for f in files]
        small = folder == "imagenet-sample"
        runs: dict[str, Run] = {
            "fastfeed kernel": engine_run(
                NativeEngine, blobs, mode, threads, repeat, 16 if small else 1
            ),
            "fastfeed pillow": engine_run(
                PillowEngine, blobs, mode, threads, repeat, 16 if small else 1
            ),
        }
        if small:
            runs["fastfeed Feed"] = feed_run(DATA / folder, threads, repeat)
        if limit := limit_run(files, mode, threads, repeat):
            runs["jpeg_limit"] = limit
        runs |= rivals(blobs, mode, threads, repeat)
        name = f"{folder}, {mode}"
        result[name] = interleaved(options.rounds, runs)
        ratios[name] = {
            f"kernel / {other}": ratio(result[name], "fastfeed kernel", other) for other in runs
        }
    finish(
        "How fast are JPEGs decoded to 224 x 224?",
        {"result": result, "ratios": ratios},
        options.out,
    )


def windows_of(blobs: list[bytes], mode: str):
    ops = (
        [ff.RandomResizedCrop(SIZE), ff.RandomFlip()]
        if mode == "random crop"
        else [ff.Resize((SIZE, SIZE))]
    )
    program, ids = fuse(ops, ENCODED), np.arange(len(blobs))
    headers = PillowEngine(program.decode).probe(blobs)  # type: ignore[arg-type]
    sizes = np.array([(h.height, h.width) for h in headers])
    return program, program.windows(
        program.draw(lambda slot, n: uniform(0, 0, ids, slot, n)), sizes
    )


def engine_run(kind, blobs: list[bytes], mode: str, threads: int, repeat: int, chunk: int) -> Run:
    program, windows = windows_of(blobs, mode)
    engine, go = kind(program.decode), threading.Event()
    out = np.empty((len(blobs), SIZE, SIZE, 3), np.uint8)
    chunks = [slice(i, i + chunk) for i in range(0, len(blobs), chunk)] * repeat

    def one(rows: slice) -> int:
        some = blobs[rows]
        bad = engine.decode(
            Request(some, engine.probe(some), windows[rows], "bilinear"), out[rows], go
        )
        assert not any(bad)
        return len(some)

    def run() -> int:
        with ThreadPoolExecutor(threads) as pool:
            return sum(pool.map(one, chunks))

    return run


def feed_run(folder: Path, threads: int, repeat: int) -> Run:
    source = ff.ImageFolder(folder, labeled=False)
    feed = ff.Feed(source, [ff.RandomResizedCrop(SIZE), ff.RandomFlip()], batch=50, threads=threads)
    return lambda: sum(len(batch) for batch in feed.batches(0, epochs=repeat))


def limit_run(files: list[str], mode: str, threads: int, repeat: int) -> Run | None:
    source = DATA.parent / "tools" / "jpeg_limit.c"
    if not source.exists():
        return None
    program = Path(tempfile.gettempdir()) / "fastfeed-jpeg-limit"
    build = [
        "cc",
        "-O3",
        "-march=native",
        "-ffast-math",
        "-o",
        program,
        source,
        "-ljpeg",
        "-lpthread",
        "-lm",
    ]
    if (
        not program.exists()
        and subprocess.run(build, stderr=subprocess.DEVNULL, check=False).returncode
    ):
        return None

    def run() -> int:
        command = [program, str(threads), "0", "3", "1", str(MODES[mode]), str(repeat), *files]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        return repeat * len(files)

    return run


def rivals(blobs: list[bytes], mode: str, threads: int, repeat: int) -> dict[str, Run]:
    """The others that are installed."""
    found: dict[str, Run] = {}
    for name, make in (
        ("DALI fused", dali_run),
        ("tf.data", tfdata_run),
        ("pyvips thumbnail", pyvips_run),
    ):
        try:
            run = make(blobs, mode, threads, repeat)
        except ImportError as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
        else:
            if run:
                found[name] = run
    return found


def dali_run(blobs: list[bytes], mode: str, threads: int, repeat: int) -> Run:
    """Decoder with a fused random crop, then resize; two batches ahead, as the documentation's
    ImageNet example.
    """
    from nvidia.dali import fn, pipeline_def, types

    batch = min(50, len(blobs))
    raw = [np.frombuffer(b, np.uint8) for b in blobs]

    def batches():
        for _ in range(repeat):
            for i in range(0, len(raw) - batch + 1, batch):
                yield raw[i : i + batch]

    @pipeline_def(
        batch_size=batch, num_threads=threads, device_id=None, prefetch_queue_depth=2, seed=1
    )
    def graph(state):
        jpegs = fn.external_source(source=lambda: next(state["it"]), batch=True)
        if mode == "random crop":
            image = fn.decoders.image_random_crop(
                jpegs,
                device="cpu",
                output_type=types.RGB,
                random_area=[0.08, 1.0],
                random_aspect_ratio=[0.75, 4 / 3],
            )
        else:
            image = fn.decoders.image(jpegs, device="cpu", output_type=types.RGB)
        return fn.resize(image, size=[SIZE, SIZE], interp_type=types.INTERP_LINEAR, antialias=True)

    state: dict = {}
    pipe = graph(state)

    def run() -> int:
        state["it"] = batches()
        if not state.get("built"):
            pipe.build()
            state["built"] = True
        else:
            pipe.reset()
        images = 0
        while True:
            try:
                (out,) = pipe.run()
            except StopIteration:
                return images
            images += len(out)

    return run


def tfdata_run(blobs: list[bytes], mode: str, threads: int, repeat: int) -> Run:
    """decode_and_crop_jpeg on a sampled box, resize with antialiasing; a private pool of as many
    threads.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    def sample(blob):
        shape = tf.io.extract_jpeg_shape(blob)
        if mode == "random crop":
            begin, size, _ = tf.image.sample_distorted_bounding_box(
                shape,
                tf.constant([0.0, 0.0, 1.0, 1.0], shape=[1, 1, 4]),
                aspect_ratio_range=[0.75, 4 / 3],
                area_range=[0.08, 1.0],
                max_attempts=10,
                use_image_if_no_bounding_boxes=True,
            )
            window = tf.stack([begin[0], begin[1], size[0], size[1]])
        else:
            window = tf.stack([0, 0, shape[0], shape[1]])
        image = tf.io.decode_and_crop_jpeg(blob, window, channels=3)
        return tf.cast(tf.image.resize(image, [SIZE, SIZE], antialias=True), tf.uint8)

    data = tf.data.Dataset.from_tensor_slices(blobs).repeat(repeat)
    data = (
        data.map(sample, num_parallel_calls=threads, deterministic=False)
        .batch(min(50, len(blobs)))
        .prefetch(2)
    )
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    data = data.with_options(options)
    return lambda: sum(int(batch.shape[0]) for batch in data)


def pyvips_run(blobs: list[bytes], mode: str, threads: int, repeat: int) -> Run | None:
    """thumbnail_buffer, which shrinks on load; one libvips thread per image, as many images as
    threads.
    """
    os.environ["VIPS_CONCURRENCY"] = "1"
    import pyvips

    if mode == "random crop":
        return None
    pyvips.cache_set_max(0)

    def one(blob: bytes) -> int:
        image = pyvips.Image.thumbnail_buffer(blob, SIZE, height=SIZE, size="force")
        image.write_to_memory()
        return 1

    def run() -> int:
        with ThreadPoolExecutor(threads) as pool:
            return sum(pool.map(one, blobs * repeat))

    return run


if __name__ == "__main__":
    main()
