"""The data path of MosaicML's CIFAR example: MDS shards, read as they are.

https://github.com/mosaicml/examples/tree/main/examples/benchmarks/resnet_cifar
"""

import data
import torch
import torch_steps

import fastfeed as ff


def feeds(root, batch=16, world=None):
    mean, std = (0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261)
    values = [ff.Normalize(mean, std), ff.ToLayout("CHW")]
    moves = [ff.RandomCrop(32, padding=4), ff.RandomFlip()]
    train, test = (ff.MDSShards(root / part, image="x", label="y") for part in ("train", "test"))
    common = {"batch": batch, "world": world}
    test = ff.Feed(test, [ff.CenterCrop(32), *values], **common, shuffle=False, tail="pad")
    return ff.Feed(train, [*moves, *values], **common), test


def main():
    given = data.options()
    train, _ = feeds(data.temporary(data.mds, given.data))
    model = torch_steps.small_network(3)

    def loss(batch):
        images, labels = batch
        return torch.nn.functional.cross_entropy(model(images), labels)

    torch_steps.train(model, train.to_torch(), loss, given.steps)


if __name__ == "__main__":
    main()
