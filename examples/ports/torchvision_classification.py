"""The data path of torchvision's references/classification: presets, MixUp or CutMix.

https://github.com/pytorch/vision/tree/main/references/classification
"""

import data
import torch
import torch_steps

import fastfeed as ff


def feeds(root, batch=16, world=None, augment=(), erase=0.1, mixup=0.2, cutmix=1.0, repeats=1):
    pixels = [ff.Normalize.imagenet(), ff.ToLayout("CHW")]
    ops = [ff.RandomResizedCrop(176), ff.RandomFlip(), *augment]
    ops += [ff.RandomErasing(erase, fill=(124, 116, 104)), *pixels]
    ops.append(ff.RandomChoice([ff.MixUp(mixup), ff.CutMix(cutmix)]))
    center = [ff.Resize(232), ff.CenterCrop(224), *pixels]
    common = {"batch": batch, "world": world, "tail": "pad"}
    source = ff.ImageFolder(root / "train")
    order = ff.Repeated(repeats, together=True, length=len(source))
    train = ff.Feed(source, ops, **common, shuffle=order)
    val = ff.Feed(ff.ImageFolder(root / "val"), center, **common, shuffle=False)
    return train, val


def main():
    given = data.options()
    root = data.temporary(data.class_folders, given.data)
    train, _ = feeds(root, augment=[ff.TrivialAugmentWide()])
    model = torch_steps.small_network(3)

    def loss(batch):
        images, shares = batch
        return torch.nn.functional.cross_entropy(model(images), shares, label_smoothing=0.1)

    torch_steps.train(model, train.to_torch(), loss, given.steps)


if __name__ == "__main__":
    main()
