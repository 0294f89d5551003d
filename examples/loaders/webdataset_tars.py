"""WebDataset: encoded files of tar shards, batched, then one call per batch.

python examples/loaders/webdataset_tars.py                  # pip install webdataset
"""

import functools
import tempfile
from pathlib import Path

import photos
import webdataset

import fastfeed as ff


def prepare(samples, transform, epoch):
    keys, files, classes = zip(*samples, strict=True)
    ids = [int(key) for key in keys]  # of the numbers by which images are cropped
    batch = transform(files, ids=ids, epoch=epoch)
    for row, failure in batch.bad.items():
        print(f"{keys[row]}.jpg: {failure.reason}")
    good = batch.weights > 0  # bad images leave the batch, which is shorter then
    labels = [int(each) for each, kept in zip(classes, good, strict=True) if kept]
    return {"image": batch.images[good], "label": labels, "id": batch.ids[good]}


def batches(shards, transform, epoch=0):
    """A data set of one epoch; samples have a number as key, a .jpg and a .cls."""
    samples = webdataset.WebDataset(shards, shardshuffle=False, empty_check=False)
    samples = samples.to_tuple("__key__", "jpg", "cls")
    step = functools.partial(prepare, transform=transform, epoch=epoch)
    return samples.batched(8, collation_fn=list).map(step)


def write(paths, labels, folder, per_shard=12):
    """Tar shards of these files."""
    pattern = str(Path(folder) / "%03d.tar")
    with webdataset.ShardWriter(pattern, maxcount=per_shard, verbose=0) as writer:
        for i, (path, label) in enumerate(zip(paths, labels, strict=True)):
            writer.write({"__key__": f"{i:06}", "jpg": Path(path).read_bytes(), "cls": label})
    return [str(path) for path in sorted(Path(folder).glob("*.tar"))]


def main():
    shards = write(*photos.files(), tempfile.mkdtemp())
    transform = ff.Transform([ff.RandomResizedCrop(64), ff.RandomFlip()], seed=0)
    for epoch in range(2):
        for batch in batches(shards, transform, epoch):
            print(epoch, batch["image"].shape, batch["label"])


if __name__ == "__main__":
    main()
