"""TFRecords read at random: as fast as TensorFlow reads them in order?

And how fast are they indexed?

The same files, from the page cache: 1 GB of the sample images, as Examples with the fields that
ImageNet's have. TensorFlow hands over the records' bytes, as TFRecordDataset is made for; fastfeed
finds the image in each and hands over that. Both verify every checksum. TensorFlow's readers and
buffers are the best of those tried first.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from rounds import DATA, arguments, finish, interleaved, ratio

import fastfeed as ff

SHARDS, BYTES, CHUNK = 8, 1 << 30, 16
READERS, BUFFERS, AHEAD = (None, 1, 2, 4), (1 << 20, 8 << 20), (64, tf.data.AUTOTUNE)
TRIES = 5


def main() -> None:
    options = arguments(__doc__, rounds=9)
    with tempfile.TemporaryDirectory() as folder:
        files = fill(Path(folder))
        size = sum(file.stat().st_size for file in files)
        source = ff.TFRecords(files)
        settings = fastest(files)
        order = np.arange(len(source))
        shuffled = np.random.default_rng(0).permutation(order)
        rates = interleaved(
            options.rounds,
            {
                "TensorFlow, in order": lambda: dataset(files, *settings),
                "fastfeed, in order": lambda: read(source, order, 1),
                "fastfeed, shuffled": lambda: read(source, shuffled, 1),
                f"fastfeed, shuffled, {options.threads} threads": lambda: read(
                    source, shuffled, options.threads
                ),
                "fastfeed, indexing": lambda: index(files),
            },
        )
    each = size / len(order)
    result = {
        "tensorflow": tf.__version__,
        "tensorflow_settings": dict(
            zip(("num_parallel_reads", "buffer_size", "prefetch"), settings, strict=True)
        ),
        "bytes": size,
        "records": len(order),
        "gigabytes_per_second": {
            k: round(v["images_per_second"] * each / 1e9, 2) for k, v in rates.items()
        },
        "to_tensorflow": {
            k: ratio(rates, k, "TensorFlow, in order") for k in rates if k.startswith("fastfeed, ")
        },
        "result": rates,
    }
    finish("How fast are TFRecords read and indexed?", result, options.out)


def fill(folder: Path) -> list[Path]:
    """SHARDS files of BYTES together."""
    images = [path.read_bytes() for path in sorted((DATA / "imagenet-sample").iterdir())]
    examples, room = itertools.cycle(examples_of(images)), BYTES // SHARDS
    files = [folder / f"train-{k:05d}-of-{SHARDS:05d}" for k in range(SHARDS)]
    for file in files:
        with tf.io.TFRecordWriter(str(file)) as writer:
            left = room
            while left > 0:
                record = next(examples)
                writer.write(record)
                left -= len(record)
    return files


def examples_of(images: list[bytes]) -> Iterator[bytes]:
    """Serialized Examples, with the fields of ImageNet's."""
    for i, image in enumerate(images):
        values = {
            "image/height": [400],
            "image/width": [500],
            "image/channels": [3],
            "image/colorspace": [b"RGB"],
            "image/format": [b"JPEG"],
            "image/filename": [b"n01440764_%d.JPEG" % i],
            "image/class/label": [i + 1],
            "image/class/synset": [b"n01440764"],
            "image/class/text": [b"tench, Tinca tinca"],
            "image/encoded": [image],
            "image/object/bbox/xmin": [0.1],
            "image/object/bbox/xmax": [0.9],
            "image/object/bbox/ymin": [0.2],
            "image/object/bbox/ymax": [0.8],
            "image/object/bbox/label": [i + 1],
        }
        features = tf.train.Features(
            feature={name: feature(value) for name, value in values.items()}
        )
        yield tf.train.Example(features=features).SerializeToString()


def feature(values: list) -> tf.train.Feature:
    """A list of the kind that its values are."""
    if isinstance(values[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if isinstance(values[0], int):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def fastest(files: list[Path]) -> tuple[int | None, int, int]:
    """Readers, buffer and prefetch with which TensorFlow took the least time of TRIES."""

    def seconds(setting: tuple[int | None, int, int]) -> float:
        begin = time.perf_counter()
        dataset(files, *setting)
        return time.perf_counter() - begin

    settings = list(itertools.product(READERS, BUFFERS, AHEAD))
    times = [[seconds(setting) for setting in settings] for _ in range(TRIES)]
    return settings[int(np.argmin(np.min(times, axis=0)))]


def dataset(files: list[Path], readers: int | None, buffer: int, ahead: int) -> int:
    """All records through tf.data, as bytes."""
    records = tf.data.TFRecordDataset(
        list(map(str, files)), num_parallel_reads=readers, buffer_size=buffer
    )
    return sum(1 for _ in records.prefetch(ahead).as_numpy_iterator())


def read(source: ff.TFRecords, ids: np.ndarray, threads: int) -> int:
    """These samples, CHUNK at a time."""
    chunks = [ids[first : first + CHUNK] for first in range(0, len(ids), CHUNK)]
    if threads == 1:
        return sum(len(source.read(chunk)) for chunk in chunks)
    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(lambda chunk: len(source.read(chunk)), chunks))


def index(files: list[Path]) -> int:
    """A newly built source."""
    shutil.rmtree(files[0].parent / ".fastfeed")
    return len(ff.TFRecords(files))


if __name__ == "__main__":
    main()
