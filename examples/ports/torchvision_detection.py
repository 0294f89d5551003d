"""The data path of torchvision's references/detection: boxes of COCO.

https://github.com/pytorch/vision/tree/main/references/detection
"""

import data
import torch
import torch_steps

import fastfeed as ff


def feeds(root, batch=4, side=96, world=None):
    # those with annotations, as there: of an image with nothing but a crowd no boxes remain
    source = ff.Objects.coco(root / "images", root / "instances.json", keep="annotated")
    ops = [ff.RandomFlip(), ff.Resize((side, side), fit="pad"), ff.ToFloat(), ff.ToLayout("CHW")]
    return ff.Feed(source, ops, batch=batch, world=world)


def targets(batch):
    """Images and targets as torchvision's detectors take them: a list of dicts."""
    images, boxes, labels, counts = batch
    counted = zip(boxes, labels, counts.tolist(), strict=True)
    return list(images), [{"boxes": b[:n], "labels": k[:n] + 1} for b, k, n in counted]


def main():
    given = data.options()
    feed = feeds(data.temporary(data.coco, given.data))
    model = torch_steps.small_network(4)
    fields = ("image", "boxes", "box_labels", "box_counts")

    def loss(batch):
        images, wanted = targets(batch)
        found = torch.tensor([len(target["boxes"]) > 0 for target in wanted])
        first = torch.stack([target["boxes"][0] for target in wanted if len(target["boxes"])])
        return torch.nn.functional.smooth_l1_loss(model(torch.stack(images))[found] * 96, first)

    torch_steps.train(model, feed.to_torch(yields=fields), loss, given.steps)


if __name__ == "__main__":
    main()
