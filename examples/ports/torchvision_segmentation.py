"""The data path of torchvision's references/segmentation: class maps next to images.

https://github.com/pytorch/vision/tree/main/references/segmentation
"""

import data
import torch
import torch_steps

import fastfeed as ff


def feeds(root, batch=8, base=52, crop=48, world=None):
    def part(name, ops, **options):
        images = ff.ImageFolder(root / name / "images", labeled=False)
        masks = sorted((root / name / "masks").iterdir())
        pixels = [ff.Normalize.imagenet(), ff.ToLayout("CHW")]
        source = ff.Objects(images, masks=masks)
        return ff.Feed(source, [*ops, *pixels], batch=batch, world=world, **options)

    cut = ff.RandomCrop(crop, pad_if_needed=True)
    crops = [ff.RandomResize((base // 2, 2 * base)), ff.RandomFlip(), cut]
    whole = [ff.Resize(base), ff.Resize(ff.LargestSize(), fit="corner")]
    return part("train", crops), part("val", whole, shuffle=False, tail="pad")


def main():
    given = data.options()
    train, _ = feeds(data.temporary(data.segmented, given.data))
    model = torch.nn.Conv2d(3, 4, 9, padding=4)

    def loss(batch):
        images, masks = batch
        return torch.nn.functional.cross_entropy(model(images), masks.long(), ignore_index=255)

    torch_steps.train(model, train.to_torch(yields=("image", "masks")), loss, given.steps)


if __name__ == "__main__":
    main()
