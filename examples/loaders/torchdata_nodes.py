"""torchdata's nodes: a call per batch in the threads of a ParallelMapper.

python examples/loaders/torchdata_nodes.py                  # pip install torchdata
"""

import functools

import photos
import torch
from torchdata import nodes

import fastfeed as ff


def prepare(rows, paths, labels, transform, epoch):
    fields = {"label": [labels[i] for i in rows]}
    batch = transform.torch([paths[i] for i in rows], fields=fields, ids=rows, epoch=epoch)
    for failure in batch.bad.values():
        print(failure)  # its image is black, and its weight in the loss 0
    return dict(batch)  # tensors by name: image, label, weight, id


def batches(paths, labels, transform, epoch=0, sampler=None):
    """A loader of one epoch."""
    sampler = torch.utils.data.SequentialSampler(paths) if sampler is None else sampler
    node = nodes.Batcher(nodes.SamplerWrapper(sampler), batch_size=8, drop_last=False)
    step = functools.partial(prepare, paths=paths, labels=labels, transform=transform, epoch=epoch)
    # two calls overlap: while one hands over its batch, the other has the threads
    return nodes.Loader(nodes.ParallelMapper(node, step, num_workers=2, method="thread"))


def main():
    paths, labels = photos.files()
    transform = ff.Transform([ff.RandomResizedCrop(64), ff.RandomFlip()], seed=0)
    sampler = torch.utils.data.RandomSampler(paths)
    for epoch in range(2):
        for batch in batches(paths, labels, transform, epoch, sampler):
            print(epoch, tuple(batch["image"].shape), batch["label"].tolist())


if __name__ == "__main__":
    main()
