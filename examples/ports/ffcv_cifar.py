"""The data path of FFCV's CIFAR-10 example: flips, shifts and a hidden square on arrays.

https://github.com/libffcv/ffcv/blob/main/examples/cifar/train_cifar.py
"""

import data
import numpy as np
import torch
import torch_steps

import fastfeed as ff


def feeds(root, batch=16, world=None):
    mean, std = (125.307, 122.961, 113.8575), (51.5865, 50.847, 51.255)
    gray = tuple(map(int, mean))
    values = [ff.Normalize(*(tuple(x / 255 for x in each) for each in (mean, std)))]
    values.append(ff.ToLayout("CHW"))
    moves = [ff.RandomFlip(), ff.RandomCrop(32, 2, fill=gray), ff.CutOut(4, gray)]
    train, test = (ff.Arrays(**np.load(root / f"{name}.npz")) for name in ("train", "test"))
    common = {"batch": batch, "world": world}
    test = ff.Feed(test, values, **common, shuffle=False, tail="pad")
    return ff.Feed(train, [*moves, *values], **common), test


def main():
    given = data.options()
    train, _ = feeds(data.temporary(data.cifar, given.data))
    model = torch_steps.small_network(3)

    def loss(batch):
        images, labels = batch
        return torch.nn.functional.cross_entropy(model(images), labels, label_smoothing=0.1)

    torch_steps.train(model, train.to_torch(), loss, given.steps)


if __name__ == "__main__":
    main()
