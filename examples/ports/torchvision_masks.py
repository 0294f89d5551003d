"""The data path of torchvision's references/detection with Mask R-CNN: polygons of COCO.

https://github.com/pytorch/vision/tree/main/references/detection
"""

import data
import torch
import torch_steps

import fastfeed as ff


def feeds(root, batch=4, side=96, world=None):
    source = ff.Objects.coco(
        root / "images", root / "instances.json", draw="instances", keep="annotated"
    )
    ops = [ff.RandomFlip(), ff.Resize((side, side), fit="pad"), ff.ToFloat(), ff.ToLayout("CHW")]
    return ff.Feed(source, ops, batch=batch, world=world)


def targets(batch):
    """Images and targets as torchvision's Mask R-CNN takes them: a list of dicts."""
    images, boxes, labels, masks, counts = batch
    counted = zip(boxes, labels, masks, counts.tolist(), strict=True)
    return list(images), [
        {"boxes": b[:n], "labels": k[:n] + 1, "masks": m[:n]} for b, k, m, n in counted
    ]


def main():
    given = data.options()
    feed = feeds(data.temporary(data.polygons, given.data))
    model = torch_steps.small_network(96 * 96)

    def loss(batch):
        images, wanted = targets(batch)
        drawn = torch.stack([target["masks"].sum(0).clamp(max=1) for target in wanted])
        found = model(torch.stack(images)).reshape(-1, 96, 96)
        return torch.nn.functional.binary_cross_entropy_with_logits(found, drawn.float())

    fields = ("image", "boxes", "box_labels", "instance_masks", "box_counts")
    torch_steps.train(model, feed.to_torch(yields=fields), loss, given.steps)


if __name__ == "__main__":
    main()
