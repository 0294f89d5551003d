"""The data path of diffusers' train_text_to_image_sdxl.py, in buckets of aspect ratios.

https://github.com/huggingface/diffusers/tree/main/examples/text_to_image
"""

import data
import torch
import torch_steps

import fastfeed as ff

SIZES = [(64, 64), (56, 72), (52, 80)]  # of SDXL: (1024, 1024), (896, 1152), (832, 1216), ...


def feeds(root, tokenize=data.tokens, sizes=SIZES, batch=4, world=None):
    source = ff.Table(root / "metadata.jsonl", image="file_name", columns=["text"])
    order = ff.Buckets.by_aspect(sizes, batch, leftovers="fill")
    size = ff.BucketSize()
    values = [ff.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)), ff.ToLayout("CHW")]
    crops = [ff.Resize(size, fit="cover"), ff.RandomCrop(size), *values]
    ops = [*crops, ff.Map(tokenize, "text", out="input_ids")]
    return ff.Feed(source, ops, global_batch=batch, world=world, shuffle=order, to_original=True)


def time_ids(batch):
    """Size of the photograph, corner of the crop, size of the batch: height or top first."""
    corner = -batch["transform"][:, [1, 0], 2].round()
    size = torch.tensor(batch["pixel_values"].shape[2:], device=corner.device)
    return torch.cat([batch["original_size"], corner.long(), size.expand(len(corner), 2)], dim=1)


def main():
    given = data.options()
    feed = feeds(data.temporary(data.captioned, given.data))
    model = torch_steps.small_network(32)
    words = torch.nn.EmbeddingBag(1000, 32, padding_idx=0)
    sizes = torch.nn.Linear(6, 32)

    def loss(batch):
        wanted = words(batch["input_ids"]) + sizes(time_ids(batch).float() / 100)
        return (model(batch["pixel_values"]) - wanted).square().mean()

    names = ("input_ids", "transform", "original_size")
    fields = {"pixel_values": "image"} | {name: name for name in names}
    torch_steps.train(model, feed.to_torch(yields=fields), loss, given.steps)


if __name__ == "__main__":
    main()
