"""The data path of open_clip's training on WebDataset shards: images and tokens of captions.

https://github.com/mlfoundations/open_clip/blob/main/src/open_clip_train/data.py
"""

import data
import torch
import torch_steps

import fastfeed as ff

MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


def feeds(root, tokenize=data.tokens, side=64, batch=8, world=None):
    source = ff.TarShards(str(root / "*.tar"), label=None, columns=["txt"])
    ops = [ff.RandomResizedCrop(side, scale=(0.9, 1.0), filter="bicubic")]
    ops += [ff.Normalize(MEAN, STD), ff.ToLayout("CHW"), ff.Map(tokenize, "txt", out="tokens")]
    return ff.Feed(source, ops, batch=batch, world=world, shuffle=ff.Blocks())


def main():
    given = data.options()
    feed = feeds(data.temporary(data.tars, given.data))
    model = torch_steps.small_network(32)
    words = torch.nn.EmbeddingBag(1000, 32, padding_idx=0)

    def loss(batch):
        images, tokens = batch
        similar = model(images) @ words(tokens).T
        return torch.nn.functional.cross_entropy(similar, torch.arange(len(tokens)))

    torch_steps.train(model, feed.to_torch(yields=("image", "tokens")), loss, given.steps)


if __name__ == "__main__":
    main()
