"""Polygons of objects in batches: drawn, they are the masks of the same objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.feeds import feed

import fastfeed as ff
from fastfeed.errors import ConfigError, SampleError, SpecError
from fastfeed.sources.annotations.shapes import Rings

N = 8
SIZE = (60, 90)
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (N, *SIZE, 3), np.uint8)
STAR = [45, 2, 58, 50, 20, 18, 70, 18, 32, 50]  # which crosses itself
CORNERS = [[30, 8, 60, 8, 60, 50, 30, 50], [5, 40, 20, 40, 20, 58, 5, 58]]  # of one object
OBJECTS = [[[STAR], CORNERS, [[70 + i, 20, 88, 22, 80, 50 - i]]] for i in range(N)]
BOTH = ("instances", "polygons")


def outlined(objects: Any = OBJECTS, draw: Any = BOTH, **more: Any) -> ff.Objects:
    labels = [list(range(len(own))) for own in objects]
    images = ff.Arrays(IMAGES[: len(objects)])
    return ff.Objects(images, labels=labels, instance_masks=objects, draw=draw, **more)


def batch_of(source: Any, ops: list[Any], **more: Any) -> ff.Batch:
    n = len(source)
    with feed(source, ops, **({"batch": n, "shuffle": "none"} | more)) as made:
        fields = made.fields
        (batch,) = made
    for name in ("polygons", "polygon_rings"):
        assert batch[name].shape == (n, *fields[name].shape)
        assert str(batch[name].dtype) == fields[name].dtype
    return batch


def rings_of(batch: ff.Batch, row: int) -> list[list[np.ndarray]]:
    """The rings of each object of an image."""
    found: list[list[np.ndarray]] = [[] for _ in range(batch["box_counts"][row])]
    for k, first, end in batch["polygon_rings"][row].tolist():
        if k >= 0:
            found[k].append(batch["polygons"][row, first:end])
    return found


def pixels_of(rings: list[np.ndarray], size: tuple[int, ...]) -> np.ndarray:
    """What `rings` cover of an image."""
    ends = np.cumsum([len(ring) for ring in rings], dtype=np.int64)
    points = np.concatenate([np.empty((0, 2), np.float32), *rings])
    return Rings(points, ends).pixels((size[0], size[1]))


def assert_drawn(batch: ff.Batch) -> int:
    """Polygons cover the pixels of their masks; returns the number of rings."""
    seen = 0
    for row in range(len(batch)):
        own = rings_of(batch, row)
        for rings, mask in zip(own, batch["instance_masks"][row], strict=False):
            assert all(len(ring) >= 3 for ring in rings)
            edge = (pixels_of(rings, mask.shape) != mask).sum()
            assert edge <= 3 + 0.01 * mask.sum()
            seen += len(rings)
        used = batch["polygon_rings"][row, :, 2].max()
        assert used == sum(len(ring) for rings in own for ring in rings)
        assert not batch["polygons"][row, used:].any()
    return seen


def test_points_and_rings_of_a_batch() -> None:
    source = outlined([*OBJECTS[:2], []], draw="polygons")
    batch = batch_of(source, [])
    assert str(source).endswith("with 6 boxes and polygons")
    assert "instance_masks" not in batch and batch["polygon_rings"].shape == (3, 4, 3)
    assert batch["polygon_rings"][0].tolist() == [[0, 0, 5], [1, 5, 9], [1, 9, 13], [2, 13, 16]]
    assert batch["polygon_rings"][2].tolist() == [[-1, 0, 0]] * 4
    points = np.concatenate([np.reshape(ring, (-1, 2)) for own in OBJECTS[1] for ring in own])
    np.testing.assert_array_equal(batch["polygons"][1, :16], points)
    assert not batch["polygons"][2].any() and not batch["polygons"][:, 16:].any()
    np.testing.assert_array_equal(
        batch["boxes"], batch_of(outlined([*OBJECTS[:2], []]), [])["boxes"]
    )


@pytest.mark.parametrize(
    "ops",
    [
        [ff.RandomFlip(), ff.RandomFlip(0.5, "vertical")],
        [ff.RandomResizedCrop(64, scale=(0.1, 0.6)), ff.RandomFlip()],
        [ff.Resize((120, 200), fit="pad"), ff.Pad(4)],
        [ff.CenterCrop((40, 50)), ff.Pad((20, 10)), ff.RandomCrop((60, 60))],
        [ff.Affine(40, (0.3, 0.3), (0.9, 1.6), 15)],
        [ff.Perspective(0.5, 1.0), ff.CenterCrop(40)],
        [ff.IoUCrop(), ff.Resize((64, 64))],
        [ff.Mosaic()],
        [ff.RandomResizedCrop(64), ff.MixUp(p=1.0)],
        [ff.RandomFlip(), ff.Mosaic(center=(0.3, 0.7)), ff.ToFloat()],
    ],
    ids=repr,
)
def test_drawn_they_are_the_masks(ops: list[Any]) -> None:
    batch = batch_of(outlined(), ops)
    assert assert_drawn(batch) > N


def test_unclipped_points_keep_their_order() -> None:
    batch = batch_of(outlined(draw=["polygons"]), [ff.RandomFlip(1.0)])
    star = np.reshape(STAR, (-1, 2))
    np.testing.assert_array_equal(rings_of(batch, 0)[0][0], [90, 0] + star * [-1, 1])


def test_a_ring_that_leaves_the_image_is_gone() -> None:
    """Also one that surrounds what is left of the image, or touches it."""
    around = [2, 2, 88, 2, 88, 58, 2, 58, 2, 4, 4, 4, 4, 56, 86, 56, 86, 4, 2, 4]
    left = [0, 10, 30, 10, 30, 30, 0, 30]  # up to the edge of the crop
    inside = [40, 20, 50, 20, 50, 30]
    whole = [[0, 0, 90, 60]] * 2
    source = ff.Objects(
        ff.Arrays(IMAGES[:1]),
        [whole],
        instance_masks=[[[around, left, inside], [left]]],
        draw="polygons",
    )
    batch = batch_of(source, [ff.Crop(10, 30, (40, 40))])
    (ring,), none = rings_of(batch, 0)
    np.testing.assert_array_equal(ring, [[10, 10], [20, 10], [20, 20]])
    assert none == [] and batch["box_counts"].tolist() == [2]


def test_what_drops_a_box_drops_its_polygons() -> None:
    """Of the objects that remain the largest are kept, in the order of the source."""
    small = [[1, 1, 4, 1, 4, 4]]
    objects = [[[small[0]], *own] for own in OBJECTS]
    for most, kept in ((None, [1, 2, 3]), (2, [1, 2])):
        batch = batch_of(outlined(objects, most=most), [ff.CenterCrop((50, 80))])
        assert batch["box_labels"][0, : len(kept)].tolist() == kept
        assert assert_drawn(batch) == N * (len(kept) + 1)


def test_clipping_that_doubles_points_loses_no_polygon() -> None:
    """Each edge of a comb whose teeth are cut at both ends has two more points."""
    teeth = [(x, 5 + 2 * k) for k in range(24) for x in (36, 60)]
    comb = np.ravel([*teeth, (62, 52), (62, 4)]).tolist()
    source = outlined([[[comb], [[42, 2, 52, 2, 52, 12]]]], min_visible=0)
    batch = batch_of(source, [ff.Crop(0, 40, (60, 15))])
    wide, triangle = rings_of(batch, 0)
    assert (len(wide), len(triangle)) == (1, 1) and len(wide[0]) > 1.8 * len(comb) / 2
    assert assert_drawn(batch) == 2


def test_the_largest_objects_keep_their_polygons_if_there_is_no_room() -> None:
    def tripled(image: Any, numbers: Any, **own: Any) -> dict[str, Any]:
        polygons = [[np.repeat(ring, 3, axis=0) for ring in rings] for rings in own["polygons"]]
        return own | {"image": image, "polygons": polygons}

    around = np.concatenate([np.linspace([0, 0], [1, 0], 10), np.linspace([1, 1], [0, 1], 10)])
    objects = [[[np.ravel(around * side).tolist()] for side in (30, 40, 20)]]
    batch = batch_of(outlined(objects, "polygons"), [ff.Function(tripled, 0, FIELDS)])
    assert batch["polygons"].shape == (1, 3 * (2 * 20 + 8), 2)
    assert [[len(ring) for ring in own] for own in rings_of(batch, 0)] == [[60], [60], []]


def test_with_keypoints_masks_and_boxes() -> None:
    corners = [[[[30, 8, 2], [60, 50, 2]]] * 3] * N
    source = outlined(draw=("polygons", "classes"), keypoints=corners, flip_pairs=[])
    batch = batch_of(source, [ff.RandomFlip(), ff.Rotate(20)])
    for row in range(N):
        ring = rings_of(batch, row)[1][0]
        points = batch["keypoints"][row, 1]
        seen = points[:, 2] > 0
        near = np.linalg.norm(ring[:, None] - points[seen, :2], axis=2).min(axis=0)
        assert (near < 1e-3).all()
        drawn = pixels_of(rings_of(batch, row)[2], SIZE) > 0
        assert (batch.masks[row][drawn] == 3).mean() > 0.8
    ids = [ff.Rotate(20), ff.RandomFlip()]
    with feed(source, ids, batch=N, to_original=True, shuffle="none") as made:
        (batch,) = made
    back = ff.to_original(batch["polygons"], batch["transform"])
    k, first, end = batch["polygon_rings"][3, 1].tolist()
    assert k == 1 and end - first == 4
    np.testing.assert_allclose(back[3, first:end], np.reshape(CORNERS[0], (-1, 2)), atol=1e-3)


def test_shares_of_the_sides_and_runs() -> None:
    shares = [
        [[(np.reshape(ring, (-1, 2)) / SIZE[::-1]).ravel() for ring in rings] for rings in own]
        for own in OBJECTS
    ]
    want = batch_of(outlined(), [ff.RandomFlip(1.0)])
    got = batch_of(outlined(shares, normalized=True), [ff.RandomFlip(1.0)])
    np.testing.assert_allclose(got["polygons"], want["polygons"], atol=1e-4)
    pixels = np.zeros(SIZE, bool)
    pixels[5:50, 10:80] = True
    mixed = outlined([[pixels, *own] for own in OBJECTS])
    batch = batch_of(mixed, [])
    assert mixed.notes == ["8 of 32 objects have runs or pixels, and so no polygons"]
    assert [len(rings) for rings in rings_of(batch, 0)] == [0, 1, 2, 1]
    assert batch["instance_masks"][0, 0].sum() == pixels.sum()
    with pytest.raises(ConfigError, match="without polygons for runs and pixels, which have none"):
        outlined([[pixels]])
    assert batch_of(outlined([[None], []]), [])["polygon_rings"].max() == 0


def test_world_sizes_and_restarts_give_the_same_polygons() -> None:
    ops = [ff.RandomResizedCrop(48, scale=(0.2, 1)), ff.Rotate(30), ff.Mosaic()]

    def batches(world: ff.World | None = None, state: Any = None) -> list[ff.Batch]:
        with feed(outlined(), ops, global_batch=4, seed=3, world=world) as made:
            if state is not None:
                made.restore(state)
            return list(made)

    def bytes_of(*parts: ff.Batch) -> list[bytes]:
        names = ("ids", "polygons", "polygon_rings")
        return [
            np.concatenate([p.ids if n == "ids" else p[n] for p in parts]).tobytes() for n in names
        ]

    alone = batches()
    ranks = [batches(ff.World(rank, 2)) for rank in range(2)]
    for whole, *parts in zip(alone, *ranks, strict=True):
        assert bytes_of(whole) == bytes_of(*parts)
    with feed(outlined(), ops, global_batch=4, seed=3) as made:
        iterator = iter(made)
        next(iterator)
        state = made.state()
    assert bytes_of(batches(state=state)[0]) == bytes_of(alone[1])


def moved(image: Any, numbers: Any, boxes: Any, box_labels: Any, polygons: Any) -> dict[str, Any]:
    rings = [[ring[::-1] + 1 for ring in own] for own in polygons]
    return {"image": image, "boxes": boxes, "box_labels": box_labels, "polygons": rings}


FIELDS = ("boxes", "box_labels", "polygons")


def test_functions_take_and_return_polygons() -> None:
    source = outlined(draw="polygons")
    want, got = batch_of(source, []), batch_of(source, [ff.Function(moved, 0, FIELDS)])
    for row in range(N):
        pairs = zip(rings_of(want, row), rings_of(got, row), strict=True)
        for before, after in pairs:
            for ring, other in zip(before, after, strict=True):
                np.testing.assert_array_equal(other, ring[::-1] + 1)
    with pytest.raises(ConfigError, match="must have polygons together with boxes"):
        ff.Function(moved, 0, FIELDS[2:])
    plain = ff.Function(lambda image, u, boxes, box_labels: None, 0, FIELDS[:2])
    with pytest.raises(SpecError, match="moves boxes, and polygons would stay as they are"):
        feed(source, [plain], batch=2)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda polygons: polygons[:1], "polygons, 3 lists of rings, returned"),
        (lambda polygons: 3, "polygons, 3 lists of rings, returned 3"),
        (lambda polygons: [[ring[:2] for ring in own] for own in polygons], "polygon 0 must have"),
        (lambda polygons: [3, 4, 5], "polygon 0 'int' object is not iterable"),
    ],
)
def test_functions_return_polygons_that_make_sense(change: Callable[[Any], Any], text: str) -> None:
    def wrong(image: Any, numbers: Any, **own: Any) -> dict[str, Any]:
        return own | {"image": image, "polygons": change(own["polygons"])}

    source = outlined(draw="polygons")
    with feed(source, [ff.Function(wrong, 0, FIELDS)], batch=4) as made:
        with pytest.raises(SampleError, match=text):
            next(iter(made))


def test_a_transform_takes_polygons() -> None:
    source, ops = outlined(draw="polygons"), [ff.RandomResizedCrop(48), ff.RandomFlip()]
    want = batch_of(source, ops)
    fields: dict[str, Any] = {"polygons": OBJECTS, "box_labels": [[0, 1, 2]] * N}
    transform = ff.Transform(ops, seed=0)
    got = transform(list(IMAGES), fields=fields, ids=want.ids)
    for name in ("image", "boxes", "box_labels", "polygons", "polygon_rings"):
        np.testing.assert_array_equal(got[name], want[name])
    for more, text in (
        ({"instance_masks": OBJECTS}, "both made of outlines, got both; pass one of them"),
        ({"polygons": [[np.eye(4) > 0] * 3] * N}, "polygons must be lists of rings, got runs"),
    ):
        with pytest.raises(ConfigError, match=text):
            transform(list(IMAGES), fields=fields | more, ids=want.ids)


def test_a_mixture_has_room_for_the_polygons_of_all_its_sources() -> None:
    many = outlined([[[STAR]] * 9] * 2, draw="polygons")
    mixture = ff.Mixture({"few": outlined(draw="polygons"), "many": many})
    assert mixture.object_spec.polygons == (9, 9 * (2 * 5 + 8))
    with feed(mixture, [], batch=10) as made:
        (batch,) = made
    assert batch["polygon_rings"].shape == (10, 9, 3)
    with pytest.raises(ConfigError, match=r"must have the same keypoints, .* polygons"):
        ff.Mixture({"few": outlined(draw="instances"), "many": many})


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"draw": "outlines"}, 'draw must be "instances", "classes", "polygons", a list of these'),
        ({"draw": []}, 'draw must be "instances", "classes", "polygons", a list of these'),
        ({"draw": ["both", "polygons"]}, 'or "both" for the first two, got'),
        (
            {"draw": "polygons", "instance_masks": None},
            "makes polygons of instance_masks; pass instance_masks=, too",
        ),
    ],
)
def test_what_draw_takes(more: dict[str, Any], text: str) -> None:
    given: dict[str, Any] = {"boxes": [[[0, 0, 9, 9]]] * N, "instance_masks": [[[STAR]]] * N}
    with pytest.raises(ConfigError, match=text):
        ff.Objects(ff.Arrays(IMAGES), **(given | more))
