"""The data path of torchvision's references/detection with --dataset coco_kp: keypoints of persons.

https://github.com/pytorch/vision/tree/main/references/detection
"""

import data
import torch
import torch_steps

import fastfeed as ff


def feeds(root, batch=4, side=96, world=None):
    source = ff.Objects.coco(
        root / "images", root / "persons.json", keypoints=True, flip_pairs="names", keep="annotated"
    )
    ops = [ff.RandomFlip(), ff.Resize((side, side), fit="pad"), ff.ToFloat(), ff.ToLayout("CHW")]
    return ff.Feed(source, ops, batch=batch, world=world)


def targets(batch):
    """Images and targets as torchvision's Keypoint R-CNN takes them; all are persons, class 1."""
    images, boxes, keypoints, counts = batch
    points = torch.cat([keypoints[..., :2] - 0.5, keypoints[..., 2:]], -1)  # it counts pixels
    points[keypoints[..., 2] == 0] = 0
    counted = zip(boxes, points, counts.tolist(), strict=True)
    return list(images), [
        {"boxes": b[:n], "labels": torch.ones(n, dtype=torch.int64), "keypoints": p[:n]}
        for b, p, n in counted
    ]


def main():
    given = data.options()
    feed = feeds(data.temporary(data.persons, given.data))
    model = torch_steps.small_network(34)

    def loss(batch):
        images, wanted = targets(batch)
        points = torch.stack([target["keypoints"][0] for target in wanted])
        found = model(torch.stack(images)).reshape(-1, 17, 2) * 96
        return torch.nn.functional.smooth_l1_loss(
            found[points[..., 2] > 0], points[points[..., 2] > 0][:, :2]
        )

    fields = ("image", "boxes", "keypoints", "box_counts")
    torch_steps.train(model, feed.to_torch(yields=fields), loss, given.steps)


if __name__ == "__main__":
    main()
