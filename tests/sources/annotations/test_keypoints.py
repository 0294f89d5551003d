"""Keypoints of a source: arrays, columns of tables, COCO's files; what is refused."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.photos import folder

import fastfeed as ff
from fastfeed.errors import ConfigError, SourceError

IMAGES = ff.Arrays(np.zeros((3, 20, 30, 3), np.uint8))
BOXES = [[[1, 2, 11, 8]], [], [[0, 0, 30, 20], [5, 5, 6, 7]]]
POINTS = [[[[3, 4, 2], [5, 6, 1]]], [], [[[7, 8, 0], [9, 1, 2]], [[1, 1, 1], [2, 2, 2]]]]
NAMES = ("left_eye", "right_eye")
ALL = np.arange(3)


def test_points_come_with_their_boxes() -> None:
    source = ff.Objects(
        IMAGES, BOXES, keypoints=POINTS, keypoint_names=NAMES, flip_pairs=[("right_eye", 0)]
    )
    found = source.objects(np.array([2, 1, 0]))
    assert found is not None and found.counts.tolist() == [2, 0, 1]
    assert found.keypoints.tolist() == [*POINTS[2], *POINTS[0]]
    spec = source.object_spec
    assert (spec.keypoints, spec.keypoint_names, spec.flip_pairs) == (2, NAMES, ((1, 0),))
    assert spec.mirrored.tolist() == [1, 0]
    assert repr(source).endswith("with 3 boxes and 2 keypoints")
    again = pickle.loads(pickle.dumps(source))
    assert again.object_spec == spec and again.fingerprint == source.fingerprint
    part = ff.take(source, [2])
    assert part.object_spec == spec and part.objects(np.array([0])).keypoints.tolist() == POINTS[2]


def test_one_object_needs_no_list_and_nan_is_not_labeled() -> None:
    places = np.array([[[1, 2], [np.nan, 4]], [[3, 4], [5, 6]], [[7, 8], [9, np.nan]]])
    source = ff.Objects(IMAGES, keypoints=places)
    found = source.objects(ALL)
    assert found is not None and found.counts.tolist() == [1] * 3 and not found.boxes.any()
    assert found.keypoints.tolist() == [
        [[1, 2, 2], [0, 0, 0]],
        [[3, 4, 2], [5, 6, 2]],
        [[7, 8, 2], [0, 0, 0]],
    ]
    assert repr(source).endswith("with 3 objects and 2 keypoints")
    unlabeled = ff.Objects(IMAGES, keypoints=[[[np.nan, np.inf, 0]]] * 3).objects(ALL)
    assert unlabeled is not None and unlabeled.keypoints.tolist() == [[[0, 0, 0]]] * 3
    empty = ff.Objects(IMAGES, keypoints=[np.empty((0, 5, 3)), [], []])
    assert empty.object_spec.keypoints == 5 and empty.most == 1


def test_points_are_columns_of_a_table(tmp_path: Path) -> None:
    folder(tmp_path, {"a": 3})
    lines = ["path,lx,ly,rx,ry,rv"]
    lines += ["a/0000.jpg,1,2,3,4,1", "a/0001.jpg,5.5,,7,8,0", "a/0002.jpg,9,10,11,12,2"]
    (tmp_path / "faces.csv").write_text("\n".join(lines))
    table = ff.Table(
        tmp_path / "faces.csv", image="path", label=None, columns=["lx", "ly", "rx", "ry", "rv"]
    )
    columns = {"left_eye": ("lx", "ly"), "right_eye": ("rx", "ry", "rv")}
    source = ff.Objects(table, keypoints=columns, flip_pairs="names")
    found = source.objects(ALL)
    assert found is not None and found.counts.tolist() == [1] * 3
    assert found.keypoints.tolist() == [
        [[1, 2, 2], [3, 4, 1]],
        [[0, 0, 0], [7, 8, 0]],
        [[9, 10, 2], [11, 12, 2]],
    ]
    assert source.object_spec.keypoint_names == NAMES
    assert source.object_spec.flip_pairs == ((0, 1),)
    with pytest.raises(ConfigError, match=r"keypoints\['nose'\] must be columns of one number per"):
        ff.Objects(table, keypoints={"nose": ("nx", "ny")})
    with pytest.raises(
        ConfigError, match="must be the columns of x and y, or x, y, visibility, got"
    ):
        ff.Objects(table, keypoints={"nose": "lx"})


def test_columns_that_are_read_with_each_sample_are_refused() -> None:
    class Read(ff.Arrays):
        def column_values(self, ids: Any) -> list[dict[str, Any]]:
            return [{} for _ in ids]

    with pytest.raises(ConfigError, match="reads with each sample; pass arrays, one per sample"):
        ff.Objects(Read(np.zeros((2, 4, 4), np.uint8)), keypoints={"nose": ("x", "y")})


def test_fingerprints_tell_points_and_rules_apart() -> None:
    def made(points: Any = POINTS, **more: Any) -> str:
        return ff.Objects(IMAGES, BOXES, keypoints=points, **more).fingerprint

    moved = [[[[3, 4, 2], [5, 7, 1]]], *POINTS[1:]]
    prints = [
        made(),
        made(moved),
        made(flip_pairs=[(0, 1)]),
        made(flip_pairs=[]),
        made(keypoint_names=NAMES),
        made(min_visible=0.2),
        ff.Objects(IMAGES, BOXES).fingerprint,
    ]
    assert len(set(prints)) == len(prints) and made() == prints[0]
    assert made(min_area=4) == made(min_area=4.0) != made(min_visible=0.1) == made()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"keypoints": POINTS[:2]}, "keypoints must be one per sample, got 2 for 3 samples"),
        ({"keypoints": [[], *POINTS[1:]]}, r"sample 0 \(array\[0\]\) has 1 boxes and 0 keypoints"),
        (
            {"keypoints": [[[[3, 4, 2]]], *POINTS[1:]]},
            r"as many keypoints, got 1 of sample 0 \(.*\) and 2 of sample 2",
        ),
        (
            {"keypoints": [[[3, 4, 5, 6]], [], []]},
            r"must be numbers of shape .* got shape \[1, 1, 4\]",
        ),
        ({"keypoints": [[1, 2, 3], [], []]}, r"got shape \[3\]"),
        ({"keypoints": [["a"], [], []]}, "keypoints of sample 0"),
        (
            {"keypoints": [[[3, 4, 3]], [], []]},
            r"box 0 of sample 0 .* visibility is not 0 \(not labeled\)",
        ),
        (
            {"keypoints": [[[np.inf, 4, 1]], [], []]},
            "has a keypoint without a place; mark it by visibility 0",
        ),
        (
            {"keypoints": POINTS, "keypoint_names": ["nose"]},
            "keypoint_names must be 2 names, one per keypoint",
        ),
        ({"keypoints": POINTS, "keypoint_names": "ab"}, "keypoint_names must be a list of names"),
        (
            {"keypoints": POINTS, "flip_pairs": [(0, 2)]},
            r"flip_pairs must be pairs of keypoints .* got \[\(0, 2\)\]; keypoints are 0 to 1",
        ),
        ({"keypoints": POINTS, "flip_pairs": [0, 1]}, "flip_pairs must be pairs"),
        ({"keypoints": POINTS, "flip_pairs": "names"}, "flip_pairs must be pairs"),
        ({"keypoints": POINTS, "flip_pairs": [(0, 1), (1, 0)]}, "must be of one pair per keypoint"),
        (
            {"keypoints": POINTS, "keypoint_names": ("nose", "chin"), "flip_pairs": "names"},
            r"""or "names", got 'names'; keypoints are nose, chin""",
        ),
        ({"flip_pairs": [(0, 1)]}, "flip_pairs are of keypoints, got them without keypoints"),
        ({"min_visible": 1.5}, r"min_visible must be a share in \[0, 1\], got 1.5"),
        ({"min_area": -1}, "min_area must be a finite number >= 0, in pixels, got -1"),
        ({"min_size": np.nan}, "min_size must be a finite number >= 0"),
        ({"boxes": None, "keypoints": [[], [], []]}, "as many keypoints, got none"),
        (
            {"boxes": None, "keypoints": POINTS, "min_area": 2},
            "min_area and min_visible are of boxes, got them without boxes",
        ),
    ],
    ids=str,
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], error: str) -> None:
    last = (arguments.get("keypoints") or BOXES)[-1]
    boxes = BOXES if len(last) else [BOXES[0], [], []]
    with pytest.raises(ConfigError, match=error):
        ff.Objects(IMAGES, **({"boxes": boxes} | arguments))


def test_a_mixture_has_the_points_of_its_sources() -> None:
    one = ff.Objects(IMAGES, BOXES, keypoints=POINTS, flip_pairs=[(0, 1)])
    mixed = ff.Mixture({"one": one, "plain": IMAGES, "two": one})
    found = mixed.objects(np.array([6, 3, 2, 0]))
    assert found is not None and mixed.object_spec == one.object_spec
    assert found.keypoints.tolist() == [*POINTS[0], *POINTS[2], *POINTS[0]]
    with pytest.raises(ConfigError, match="objects of all sources must have the same keypoints, f"):
        ff.Mixture([one, ff.Objects(IMAGES, BOXES)])


PERSON = {"id": 1, "name": "person", "keypoints": list(NAMES), "skeleton": [[1, 2]]}


def coco(
    place: Path, annotations: list[Any], categories: Any = (PERSON,), **more: Any
) -> ff.Objects:
    folder(place / "images", {"a": 2})
    images = [{"id": i, "file_name": f"a/000{i}.jpg", "height": 40, "width": 56} for i in range(2)]
    common = {"category_id": 1, "iscrowd": 0, "bbox": [1, 2, 10, 20]}
    listed = [common | {"id": k} | own for k, own in enumerate(annotations)]
    content = {"images": images, "annotations": listed, "categories": list(categories)}
    (place / "persons.json").write_text(json.dumps(content))
    return ff.Objects.coco(place / "images", place / "persons.json", keypoints=True, **more)


def test_points_of_coco_count_pixels(tmp_path: Path) -> None:
    own = [
        {"image_id": 1, "keypoints": [3, 4, 2, 0, 0, 0], "num_keypoints": 1},
        {"image_id": 0, "keypoints": [5, 6, 1, 55, 39, 2]},
        {"image_id": 1},
    ]
    dog = {"id": 7, "name": "dog"}
    source = coco(tmp_path, own, (PERSON, dog), flip_pairs="names", min_area=4)
    found = source.objects(np.arange(2))
    assert found is not None and found.counts.tolist() == [1, 2]
    assert found.keypoints.tolist() == [
        [[5.5, 6.5, 1], [55.5, 39.5, 2]],
        [[3.5, 4.5, 2], [0, 0, 0]],
        [[0, 0, 0], [0, 0, 0]],
    ]
    spec = source.object_spec
    assert (spec.keypoint_names, spec.flip_pairs, spec.min_area) == (NAMES, ((0, 1),), 4)
    with ff.Feed(
        source, [ff.RandomFlip(p=1.0), ff.Resize((40, 56))], batch=2, shuffle=False
    ) as feed:
        batch = next(iter(feed))
    # the last pixel of a row becomes its first
    assert batch["keypoints"][0, 0].tolist() == [[0.5, 39.5, 2], [50.5, 6.5, 1]]


@pytest.mark.parametrize(
    ("annotation", "categories", "error"),
    [
        ({"keypoints": [1, 2, 2]}, (PERSON,), "3 numbers of keypoints, not 6"),
        ({"keypoints": 3}, (PERSON,), "annotation .* needs a bbox"),
        ({}, ({"id": 1, "name": "person"},), "must have one list of keypoints, got none"),
        (
            {},
            (PERSON, {"id": 2, "name": "cat", "keypoints": ["tail"]}),
            "must have one list of keypoints, got 2 lists of them",
        ),
        ({}, ({"id": 1, "name": "person", "keypoints": 3},), "must have one list of keypoints"),
    ],
)
def test_points_of_coco_that_make_no_sense_are_refused(
    tmp_path: Path, annotation: Any, categories: Any, error: str
) -> None:
    with pytest.raises(SourceError, match=error):
        coco(tmp_path, [{"image_id": 0} | annotation], categories)


def test_a_visibility_of_coco_is_one_of_three(tmp_path: Path) -> None:
    strange = {"image_id": 0, "keypoints": [1, 2, 5, 1, 2, 2]}
    with pytest.raises(ConfigError, match=r"annotation 0 of sample 0 .* visibility is not 0"):
        coco(tmp_path, [strange])
