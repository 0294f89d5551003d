"""Hugging Face datasets: `with_transform` makes images when rows are read, a call per slice.

python examples/loaders/hugging_face_datasets.py            # pip install datasets
"""

import functools

import datasets
import photos

import fastfeed as ff


def prepare(rows, transform, epoch):
    """One call per slice of rows, as PyTorch's DataLoader asks for a batch of them, too."""
    files = [image["bytes"] or image["path"] for image in rows["image"]]
    batch = transform(files, ids=rows["id"], epoch=epoch)
    for failure in batch.bad.values():
        print(failure)  # its image is black, and its weight in the loss 0
    return rows | {"image": list(batch.images), "weight": batch.weights.tolist()}


def batches(paths, labels, transform, epoch=0):
    """Slices of a data set of files; `load_dataset("imagefolder", ...)` has the same column."""
    columns = {"id": range(len(paths)), "image": paths, "label": labels}
    data = datasets.Dataset.from_dict({name: list(values) for name, values in columns.items()})
    # the encoded files, not PIL images
    data = data.cast_column("image", datasets.Image(decode=False))
    data = data.with_transform(functools.partial(prepare, transform=transform, epoch=epoch))
    return (data[start : start + 8] for start in range(0, len(data), 8))


def main():
    paths, labels = photos.files()
    transform = ff.Transform([ff.RandomResizedCrop(64), ff.RandomFlip()], seed=0)
    for epoch in range(2):
        for batch in batches(paths, labels, transform, epoch):
            print(epoch, len(batch["image"]), batch["image"][0].shape, batch["label"])


if __name__ == "__main__":
    main()
