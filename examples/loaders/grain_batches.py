"""A Grain pipeline: `batch_fn` is one call per batch, in Grain's threads or worker processes.

python examples/loaders/grain_batches.py                    # pip install grain
"""

import functools

import grain
import numpy as np
import photos

import fastfeed as ff


def prepare(samples, transform, epoch):
    ids, paths, labels = zip(*samples, strict=True)
    batch = transform(paths, ids=ids, epoch=epoch)
    for failure in batch.bad.values():
        print(failure)  # its image is black, and its weight in the loss 0
    return {
        "image": batch.images,
        "label": np.array(labels),
        "weight": batch.weights,
        "id": batch.ids,
    }


def batches(paths, labels, transform, epoch=0, shuffle=False):
    """A data set of one epoch. `.to_iter_dataset().mp_prefetch(...)` moves it to processes."""
    samples = grain.MapDataset.source(list(zip(range(len(paths)), paths, labels, strict=True)))
    samples = samples.shuffle(seed=epoch) if shuffle else samples
    step = functools.partial(prepare, transform=transform, epoch=epoch)
    return samples.batch(8, batch_fn=step)


def main():
    paths, labels = photos.files()
    transform = ff.Transform([ff.RandomResizedCrop(64), ff.RandomFlip()], seed=0)
    options = grain.ReadOptions(num_threads=2, prefetch_buffer_size=2)
    for epoch in range(2):
        data = batches(paths, labels, transform, epoch, shuffle=True)
        for batch in data.to_iter_dataset(options):
            print(epoch, batch["image"].shape, batch["label"].tolist())


if __name__ == "__main__":
    main()
