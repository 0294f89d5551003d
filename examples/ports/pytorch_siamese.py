"""The data path of pytorch/examples, siamese_network/main.py: pairs of one class or of two.

https://github.com/pytorch/examples/blob/main/siamese_network/main.py
"""

import data
import numpy as np
import torch
import torch_steps

import fastfeed as ff


def feeds(root, batch=16, side=64, seed=0, world=None):
    folder = ff.ImageFolder(root / "train")
    ids = np.arange(len(folder))
    labels, alike, rng = folder.label(ids), ids % 2 == 0, np.random.default_rng(seed)
    seconds = [rng.choice(ids[(labels == labels[i]) == alike[i]]) for i in ids]
    first = ff.Files(folder.uris(ids), labels=alike.astype("float32"), label_kind="value")
    pairs = ff.Together({"first": first, "second": ff.Files(folder.uris(seconds))}, geometry="own")
    ops = [ff.RandomResizedCrop(side), ff.ToFloat(), ff.ToLayout("CHW")]
    return ff.Feed(pairs, ops, batch=batch, world=world, tail="pad")


def main():
    given = data.options()
    feed = feeds(data.temporary(data.class_folders, given.data))
    model = torch_steps.small_network(1, inputs=6)

    def loss(batch):
        first, second, alike = batch
        score = model(torch.cat([first, second], dim=1))[:, 0]
        return torch.nn.functional.binary_cross_entropy_with_logits(score, alike)

    torch_steps.train(model, feed.to_torch(yields=("first", "second", "label")), loss, given.steps)


if __name__ == "__main__":
    main()
