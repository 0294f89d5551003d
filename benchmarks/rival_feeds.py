"""The process of one library in bench_mixed: `python rival_feeds.py LIBRARY FOLDER THREADS EPOCHS`.

Says "ready" after an epoch; then, for each line that it reads, runs EPOCHS epochs over the files of
the folder, random crops to 224 x 224 and flips, and prints how many images came out, and the
seconds and processor seconds it took.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

BATCH, SIZE = 50, 224
AREA, ASPECT = (0.08, 1.0), (3 / 4, 4 / 3)


def fastfeed_batches(folder: str, threads: int) -> Iterator[int]:
    """Sizes of batches, of one epoch after another."""
    import fastfeed as ff

    source = ff.ImageFolder(folder, labeled=False)
    ops = [ff.RandomResizedCrop(SIZE, AREA, ASPECT), ff.RandomFlip()]
    with ff.Feed(source, ops, batch=BATCH, threads=threads) as feed:
        for batch in feed.batches(0, epochs=1_000_000):
            yield len(batch)


def tfdata_batches(folder: str, threads: int) -> Iterator[int]:
    """JPEGs by decode_and_crop_jpeg, as its guide advises; others whole: it crops no other format
    while decoding.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    def window(shape: tf.Tensor) -> tf.Tensor:
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            shape,
            tf.constant([0.0, 0.0, 1.0, 1.0], shape=[1, 1, 4]),
            aspect_ratio_range=ASPECT,
            area_range=AREA,
            max_attempts=10,
            use_image_if_no_bounding_boxes=True,
        )
        return tf.stack([begin[0], begin[1], size[0], size[1]])

    def jpeg(blob: tf.Tensor) -> tf.Tensor:
        return tf.io.decode_and_crop_jpeg(blob, window(tf.io.extract_jpeg_shape(blob)), channels=3)

    def other(blob: tf.Tensor) -> tf.Tensor:
        image = tf.io.decode_image(blob, channels=3, expand_animations=False)
        top, left, height, width = tf.unstack(window(tf.shape(image)))
        return image[top : top + height, left : left + width]

    def sample(path: tf.Tensor) -> tf.Tensor:
        blob = tf.io.read_file(path)
        image = tf.cond(tf.io.is_jpeg(blob), lambda: jpeg(blob), lambda: other(blob))
        image = tf.image.resize(
            tf.ensure_shape(image, [None, None, 3]), [SIZE, SIZE], antialias=True
        )
        return tf.image.random_flip_left_right(tf.cast(image, tf.uint8))

    paths = sorted(str(path) for path in Path(folder).iterdir())
    data = tf.data.Dataset.from_tensor_slices(paths).shuffle(len(paths), seed=1).repeat()
    data = (
        data.map(sample, num_parallel_calls=threads, deterministic=False).batch(BATCH).prefetch(2)
    )
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    for batch in data.with_options(options):
        yield int(batch.shape[0])


def dali_batches(folder: str, threads: int) -> Iterator[int]:
    """Decoder with a fused random crop, then resize; two batches ahead, as its ImageNet example."""
    from nvidia.dali import fn, pipeline_def, types

    files = sorted(str(path) for path in Path(folder).iterdir())

    @pipeline_def(
        batch_size=BATCH, num_threads=threads, device_id=None, prefetch_queue_depth=2, seed=1
    )
    def graph():
        blobs, _ = fn.readers.file(files=files, random_shuffle=True, initial_fill=len(files))
        image = fn.decoders.image_random_crop(
            blobs, device="cpu", output_type=types.RGB, random_area=AREA, random_aspect_ratio=ASPECT
        )
        image = fn.resize(image, size=[SIZE, SIZE], interp_type=types.INTERP_LINEAR, antialias=True)
        return fn.flip(image, horizontal=fn.random.coin_flip())

    pipe = graph()
    pipe.build()
    while True:
        (out,) = pipe.run()
        yield len(out)


LIBRARIES = {"fastfeed": fastfeed_batches, "tf.data": tfdata_batches, "DALI": dali_batches}


def main() -> None:
    library, folder, threads, epochs = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    batches = LIBRARIES[library](folder, threads)
    per_epoch = len(list(Path(folder).iterdir())) // BATCH
    for _ in range(per_epoch):
        next(batches)
    print("ready", flush=True)
    for _ in sys.stdin:
        wall, busy = time.perf_counter(), time.process_time()
        images = sum(next(batches) for _ in range(epochs * per_epoch))
        print(images, time.perf_counter() - wall, time.process_time() - busy, flush=True)


if __name__ == "__main__":
    main()
