"""The data path of a Kaggle competition: a table, stratified folds, predictions by file name.

https://github.com/felixglush/kaggle-cassava-disease-classification
"""

import data
import torch
import torch_steps

import fastfeed as ff


def feeds(root, fold=0, batch=8, side=64, world=None):
    table = {"image": "image_id", "label": "label", "label_kind": "index"}
    source = ff.Table(root / "train.csv", **table, root=root / "photos")
    train, val = ff.folds(source, 5, by="stratified")[fold]
    pixels = [ff.Normalize.imagenet(), ff.ToLayout("CHW")]
    moves = [ff.RandomResizedCrop(side), ff.RandomFlip(direction="both")]
    moves.append(ff.Maybe(ff.Affine(45, (0.0625, 0.0625), (0.9, 1.1)), 0.5))
    moves += [ff.Maybe(op, 0.5) for op in (ff.ColorJitter(0.1, 0.1), ff.CutOut(8))]
    common = {"batch": batch, "world": world, "tail": "pad"}
    held_out = ff.Feed(val, [ff.CenterCrop(side), *pixels], **common, shuffle=False)
    return ff.Feed(train, [*moves, *pixels], **common), held_out, val


def predictions(model, feed, source):
    """Class numbers by file name."""
    found = {}
    for images, ids in feed.to_torch(yields=("image", "id")):
        names = [uri.rpartition("/")[2] for uri in source.uris(ids)]
        found |= zip(names, model(images).argmax(1).tolist(), strict=True)
    return found


def main():
    given = data.options()
    train, held_out, val = feeds(data.temporary(data.table, given.data))
    model = torch_steps.small_network(3)

    def loss(batch):
        images, labels = batch
        return torch.nn.functional.cross_entropy(model(images), labels)

    torch_steps.train(model, train.to_torch(), loss, given.steps)
    print("image_id,label")
    for name, label in sorted(predictions(model, held_out, val).items()):
        print(f"{name},{label}")


if __name__ == "__main__":
    main()
