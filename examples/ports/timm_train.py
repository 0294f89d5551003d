"""The data path of timm's train.py: create_dataset, create_loader, Mixup.

https://github.com/huggingface/pytorch-image-models/blob/main/train.py
"""

import data
import torch
import torch_steps

import fastfeed as ff


def feeds(root, batch=16, side=64, crop_share=0.875, smoothing=0.1, world=None):
    pixels = [ff.Normalize.imagenet(), ff.ToLayout("CHW")]
    ops = [ff.RandomResizedCrop(side, filter="bicubic"), ff.RandomFlip()]
    ops += [ff.RandAugment.from_timm("rand-m9-mstd0.5-inc1")]
    ops += [ff.RandomErasing(0.25, scale=(0.02, 1 / 3), fill="noise"), *pixels]
    ops += [
        ff.RandomChoice([ff.MixUp(0.8), ff.CutMix(1.0)], per="batch"),
        ff.LabelSmoothing(smoothing),
    ]
    center = [ff.Resize(int(side / crop_share), filter="bicubic"), ff.CenterCrop(side), *pixels]
    common = {"batch": batch, "world": world}
    train = ff.Feed(ff.ImageFolder(root / "train"), ops, **common)
    val = ff.Feed(ff.ImageFolder(root / "val"), center, **common, shuffle=False, tail="pad")
    return train, val


def main():
    given = data.options()
    train, _ = feeds(data.temporary(data.class_folders, given.data))
    model = torch_steps.small_network(3)

    def loss(batch):
        images, shares = batch
        return torch.nn.functional.cross_entropy(model(images), shares)

    torch_steps.train(model, train.to_torch(), loss, given.steps)


if __name__ == "__main__":
    main()
