"""An SPDL pipeline: one stage decodes, crops and makes the batch.

python examples/loaders/spdl_pipeline.py                    # pip install spdl
"""

import photos
from spdl.pipeline import PipelineBuilder

import fastfeed as ff


def batches(paths, labels, transform, epoch=0):
    """A pipeline of one epoch; iterate inside `with pipeline.auto_stop()`."""

    def prepare(samples):
        ids, files, targets = zip(*samples, strict=True)
        batch = transform(files, ids=ids, epoch=epoch)
        for failure in batch.bad.values():
            print(failure)
        good = batch.weights > 0  # bad images leave the batch, which is shorter then
        return {
            "image": batch.images[good],
            "label": [target for target, kept in zip(targets, good, strict=True) if kept],
            "id": batch.ids[good],
        }

    builder = PipelineBuilder().add_source(zip(range(len(paths)), paths, labels, strict=True))
    builder = builder.aggregate(8).pipe(prepare, concurrency=2, output_order="input")
    return builder.add_sink(2).build(num_threads=2)


def main():
    paths, labels = photos.files()
    transform = ff.Transform([ff.RandomResizedCrop(64), ff.RandomFlip()], seed=0)
    pipeline = batches(paths, labels, transform)
    with pipeline.auto_stop():
        for batch in pipeline:
            print(batch["image"].shape, batch["label"])


if __name__ == "__main__":
    main()
