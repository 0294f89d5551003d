"""The data path of diffusers' train_unconditional.py: images alone.

https://github.com/huggingface/diffusers/tree/main/examples/unconditional_image_generation
"""

import data
import torch
import torch_steps

import fastfeed as ff


def feeds(root, side=64, batch=8, world=None):
    values = [ff.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)), ff.ToLayout("CHW")]
    crops = [ff.Resize(side), ff.RandomCrop(side), ff.RandomFlip(), *values]
    source = ff.ImageFolder(root, labeled=False)
    return ff.Feed(source, crops, batch=batch, world=world, tail="pad")


def main():
    given = data.options()
    feed = feeds(data.temporary(data.captioned, given.data))
    model = torch.nn.Conv2d(3, 3, 3, padding=1)

    def loss(batch):
        clean = batch["input"]
        noise = torch.randn_like(clean)
        return (model(clean + noise) - noise).square().mean()

    torch_steps.train(model, feed.to_torch(yields={"input": "image"}), loss, given.steps)


if __name__ == "__main__":
    main()
