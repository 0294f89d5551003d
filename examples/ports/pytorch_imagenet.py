"""The data path of pytorch/examples, imagenet/main.py.

https://github.com/pytorch/examples/blob/main/imagenet/main.py
"""

import data
import torch
import torch_steps

import fastfeed as ff


def feeds(root, batch=16, world=None):
    pixels = [ff.Normalize.imagenet(), ff.ToLayout("CHW")]
    crops = [ff.RandomResizedCrop(224), ff.RandomFlip(), *pixels]
    center = [ff.Resize(256), ff.CenterCrop(224), *pixels]
    common = {"batch": batch, "world": world, "tail": "pad"}
    train = ff.Feed(ff.ImageFolder(root / "train"), crops, **common)
    val = ff.Feed(ff.ImageFolder(root / "val"), center, **common, shuffle=False)
    return train, val


def main():
    given = data.options()
    train, val = feeds(data.temporary(data.class_folders, given.data))
    model = torch_steps.small_network(3)

    def loss(batch):
        images, labels = batch
        return torch.nn.functional.cross_entropy(model(images), labels)

    torch_steps.train(model, train.to_torch(), loss, given.steps)
    right = sum(int((model(x).argmax(1) == labels).sum()) for x, labels in val.to_torch())
    print(f"{right} of {val.plan.length} right")


if __name__ == "__main__":
    main()
