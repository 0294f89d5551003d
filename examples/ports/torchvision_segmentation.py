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

    scale = (crop / base / 2) ** 2, 1.0
    crops = [ff.RandomResizedCrop(crop, scale=scale, ratio=(1, 1)), ff.RandomFlip()]
    val = part("val", [ff.Resize((base, base))], shuffle=False, tail="pad")
    return part("train", crops), val


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
