"""COCO's annotation files."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.photos import folder
from helpers.remotes import put, uploaded

from fastfeed.errors import ConfigError, SourceError
from fastfeed.faults import Failure
from fastfeed.sources import Arrays, ImageFolder, Objects
from fastfeed.sources.annotations.coco import _bare

NAMES = ["b/0000.jpg", "a/0001.jpg", "a/0000.jpg"]  # not sorted, as in COCO
POLYGONS = [[1.5, 2, 3e1, 4, -5, 6], [7, 8]]


def annotated(**more: Any) -> dict[str, Any]:
    def box(id: int, image: int, category: int, *numbers: float, crowd: int = 0) -> dict[str, Any]:
        counts = {"counts": [1, 2, 3], "size": [40, 56]} if crowd else POLYGONS
        ids = {"id": id, "image_id": image, "category_id": category}
        return {"segmentation": counts, "area": 9.5, "iscrowd": crowd, **ids, "bbox": numbers}

    return {
        "info": {"description": 'the "segmentation": [1, 2] of all'},
        "images": [
            {"id": 70 + i, "file_name": name, "height": 40, "width": 56}
            for i, name in enumerate(NAMES)
        ],
        "annotations": [
            box(1, 72, 18, 1, 2, 10, 20),
            box(2, 70, 3, 0, 0, 5.25, 7.5),
            box(3, 72, 90, 4, 4, 4, 4),
            box(4, 70, 3, 0, 0, 50, 30, crowd=1),
        ],
        "categories": [
            {"id": 90, "name": "toothbrush"},
            {"id": 3, "name": "car"},
            {"id": 18, "name": "dog"},
        ],
    } | more


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder(tmp_path / "images", {"a": 2, "b": 1})
    write(tmp_path, annotated())
    return tmp_path


def write(place: Path, found: Any) -> None:
    (place / "instances.json").write_text(found if isinstance(found, str) else json.dumps(found))


def loaded(place: Any, images: Any = None, **more: Any) -> Objects:
    return Objects.coco(
        f"{place}/images" if images is None else images, f"{place}/instances.json", **more
    )


def test_images_boxes_and_names(place: Path):
    source = loaded(place)
    assert source.object_classes == ("car", "dog", "toothbrush") and source.classes == ()
    assert [source.uri(i) for i in range(3)] == [f"{place}/images/{name}" for name in NAMES]
    assert source.read([2, 0]) == [(place / "images" / NAMES[i]).read_bytes() for i in (2, 0)]
    assert source.label(np.arange(3)).tolist() == [-1] * 3
    found = source.objects(np.arange(3))
    assert found is not None and found.counts.tolist() == [
        1,
        0,
        2,
    ]  # no crowds; images without boxes stay
    assert found.boxes.tolist() == [[0, 0, 5.25, 7.5], [1, 2, 11, 22], [4, 4, 8, 8]]
    assert found.labels.tolist() == [0, 1, 2] and source.most == 2
    again = pickle.loads(pickle.dumps(source))
    assert again.fingerprint == source.fingerprint and again.read([1]) == source.read([1])
    assert loaded(place, most=9).most == 9
    assert repr(source) == f"{place}/images: 3 images with 3 boxes of 3 classes"


@pytest.mark.parametrize("listed", [True, False])
def test_images_that_are_kept(place: Path, listed: bool):
    """The first has a box and a crowd, the second nothing, the third a crowd alone."""
    boxes = annotated()["annotations"]
    boxes = [boxes[1], boxes[3], boxes[3] | {"id": 9, "image_id": 72}]
    write(place, annotated(annotations=boxes))
    images = None if listed else ImageFolder(place / "images", labeled=False)
    left = {"all": [], "annotated": NAMES[1:2], "boxes": NAMES[1:]}
    for keep, lost in left.items():
        source = loaded(place, images, keep=keep)
        names = sorted(set(NAMES) - set(lost))
        ids = np.arange(len(source))
        assert sorted(uri[-10:] for uri in source.uris(ids)) == names
        found = source.objects(ids)
        assert found is not None and found.boxes.tolist() == [[0, 0, 5.25, 7.5]]
        assert source.uri(int(np.flatnonzero(found.counts)[0])).endswith(NAMES[0])
        assert source.read(ids.tolist()) == [Path(uri).read_bytes() for uri in source.uris(ids)]
        notes = [note.rpartition("json: ")[2] for note in source.notes if "images, which" in note]
        without = "annotation" if keep == "annotated" else "box, but of crowds"
        assert notes == [
            f"left out {len(lost)} of its 3 images, which have no {without}, such as {NAMES[1]}"
            for _ in lost[:1]
        ]
    assert loaded(place, images, keep="boxes").fingerprint != loaded(place, images).fingerprint
    write(place, annotated(annotations=boxes[2:]))
    with pytest.raises(SourceError, match=r'keep="boxes" leaves none of the 3 images of .*"all"'):
        loaded(place, images, keep="boxes")
    with pytest.raises(ConfigError, match='keep must be "all", "annotated" or "boxes", got 1'):
        loaded(place, images, keep=1)


def test_remote_images_and_annotations(place: Path):
    there = uploaded(place)
    source = loaded(there)
    assert source.remote and source.uri(1) == f"{there}/images/{NAMES[1]}"
    assert (
        source.read([1, 2])
        == [one.result() for one in source.fetch([1, 2])]
        == loaded(place).read([1, 2])
    )
    put(source.uri(1), None)
    (failure,) = source.read([1])
    assert isinstance(failure, Failure) and (failure.id, failure.reason) == (1, "not_found")
    assert source.fingerprint == loaded(place).fingerprint
    with pytest.raises(SourceError, match=r"cannot read memory://.*none\.json: not_found"):
        Objects.coco(there, f"{there}/none.json")


def test_a_missing_file_is_a_bad_sample(place: Path):
    (place / "images" / NAMES[0]).unlink()
    (failure,) = loaded(place).read([0])
    assert isinstance(failure, Failure) and (failure.reason, failure.uri) == (
        "not_found",
        f"{place}/images/{NAMES[0]}",
    )


def test_a_folder_source_keeps_its_own_order_and_labels(place: Path):
    images = ImageFolder(place / "images", min_per_class=1)
    source = loaded(place, images)
    assert [source.uri(i)[-10:] for i in range(3)] == ["a/0000.jpg", "a/0001.jpg", "b/0000.jpg"]
    found = source.objects(np.arange(3))
    assert (
        found is not None
        and found.counts.tolist() == [2, 0, 1]
        and found.labels.tolist() == [1, 2, 0]
    )
    assert source.classes == ("a", "b") and source.label(np.arange(3)).tolist() == [0, 0, 1]


def test_a_folder_source_must_hold_the_same_files(place: Path):
    images = ImageFolder(place / "images", labeled=False)
    write(place, annotated(images=annotated()["images"] + [{"id": 5, "file_name": "c.jpg"}]))
    with pytest.raises(
        SourceError, match=r"1 of its images are not in the source, such as c\.jpg; pass the folder"
    ):
        loaded(place, images)
    write(place, annotated(images=annotated()["images"][1:], annotations=[]))
    with pytest.raises(SourceError, match=r"1 of 3 samples are not in it, such as .*b/0000\.jpg"):
        loaded(place, images)
    with pytest.raises(
        ConfigError, match="images must be a folder, an ImageFolder or a Table of paths, got Arrays"
    ):
        loaded(place, Arrays(np.zeros((3, 2, 2), np.uint8)))
    with pytest.raises(SourceError, match="nowhere is not a folder"):
        loaded(place, place / "nowhere")


@pytest.mark.parametrize(
    ("found", "error"),
    [
        ("{", "is not JSON: "),
        ("[1]", "has no list 'images' and 'annotations' and 'categories'"),
        (annotated(categories=[]), "has no list 'categories'; pass a file of instances"),
        (
            annotated(images=[{"id": 1}]),
            "every image needs an id and a file_name.* KeyError 'file_name'",
        ),
        (annotated(images=annotated()["images"] * 2), "has two images of one id"),
        (annotated(categories=annotated()["categories"] * 2), "has two categories of one id"),
        (
            annotated(annotations=[{"id": 8, "caption": "a dog"}]),
            r"annotation {'id': 8} needs a bbox .* KeyError 'bbox'",
        ),
        (
            annotated(
                annotations=[{"id": 8, "image_id": 1, "category_id": 3, "bbox": [1, 2, 3, 4]}]
            ),
            "KeyError 1",
        ),
        (
            annotated(
                annotations=[{"id": 8, "image_id": 70, "category_id": 1, "bbox": [1, 2, 3, 4]}]
            ),
            "KeyError 1",
        ),
        (
            annotated(annotations=[{"id": 8, "image_id": 70, "category_id": 3, "bbox": [1, 2]}]),
            "ValueError not enough",
        ),
        (annotated(annotations=[7]), "annotation 7 needs a bbox"),
    ],
)
def test_files_that_are_not_as_coco_has_them(place: Path, found: Any, error: str):
    write(place, found)
    with pytest.raises(SourceError, match=error):
        loaded(place)


def test_a_bad_box_is_named_by_its_annotation(place: Path):
    bad = {"id": 77, "image_id": 72, "category_id": 3, "bbox": [1, 2, -3, 4]}
    write(place, annotated(annotations=[*annotated()["annotations"], bad]))
    with pytest.raises(
        ConfigError,
        match=r"annotation 77 of sample 2 \(.*a/0000.jpg\) got \[1.0, 2.0, -3.0, 4.0\] as",
    ):
        loaded(place)


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ('{"segmentation":[[1,2]],"x":2}', '{"segmentation":0,"x":2}'),
        ('{"x": [1], "segmentation" : [[1.5, -2e-3],[3]]}', '{"x": [1], "segmentation" : 0}'),
        (
            '[{"segmentation":[]},{"segmentation":[[1]],"b":[1,2]}]',
            '[{"segmentation":0},{"segmentation":0,"b":[1,2]}]',
        ),
        ('{"segmentation":{"counts":[1,2],"size":[3,4]},"y":1}', None),
        ('{"segmentation":"[[1]]","y":[1]}', None),
        ('{"segmentation":[[1,"x"],[2]],"y":[1]}', None),
        ('{"segmentation":[{"a":1}],"y":[1]}', None),
        ('{"k":"segmentation","v":[[1]]}', None),
        ('["segmentation", [1, 2]]', None),
        (r'{"q":"\"segmentation\":[1]","z":[1]}', None),
        ('["segmentation"]', None),
        ('{"segmentation":null,"b":[2]}', None),
        ("{}", None),
    ],
)
def test_polygons_are_skipped_and_nothing_else(text: str, bare: str | None):
    assert _bare(text.encode()).decode() == (text if bare is None else bare)


def test_boxes_outside_of_their_images_are_refused_where_sizes_are_said(place: Path):
    found = annotated()
    found["annotations"][1]["bbox"] = [60, 0, 5, 5]
    write(place, found)
    for images in (None, ImageFolder(place / "images", min_per_class=1)):
        with pytest.raises(
            ConfigError,
            match=r"annotation 2 of sample . .*is outside of its image, 56 wide and 40 high",
        ):
            loaded(place, images)
    for image in found["images"]:
        del image["width"]
    write(place, found)
    assert len(loaded(place)) == 3


def drawn(place: Path, *outlines: Any, **more: Any) -> Objects:
    """A file of one annotation per outline, all of image 72, the last a crowd."""
    boxes = annotated()["annotations"]
    boxes[1]["segmentation"] = [[0, 0, 5, 0, 5, 7]]
    listed = [boxes[0] | {"id": 11 + k, "segmentation": own} for k, own in enumerate(outlines)]
    listed[-1] |= {"iscrowd": 1}
    write(place, annotated(annotations=[boxes[1], *listed]))
    return loaded(place, **more)


def test_segmentations_are_read_on_request(place: Path):
    """Polygons of several rings, and runs; without crowds."""
    square, bar = [2, 3, 12, 3, 12, 13, 2, 13], [20.5, 10, 30.5, 10, 30.5, 12, 20.5, 12]
    counts = [40 * 5 + 8, 4, 36, 4, 40 * 50 - 12]
    runs = {"size": [40, 56], "counts": counts}
    source = drawn(place, [square, bar], runs, [square], draw="instances")
    found = source.objects(np.array([2, 0]))
    assert found is not None and found.shapes is not None and found.counts.tolist() == [2, 1]
    masks = [shape.pixels((40, 56)) for shape in found.shapes]
    want = np.zeros((2, 40, 56), np.uint8)
    want[0, 3:13, 2:12] = want[0, 10:12, 20:30] = 1
    want[1, 8:12, 5:7] = 1
    np.testing.assert_array_equal(masks[:2], want)
    assert source.object_spec.instance_masks and source.masks([0]) is None
    plain = loaded(place)
    assert not plain.object_spec.instance_masks and plain.fingerprint != source.fingerprint
    again = pickle.loads(pickle.dumps(source))
    assert again.fingerprint == source.fingerprint
    moved = drawn(place, [square, [x + 1 for x in bar]], runs, [square], draw="instances")
    assert moved.fingerprint != source.fingerprint
    points = drawn(place, [square, bar], runs, [square], draw=["polygons"])
    assert points.object_spec.polygons == (2, 2 * 8 + 2 * 8)  # twice the points, and 8 per ring
    assert not points.object_spec.instance_masks and points.fingerprint != source.fingerprint
    assert points.notes[-1] == "1 of 3 objects have runs or pixels, and so no polygons"
    kept = loaded(place, draw="instances", keep="boxes").objects(np.array([1]))
    assert kept is not None and kept.shapes is not None and len(kept.shapes) == 2


@pytest.mark.parametrize("keep", ["all", "boxes"])
def test_one_map_of_classes_where_crowds_are_not_known(place: Path, keep: Any):
    square, bar = [2, 3, 12, 3, 12, 13, 2, 13], [8, 10, 30, 10, 30, 14, 8, 14]
    crowd = {"size": [40, 56], "counts": [40 * 40, 40 * 2, 40 * 14]}
    source = drawn(place, [square], crowd, draw="classes", keep=keep)
    want = np.zeros((40, 56), np.uint8)
    want[3:13, 2:12] = 2  # a dog
    want[:, 40:42] = 255
    last = 2 if keep == "all" else 1
    (mask,) = source.masks([last]) or ()
    assert mask.shape == (40, 56)
    np.testing.assert_array_equal(np.asarray(mask), want)
    found = source.objects(np.array([last]))
    assert found is not None and found.shapes is None and found.counts.tolist() == [1]
    both = drawn(place, [square], [bar], crowd, draw="both", keep=keep)
    found = both.objects(np.array([last]))
    assert found is not None and found.shapes is not None
    want[10:14, 8:30] = 2  # of the same class
    np.testing.assert_array_equal(np.asarray((both.masks([last]) or ())[0]), want)
    assert both.fingerprint != source.fingerprint


def test_segmentations_that_make_no_sense_name_their_annotation(place: Path):
    fine = [[2, 3, 12, 3, 12, 13]]
    for wrong, message in (
        ([[1, 2, 3, 4]], "segmentation of annotation 12 must have rings"),
        ([[1, 2, 3, 4, 5, "x"]], "segmentation of annotation 12 .* not of numbers"),
        ("polygon", "segmentation of annotation 12 must be a list of rings"),
        ({"size": [40, 56], "counts": [1]}, "segmentation of annotation 12 must have runs"),
    ):
        with pytest.raises(SourceError, match=message):
            drawn(place, fine, wrong, fine, draw="instances")
        with pytest.raises(SourceError, match=message.replace("12", "13")):
            drawn(place, fine, fine, wrong, draw="classes")
    smaller = {"size": [4, 5], "counts": [20]}
    with pytest.raises(
        ConfigError, match=r"annotation 11 .* a mask of another size than its image"
    ):
        drawn(place, smaller, fine, draw="instances")
    with pytest.raises(SourceError, match="annotation 12 has another size than its image"):
        drawn(place, fine, smaller, draw="classes")
    with pytest.raises(ConfigError, match='draw must be "instances", "classes", "polygons",'):
        drawn(place, fine, fine, draw=True)
    boxes = [
        {name: box[name] for name in box if name != "segmentation"}
        for box in annotated()["annotations"]
    ]
    write(place, annotated(annotations=boxes))
    with pytest.raises(SourceError, match=r"annotation .* needs .*: KeyError 'segmentation'"):
        loaded(place, draw="instances")
    images = [
        {name: image[name] for name in ("id", "file_name")} for image in annotated()["images"]
    ]
    write(place, annotated(images=images, annotations=annotated()["annotations"][:1]))
    assert (loaded(place, draw=None).masks([0])) is None
    write(
        place,
        annotated(
            images=images, annotations=[annotated()["annotations"][0] | {"segmentation": fine}]
        ),
    )
    with pytest.raises(ConfigError, match='draw="classes" needs the size of each image'):
        loaded(place, draw="classes")
