"""COCO's evaluation of boxes and keypoints that a model predicts in the feed's images.

`ff.to_original` takes predictions back to the photographs. The model here knows the truth, so its
average precision is 1; put yours into `predict`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

import fastfeed as ff

NAMES = [f"{side}_{part}" for part in ("eye", "hand", "foot") for side in ("left", "right")]


def make(folder: Path, count: int = 20) -> None:
    """Images of several sizes, each with one or two persons, in COCO's form."""
    rng = np.random.default_rng(0)
    images, annotations = [], []
    for i in range(count):
        height, width = (int(side) for side in rng.integers(80, 160, 2))
        Image.new("RGB", (width, height), (i, 2 * i, 90)).save(folder / f"{i}.jpg")
        images.append({"id": 100 + i, "file_name": f"{i}.jpg", "height": height, "width": width})
        for _ in range(1 + i % 2):
            x, y = (int(at) for at in rng.integers(0, 30, 2))
            w, h = (int(side) for side in rng.integers(35, 50, 2))
            places = rng.integers((x, y), (x + w, y + h), (len(NAMES), 2))
            points = np.concatenate([places, np.full((len(NAMES), 1), 2)], axis=1)
            ids = {"id": 1 + len(annotations), "image_id": 100 + i, "category_id": 1}
            shape = {"bbox": [x, y, w, h], "area": w * h, "iscrowd": 0}
            labeled = {"keypoints": points.ravel().tolist(), "num_keypoints": len(NAMES)}
            annotations.append(ids | shape | labeled)
    person = {"id": 1, "name": "person", "keypoints": NAMES, "skeleton": []}
    content = {"images": images, "annotations": annotations, "categories": [person]}
    (folder / "persons.json").write_text(json.dumps(content))


def predict(batch: ff.Batch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Boxes (n, k, 4), keypoints (n, k, points, 3) and scores (n, k); 0 where there is nothing."""
    scores = (batch["box_labels"] >= 0).astype(float)
    return batch["boxes"], batch["keypoints"], scores


def results(feed: ff.Feed, images: list[int]) -> list[dict]:
    """What `COCO.loadRes` takes: predictions in pixels of the photographs."""
    found = []
    for batch in feed:
        boxes, points, scores = predict(batch)
        boxes = ff.to_original(boxes, batch["transform"])
        points = ff.to_original(points, batch["transform"])
        points[..., :2] -= 0.5  # COCO counts pixels; a box is a distance from the corner
        for row in np.flatnonzero(batch.weights):
            for k in np.flatnonzero(scores[row] > 0):
                left, top, right, bottom = boxes[row, k]
                found.append(
                    {
                        "image_id": images[batch.ids[row]],
                        "category_id": 1,
                        "bbox": [left, top, right - left, bottom - top],
                        "keypoints": points[row, k].ravel().tolist(),
                        "score": scores[row, k],
                    }
                )
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=Path, help="a folder; by default images are made")
    parser.add_argument("--annotations", type=Path)
    options = parser.parse_args()
    folder, file = options.images, options.annotations
    if folder is None:
        folder = Path(tempfile.mkdtemp())
        file = folder / "persons.json"
        make(folder)
    source = ff.Objects.coco(folder, file, keypoints=True)
    ops = [ff.Resize((64, 64), fit="pad"), ff.ToFloat()]
    truth = COCO(file)
    images = [image["id"] for image in truth.dataset["images"]]
    with ff.Feed(source, ops, batch=8, tail="pad", shuffle=False, to_original=True) as feed:
        found = truth.loadRes(results(feed, images))
    for kind in ("bbox", "keypoints"):
        evaluation = COCOeval(truth, found, kind)
        if folder != options.images:  # COCO has widths for the 17 points of its persons alone
            evaluation.params.kpt_oks_sigmas = np.full(len(NAMES), 0.05)
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
        print(f"{kind} AP {evaluation.stats[0]:.3f}")


if __name__ == "__main__":
    main()
