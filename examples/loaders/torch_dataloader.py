"""PyTorch's DataLoader: the workers list files, and `collate_fn` is one call per batch.

python examples/loaders/torch_dataloader.py
"""

import functools

import photos
import torch

import fastfeed as ff


class Photos(torch.utils.data.Dataset):
    """Ids, paths and labels; files are read by the transform's threads."""

    def __init__(self, paths, labels):
        self.paths = paths
        self.labels = labels

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        return i, self.paths[i], self.labels[i]


def collate(samples, transform, epoch):
    ids, paths, labels = zip(*samples, strict=True)
    batch = transform.torch(paths, fields={"label": labels}, ids=ids, epoch=epoch)
    for failure in batch.bad.values():
        print(failure)  # its image is black, and its weight in the loss 0
    return dict(batch)  # tensors by name: image, label, weight, id


def batches(paths, labels, transform, epoch=0, workers=2, start=None, **options):
    """A loader of one epoch; `start` is "fork", "spawn" or None, the system's way."""
    return torch.utils.data.DataLoader(
        Photos(paths, labels),
        batch_size=8,
        num_workers=workers,
        multiprocessing_context=start if workers else None,
        collate_fn=functools.partial(collate, transform=transform, epoch=epoch),
        **options,
    )


def main():
    paths, labels = photos.files()
    transform = ff.Transform([ff.RandomResizedCrop(64), ff.RandomFlip()], seed=0)
    for epoch in range(2):
        generator = torch.Generator().manual_seed(epoch)
        for batch in batches(paths, labels, transform, epoch, shuffle=True, generator=generator):
            print(epoch, tuple(batch["image"].shape), batch["label"].tolist())


if __name__ == "__main__":
    main()
