"""The data path of Transformers' run_semantic_segmentation.py: masks without their class 0.

https://github.com/huggingface/transformers/tree/main/examples/pytorch/semantic-segmentation
"""

import data
import numpy as np
import transformers_steps
from transformers import SegformerConfig, SegformerForSemanticSegmentation

import fastfeed as ff


def reduced(masks):
    return np.where(masks % 255 == 0, 255, masks - 1).astype(np.int64)


def feeds(root, batch=4, side=48, world=None):
    masks = sorted((root / "masks").iterdir())
    source = ff.Objects(ff.ImageFolder(root / "images", labeled=False), masks=masks)
    sides = ff.split(source, {"train": 0.85, "validation": 0.15}, by="random")
    values = [ff.Normalize.imagenet(), ff.ToLayout("CHW"), ff.Map(reduced, "masks", out="classes")]
    common = {"batch": batch, "world": world, "tail": "pad"}
    train = ff.Feed(sides["train"], [ff.RandomCrop(side), ff.RandomFlip(), *values], **common)
    whole = [ff.Resize((side, side)), *values]
    return train, ff.Feed(sides["validation"], whole, **common, shuffle=False)


def loaders(*feeds):
    names = {"pixel_values": "image", "labels": "classes"}
    return [feed.to_torch(yields=names) for feed in feeds]


def main():
    given = data.options()
    root = data.temporary(data.segmented, given.data) / "train"
    sizes = {"hidden_sizes": [8, 8], "depths": [1, 1], "num_attention_heads": [1, 1]}
    strides = {"num_encoder_blocks": 2, "sr_ratios": [2, 1], "patch_sizes": [7, 3]}
    more = {"strides": [4, 2], "mlp_ratios": [2, 2], "decoder_hidden_size": 8, "num_labels": 3}
    config = SegformerConfig(**sizes, **strides, **more, semantic_loss_ignore_index=255)
    model = SegformerForSemanticSegmentation(config)
    transformers_steps.train(model, *loaders(*feeds(root)), given.steps)


if __name__ == "__main__":
    main()
