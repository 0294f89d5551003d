"""Reading samples of tar shards from S3 with 40 ms of latency: one at a time, 64 in flight, and
with 1 % of faults; then from the disk cache, next to plain local files.

The server is the tests' (tests/helpers/s3.py): moto, with latency and faults put in front, on the
same two cores. Every image that comes is compared with what was put there.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np
from rounds import DATA, arguments, finish, interleaved, ratio

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from helpers.s3 import S3Server, peak
from helpers.shards import tar_of

import fastfeed as ff

SHARDS, SAMPLES, ONE, TURNS = 8, 150, 40, 3  # what is read at once: all samples, so many times
LATENCY_S, FAULTS = 0.04, {"share_503": 0.005, "share_timeout": 0.005}


def few_at_a_time(source: ff.TarShards | ff.ImageFolder, order: np.ndarray) -> int:
    """As a feed's threads read."""
    return sum(
        len(source.read(order[first : first + 4].tolist())) for first in range(0, len(order), 4)
    )


def main() -> None:
    options = arguments(__doc__, rounds=9)
    paths = sorted(p for p in (DATA / "imagenet-sample").iterdir() if p.suffix == ".JPEG")
    blobs = [path.read_bytes() for path in paths]
    sums = [zlib.crc32(blob) for blob in blobs]
    with tempfile.TemporaryDirectory() as temporary, S3Server() as server:
        root = Path(temporary)
        names = [f"bench/s-{k:03d}.tar" for k in range(SHARDS)]
        for name in names:
            members = [(f"{i:04d}.jpg", blobs[i % len(blobs)]) for i in range(SAMPLES)]
            server.put(name, tar_of(members))
        server.warm(names)
        pattern, index = f"s3://bench/s-{{000..{SHARDS - 1:03d}}}.tar", root / "s3.ffindex"
        source = ff.TarShards(
            pattern, label=None, storage=server.options, index=index, progress=False
        )
        cached = ff.TarShards(
            pattern,
            label=None,
            storage=server.options,
            index=index,
            progress=False,
            cache=root / "cache",
        )
        expected = np.array([sums[i % SAMPLES % len(sums)] for i in range(len(source))])
        order = np.random.default_rng(0).permutation(len(source))
        many = np.tile(order, TURNS)

        def read(some: np.ndarray, of: ff.TarShards, at_once: int) -> int:
            for first in range(0, len(some), at_once):
                ids = some[first : first + at_once]
                pending = of.fetch(ids.tolist())
                for i, one in zip(ids, pending, strict=True):
                    blob = one.result()
                    assert isinstance(blob, bytes), blob
                    assert zlib.crc32(blob) == expected[i]
            return len(some)

        def calm(some: np.ndarray, at_once: int):
            def run() -> int:
                server.faults(latency_s=LATENCY_S)
                return read(some, source, at_once)

            return run

        seeds = iter(range(1000))

        def faulty() -> int:
            server.faults(latency_s=LATENCY_S, **FAULTS, seed=next(seeds))
            return read(many, source, len(many))

        network = interleaved(
            options.rounds,
            {
                "one at a time": calm(order[:ONE], 1),
                "64 in flight": calm(many, len(many)),
                "64 in flight, 1 % faults": faulty,
            },
        )
        server.faults(latency_s=LATENCY_S)
        server.clear_log()
        read(many, source, len(many))
        in_flight = peak(server.log())
        server.faults()
        read(order, cached, len(order))  # fills the cache
        server.clear_log()
        local = root / "files"
        for i in range(len(source)):
            (local / str(i % 2)).mkdir(parents=True, exist_ok=True)
            shutil.copy(paths[i % SAMPLES % len(paths)], local / str(i % 2) / f"{i:05d}.jpg")
        folder = ff.ImageFolder(local)
        disk = interleaved(
            options.rounds,
            {
                "disk cache": lambda: sum(
                    len(cached.read(order[a : a + 4].tolist())) for a in range(0, len(order), 4)
                ),
                "local files": lambda: sum(
                    len(folder.read(order[a : a + 4].tolist())) for a in range(0, len(order), 4)
                ),
            },
        )
        assert not server.log(), "the cache asked the server"
    finish(
        "How many samples per second come from S3 with 40 ms of latency, and from the disk cache?",
        {
            "result": {**network, **disk},
            "requests in flight at the peak": in_flight,
            "ratios": {
                "64 in flight / one at a time": ratio(network, "64 in flight", "one at a time"),
                "faults / none": ratio(network, "64 in flight, 1 % faults", "64 in flight"),
                "disk cache / local files": ratio(disk, "disk cache", "local files"),
            },
        },
        options.out,
    )


if __name__ == "__main__":
    main()
