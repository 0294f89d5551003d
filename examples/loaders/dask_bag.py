"""Dask: one call per partition, on any of its schedulers.

python examples/loaders/dask_bag.py                         # pip install dask
"""

import dask.bag
import photos

import fastfeed as ff


def prepare(rows, transform, epoch):
    ids, paths, labels = zip(*rows, strict=True)
    batch = transform(paths, ids=ids, epoch=epoch)
    return [
        {"id": ids[row], "label": labels[row], "image": image, "bad": batch.bad.get(row)}
        for row, image in enumerate(batch.images)
    ]


def batches(paths, labels, transform, epoch=0):
    """A bag of rows with their images, black ones where `bad` holds a failure."""
    rows = dask.bag.from_sequence(zip(range(len(paths)), paths, labels, strict=True), 8)
    return rows.map_partitions(prepare, transform, epoch)


def main():
    paths, labels = photos.files()
    # Dask's threads share those of the transform; in Dask's worker processes: threads=1
    transform = ff.Transform([ff.RandomResizedCrop(64), ff.RandomFlip()], seed=0)
    for row in batches(paths, labels, transform).compute(scheduler="threads"):
        print(row["id"], row["label"], row["bad"] or row["image"].shape)


if __name__ == "__main__":
    main()
