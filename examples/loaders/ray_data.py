"""Ray Data: actors of one core each, which keep their thread from batch to batch.

python examples/loaders/ray_data.py                         # pip install 'ray[data]'
"""

import numpy as np
import photos
import ray

import fastfeed as ff


class Prepare:
    """Runs in an actor."""

    def __init__(self, transform, epoch):
        self.transform = transform
        self.epoch = epoch

    def __call__(self, rows):
        batch = self.transform(rows["path"].tolist(), ids=rows["id"], epoch=self.epoch)
        reasons = [str(batch.bad.get(row, "")) for row in range(len(batch))]
        return rows | {"image": batch.images, "bad": np.array(reasons, object)}


def batches(paths, labels, transform, epoch=0):
    """A data set of rows with their images, black ones where `bad` holds a reason."""
    rows = zip(range(len(paths)), paths, labels, strict=True)
    data = ray.data.from_items([{"id": i, "path": p, "label": label} for i, p, label in rows])
    return data.map_batches(
        Prepare,
        fn_constructor_args=(transform, epoch),
        batch_size=8,
        num_cpus=1,
        compute=ray.data.ActorPoolStrategy(size=1),
    )


def main():
    paths, labels = photos.files()
    # as many threads as `num_cpus`
    transform = ff.Transform([ff.RandomResizedCrop(64), ff.RandomFlip()], seed=0, threads=1)
    data = batches(paths, labels, transform)
    for batch in data.iter_batches(batch_size=8):
        good = batch["bad"] == ""
        print(batch["image"][good].shape, batch["label"][good].tolist())


if __name__ == "__main__":
    main()
