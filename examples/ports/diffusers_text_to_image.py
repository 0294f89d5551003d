"""The data path of diffusers' train_text_to_image.py: images with tokens of their captions.

https://github.com/huggingface/diffusers/tree/main/examples/text_to_image
"""

import data
import torch
import torch_steps

import fastfeed as ff


def feeds(root, tokenize=data.tokens, side=64, batch=8, world=None):
    table = root / "metadata.jsonl"
    source = ff.Table(table, image="file_name", columns=["text"])
    values = [ff.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)), ff.ToLayout("CHW")]
    crops = [ff.Resize(side, filter="lanczos"), ff.CenterCrop(side), ff.RandomFlip(), *values]
    ops = [*crops, ff.Map(tokenize, "text", out="input_ids")]
    return ff.Feed(source, ops, batch=batch, world=world, tail="pad")


def main():
    given = data.options()
    feed = feeds(data.temporary(data.captioned, given.data))
    model = torch_steps.small_network(32)
    words = torch.nn.EmbeddingBag(1000, 32, padding_idx=0)

    def loss(batch):
        return (model(batch["pixel_values"]) - words(batch["input_ids"])).square().mean()

    fields = {"pixel_values": "image", "input_ids": "input_ids"}
    torch_steps.train(model, feed.to_torch(yields=fields), loss, given.steps)


if __name__ == "__main__":
    main()
