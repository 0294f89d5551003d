"""How fast are tar shards in the page cache, bytes only, next to webdataset and Python's tarfile?

All yield the same images and labels of the same shards, in one process and thread. Ours are read in
shuffled order, as a feed does, and in the order of the shards; the others stream. Then: how fast
the index is built, and what an index of ten million samples costs to open and to hold.
"""

from __future__ import annotations

import io
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
from rounds import DATA, arguments, finish, interleaved, ratio

import fastfeed as ff
from fastfeed.sources.shards.index import Section, load, save
from fastfeed.storage.reads import Stat

SHARDS, SAMPLES, BATCH = 10, 1000, 256
MANY_SHARDS, MANY_SAMPLES = 10_000, 1_000


def main() -> None:
    options = arguments(__doc__, rounds=9)
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        size = write(root)
        source = ff.TarShards(root / "s-{000..009}.tar")
        shuffled = np.random.default_rng(0).permutation(len(source))
        result = interleaved(
            options.rounds,
            {
                "TarShards, shuffled": lambda: ours(source, shuffled),
                "TarShards, in order": lambda: ours(source, np.arange(len(source))),
                "webdataset": lambda: webdataset(root),
                "tarfile, stream": lambda: stream(root),
            },
        )
        report = {
            "bytes": size,
            "result": result,
            "ratios": {
                f"{own} / {rival}": ratio(result, own, rival)
                for own in ("TarShards, shuffled", "TarShards, in order")
                for rival in ("webdataset", "tarfile, stream")
            },
            "index": {
                "GB_per_second": indexing(root, size, options.rounds),
                "ten_million": ten_million(root),
            },
        }
    finish("How fast are tar shards read from the page cache, bytes only?", report, options.out)


def write(root: Path) -> int:
    """The photographs again and again; bytes in all."""
    blobs = [
        path.read_bytes()
        for path in sorted((DATA / "imagenet-sample").iterdir())
        if path.suffix == ".JPEG"
    ]
    for k in range(SHARDS):
        with tarfile.open(root / f"s-{k:03d}.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
            for i in range(k * SAMPLES, (k + 1) * SAMPLES):
                for extension, data in (
                    ("jpg", blobs[i % len(blobs)]),
                    ("cls", str(i % 1000).encode()),
                ):
                    info = tarfile.TarInfo(f"{i:08d}.{extension}")
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))
    return sum(path.stat().st_size for path in root.glob("*.tar"))


def ours(source: ff.TarShards, order: np.ndarray) -> int:
    total = 0
    for first in range(0, len(order), BATCH):
        ids = order[first : first + BATCH]
        blobs, labels = source.read(ids.tolist()), source.label(ids)
        assert len(labels) == len(blobs) and all(isinstance(blob, bytes) for blob in blobs)
        total += len(blobs)
    return total


def webdataset(root: Path) -> int:
    """As its README shows, without decoding: no workers, no shuffle buffer."""
    import webdataset as wds

    shards = str(root / f"s-{{000..{SHARDS - 1:03d}}}.tar")
    dataset = wds.WebDataset(shards, shardshuffle=False).to_tuple("jpg", "cls")
    return sum(1 for image, label in dataset if isinstance(image, bytes) and int(label) >= 0)


def stream(root: Path) -> int:
    """Members one after another, put together by name."""
    total = 0
    for path in sorted(root.glob("*.tar")):
        with tarfile.open(path, "r|") as archive:
            image = b""
            for member in archive:
                file = archive.extractfile(member)
                assert file is not None
                data = file.read()
                if member.name.endswith(".jpg"):
                    image = data
                elif image and int(data) >= 0:
                    total += 1
    return total


def indexing(root: Path, size: int, rounds: int) -> dict[str, float]:
    """Building from the page cache, with as many threads as the library chooses."""
    rates = []
    for i in range(rounds):
        begin = time.perf_counter()
        ff.TarShards(root / "s-{000..009}.tar", index=root / f"{i}" / "new.ffindex")
        rates.append(size / 1e9 / (time.perf_counter() - begin))
    return {
        "median": round(median(rates), 2),
        "least": round(min(rates), 2),
        "most": round(max(rates), 2),
    }


_OPEN = """
import resource, sys, time
from pathlib import Path
import numpy as np
import fastfeed.sources.tar.source
from fastfeed.sources.shards.index import load
def anonymous():
    return sum(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(("RssAnon", "RssFile")))
before, begin = anonymous(), time.perf_counter()
index = load(Path(sys.argv[1]))
opened = time.perf_counter() - begin
ids = np.random.default_rng(0).integers(0, len(index), 256)
places = [(index.find_shard(i), int(index.offsets[i]), int(index.lengths[i]), int(index.labels[i])) for i in ids]
held = anonymous()
for column in (index.offsets, index.lengths, index.labels):
    int(column.sum())
print(len(index), opened, (held - before) * 1024 / len(index), (anonymous() - before) * 1024 / len(index))
"""


def ten_million(root: Path) -> dict[str, float]:
    """An index as of 10,000 shards with 1,000 samples each, opened in a fresh process."""
    name = "".join(f"{i:08d}.jpg" for i in range(MANY_SAMPLES)).encode()
    columns = {
        "offsets": np.arange(MANY_SAMPLES, dtype=np.int64) * 110_000,
        "lengths": np.full(MANY_SAMPLES, 109_000, np.uint32),
        "checks": np.full(MANY_SAMPLES, 1, np.uint32),
        "labels": np.arange(MANY_SAMPLES, dtype=np.int32),
        "ends": (np.arange(1, MANY_SAMPLES + 1) * 12).astype(np.uint32),
    }
    stat = Stat(110_000_000, "1")
    path = root / "many.ffindex"
    save(
        path,
        "tar",
        [Section(f"s-{k:05d}.tar", stat, columns, name, None) for k in range(MANY_SHARDS)],
    )
    assert load(path) is not None
    runs = []
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, "-c", _OPEN, path], capture_output=True, text=True, check=True
        )
        runs.append([float(word) for word in done.stdout.split()])
    samples, opened, held, touched = (median(column) for column in zip(*runs, strict=True))
    return {
        "samples": samples,
        "open_s": round(opened, 3),
        "bytes_per_sample_after_a_batch": round(held, 2),
        "bytes_per_sample_all_touched": round(touched, 2),
        "file_bytes_per_sample": round(path.stat().st_size / samples, 2),
        "builder_peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3),
    }


if __name__ == "__main__":
    main()
