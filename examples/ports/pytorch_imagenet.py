"""The data path of pytorch/examples, imagenet/main.py: 39 lines there, 8 here.

https://github.com/pytorch/examples/blob/main/imagenet/main.py
"""

import data
import torch

import fastfeed as ff


def feeds(root, batch=16, world=None):
    pixels = [ff.Normalize.imagenet(), ff.ToLayout("CHW")]
    crops = [ff.RandomResizedCrop(224), ff.RandomFlip(), *pixels]
    center = [ff.Resize(256), ff.CenterCrop(224), *pixels]
    common = {"batch": batch, "world": world}
    train = ff.Feed(ff.ImageFolder(root / "train"), crops, **common)
    val = ff.Feed(ff.ImageFolder(root / "val"), center, **common, shuffle=False, tail="pad")
    return train, val


def main():
    given = data.options()
    train, val = feeds(data.temporary(data.class_folders, given.data))
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 7, stride=8),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.LazyLinear(3),
    )
    optimizer = None
    for images, labels in train.to_torch():
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer = optimizer or torch.optim.SGD(model.parameters(), 0.01)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"loss {loss.item():.3f}")
    right = sum(int((model(x).argmax(1) == labels).sum()) for x, labels in val.to_torch())
    print(f"{right} of {val.plan.length} right")


if __name__ == "__main__":
    main()
