"""The data path of Transformers' run_image_classification.py: dicts of tensors for its Trainer.

https://github.com/huggingface/transformers/tree/main/examples/pytorch/image-classification
"""

import data
import transformers_steps
from transformers import ResNetConfig, ResNetForImageClassification

import fastfeed as ff


def feeds(root, batch=8, side=64, world=None):
    source = ff.ImageFolder(root / "train")
    sides = ff.split(source, {"train": 0.85, "validation": 0.15}, by="random")
    values = [ff.Normalize.imagenet(), ff.ToLayout("CHW")]
    crops = [ff.RandomResizedCrop(side), ff.RandomFlip(), *values]
    center = [ff.Resize(side), ff.CenterCrop(side), *values]
    common = {"batch": batch, "world": world, "tail": "pad"}
    val = ff.Feed(sides["validation"], center, **common, shuffle=False)
    return ff.Feed(sides["train"], crops, **common), val


def loaders(*feeds):
    names = {"pixel_values": "image", "labels": "label"}
    return [feed.to_torch(yields=names) for feed in feeds]


def main():
    given = data.options()
    train, val = loaders(*feeds(data.temporary(data.class_folders, given.data)))
    config = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "num_labels": 3}
    model = ResNetForImageClassification(ResNetConfig(**config, layer_type="basic"))
    transformers_steps.train(model, train, val, given.steps)


if __name__ == "__main__":
    main()
