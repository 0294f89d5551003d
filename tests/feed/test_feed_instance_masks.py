"""Masks of objects follow the pixels, end to end: where an object is bright, its mask is 1."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from helpers.feeds import feed
from PIL import Image

import fastfeed as ff
from fastfeed.errors import ConfigError, SpecError
from fastfeed.sources.annotations.shapes import parse_shape
from fastfeed.sources.base import Instances
from fastfeed.spec import ObjectSpec

N = 8
SIZE = (60, 90)
LEVELS = (200, 120)  # of the first and the second object, over black


def outlines(n: int = N, top: int = 42) -> list[list[Any]]:
    """A triangle and a bar of each image, the bar as runs."""
    rng = np.random.default_rng(0)
    found: list[list[Any]] = []
    for _ in range(n):
        x, y = rng.integers(20, 40), rng.integers(2, 12)
        bar = np.zeros(SIZE, np.uint8)
        bar[top : top + 15, x : x + 45] = 1
        triangle = [x - 18.5, y + 30.0, x + 2.0, y, x + 30.25, y + 26.5]
        found.append([[triangle], bar])
    return found


def pictures(objects: list[list[Any]]) -> np.ndarray:
    """Gray images of the objects: uint8 (n, 60, 90, 3)."""
    images = np.zeros((len(objects), *SIZE, 3), np.uint8)
    for image, own in zip(images, objects, strict=True):
        for outline, level in zip(own, LEVELS, strict=True):
            image[parse_shape(outline).pixels(SIZE) > 0] = level
    return images


def outlined(n: int = N, **more: Any) -> ff.Objects:
    objects = outlines(n)
    return ff.Objects(
        ff.Arrays(pictures(objects)), labels=[[0, 1]] * n, instance_masks=objects, **more
    )


def batch_of(source: Any, ops: list[Any], n: int = N) -> ff.Batch:
    with feed(source, ops, batch=n, shuffle="none") as made:
        field = made.fields.get("instance_masks")
        (batch,) = made
    if field is not None:
        assert batch["instance_masks"].shape == (n, *field.shape)
        assert batch["instance_masks"].dtype == np.dtype(field.dtype) == np.uint8
    return batch


def assert_on_pixels(batch: ff.Batch, share: float = 0.93) -> None:
    """Masks are bright where their object is, and dark elsewhere, but for pixels at edges."""
    assert batch.objects is not None
    seen = 0
    for row, image in enumerate(batch.images[..., 0].astype(int)):
        for k in range(batch.objects.counts[row]):
            level = LEVELS[batch.objects.labels[row, k]]
            want = np.abs(image - level) < 30
            got = batch["instance_masks"][row, k] == 1
            assert (want & got).sum() >= share * max(want.sum(), got.sum()) - 4
            seen += got.sum()
        assert not batch["instance_masks"][row, batch.objects.counts[row] :].any()
    assert seen > 0


@pytest.mark.parametrize(
    "ops",
    [
        [],
        [ff.RandomFlip(), ff.RandomFlip(0.5, "vertical")],
        [ff.RandomResizedCrop(96, scale=(0.5, 1), filter="nearest"), ff.RandomFlip()],
        [ff.Resize((120, 200), fit="pad", filter="nearest"), ff.Pad(4)],
        [ff.CenterCrop((50, 70)), ff.Pad((20, 10)), ff.RandomCrop((60, 80))],
        [ff.Rotate((180, 180)), ff.ColorJitter(0.02)],
        [ff.Affine(20, (0.1, 0.1), (0.9, 1.2), 5)],
        [ff.Perspective(0.3, 1.0)],
    ],
    ids=repr,
)
def test_masks_are_where_the_pixels_are(ops: list[Any]) -> None:
    assert_on_pixels(batch_of(outlined(), ops), 0.8)


@pytest.mark.parametrize("op", [ff.Mosaic(), ff.Mosaic(center=(0.3, 0.7))], ids=repr)
def test_a_mosaic_shows_parts_of_the_masks_of_all_its_images(op: ff.Mosaic) -> None:
    batch = batch_of(outlined(min_visible=0), [op])
    assert batch["instance_masks"].shape[1] == 8 and batch["box_counts"].max() > 2
    for row, image in enumerate(batch.images[..., 0]):
        for label, level in enumerate(LEVELS):
            masks = batch["instance_masks"][row, batch["box_labels"][row] == label]
            edge = (image == level).sum() - masks.any(axis=0).sum()
            assert ((image == level) | ~masks.any(axis=0)).all() and 0 <= edge <= 60


def test_mixup_keeps_the_masks_of_both_images() -> None:
    alone = batch_of(outlined(), [])["instance_masks"]
    mixed = batch_of(outlined(), [ff.MixUp(p=1.0)])
    assert mixed["box_counts"].tolist() == [4] * N
    np.testing.assert_array_equal(mixed["instance_masks"][:, :2], alone[mixed.ids])
    partners = mixed.ids.reshape(-1, 2)[:, ::-1].ravel()  # both of a pair are mixed
    np.testing.assert_array_equal(mixed["instance_masks"][:, 2:], alone[partners])


def test_what_drops_a_box_drops_its_mask() -> None:
    """Of the objects that remain the largest are kept, in the order of the source."""
    corner = [[0, 0, 3, 0, 3, 3, 0, 3]]
    objects = [[corner, *own] for own in outlines(4)]
    images = ff.Arrays(pictures(outlines(4)))
    masks = batch_of(ff.Objects(images, instance_masks=outlines(4)), [ff.CenterCrop(52)], 4)
    for most, kept in ((None, [1, 2]), (1, [1])):
        source = ff.Objects(images, labels=[[7, 0, 1]] * 4, instance_masks=objects, most=most)
        batch = batch_of(source, [ff.CenterCrop(52)], 4)
        assert batch["box_labels"][:, : len(kept)].tolist() == [[k - 1 for k in kept]] * 4
        for place, k in enumerate(kept):
            np.testing.assert_array_equal(
                batch["instance_masks"][:, place], masks["instance_masks"][:, k - 1]
            )


def test_boxes_are_around_masks_unless_they_are_given() -> None:
    source = outlined()
    batch = batch_of(source, [])
    rows, columns = np.nonzero(batch["instance_masks"][0, 0])
    want = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    np.testing.assert_allclose(batch["boxes"][0, 0], want, atol=1)
    whole = [[[0, 0, 90, 60]] * 2] * N
    given = batch_of(ff.Objects(source.source, whole, instance_masks=outlines()), [])
    np.testing.assert_array_equal(given["boxes"], whole)
    np.testing.assert_array_equal(given["instance_masks"], batch["instance_masks"])


def test_rings_in_shares_of_the_sides() -> None:
    source = outlined()
    shares = [
        [[(np.array(ring).reshape(-1, 2) / SIZE[::-1]).ravel() for ring in own[0]], own[1]]
        for own in outlines()
    ]
    shared = ff.Objects(source.source, instance_masks=shares, normalized=True)
    want, got = batch_of(source, [ff.RandomFlip(1.0)]), batch_of(shared, [ff.RandomFlip(1.0)])
    assert (want["instance_masks"] != got["instance_masks"]).sum() <= 4 * N
    both = ff.Objects(source.source, instance_masks=shares, normalized=True, draw="classes")
    assert (batch_of(both, []).masks > 0).sum() > 100 * N


def test_one_map_of_classes() -> None:
    objects = outlines(top=30)
    images = ff.Arrays(pictures(objects))
    given: dict[str, Any] = {"labels": [[4, 6]] * N, "instance_masks": objects}
    both = batch_of(ff.Objects(images, draw="both", **given), [ff.RandomFlip(1.0)])
    first, second = np.moveaxis(both["instance_masks"], 1, 0).astype(bool)
    want = np.where(first, 5, 0)
    want = np.where(second, np.where(first, 255, 7), want)
    np.testing.assert_array_equal(both.masks, want)
    assert (want == 255).any()
    classes = batch_of(ff.Objects(images, draw="classes", **given), [ff.Rotate((20, 20))])
    assert "instance_masks" not in classes and classes["box_counts"].tolist() == [2] * N
    assert set(np.unique(classes.masks)) == {0, 5, 7, 255}
    assert (classes.masks[:, 0, 0] == 255).all(), "a corner after a rotation is not known"


def test_the_frame_of_stored_pixels() -> None:
    objects = outlines(1)
    file = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pictures(objects)[0]).save(file, "JPEG", exif=exif, quality=95)

    class Files(ff.Arrays):
        spec = ff.Spec((None,), "uint8", "encoded")

        def __init__(self) -> None:
            super().__init__(np.zeros((1, *SIZE, 3), np.uint8))
            self.spec = Files.spec

        def addresses(self, ids: Any) -> None:
            return None

        def read(self, ids: Any) -> list[Any]:
            return [file.getvalue()] * len(ids)

    given: dict[str, Any] = {"labels": [[0, 1]], "instance_masks": objects}
    stored = ff.Objects(Files(), frame="stored", **given)
    assert_on_pixels(batch_of(stored, [ff.Resize((90, 60))], 1))
    with feed(ff.Objects(Files(), **given), [ff.Resize((90, 60))], batch=1, on_bad="mask") as made:
        (batch,) = made
        (failure,) = made.stats().bad
    assert not batch["instance_masks"].any() and batch.weights.tolist() == [0]
    assert "the mask of an object has another size, the image has 90x60" in failure.detail


def test_functions_take_and_return_masks_of_objects() -> None:
    def mirrored(image: Any, numbers: Any, **fields: Any) -> dict[str, Any]:
        width = image.shape[1] - 10
        boxes = fields["boxes"][:, [2, 1, 0, 3]] * [-1, 1, -1, 1] + [width, 0, width, 0]
        return {
            "image": image[:, width - 1 :: -1],
            "boxes": boxes,
            "box_labels": fields["box_labels"],
            "instance_masks": fields["instance_masks"][..., width - 1 :: -1],
        }

    names = ("boxes", "box_labels", "instance_masks")
    smaller = ff.Spec((60, 80, 3), "uint8", "HWC")
    op = ff.Function(mirrored, draws=0, fields=names, returns=smaller)
    assert_on_pixels(batch_of(outlined(), [op]))
    with pytest.raises(SpecError, match="moves boxes, and instance_masks would stay as they are"):
        ff.Feed(outlined(), [ff.Function(mirrored, 0, names[:2], smaller)], batch=2)
    with pytest.raises(ConfigError, match="must have instance_masks together with boxes"):
        ff.Function(mirrored, 0, names[2:])
    wrong = ff.Function(lambda image, u, **own: own | {"image": image, names[2]: image}, 0, names)
    with ff.Feed(outlined(), [wrong], batch=2, on_bad="raise") as made:
        with pytest.raises(Exception, match=r"instance_masks uint8\[2, 60, 90\] of 0 and 1"):
            next(iter(made))


def test_a_transform_takes_outlines_as_it_takes_boxes() -> None:
    source, ops = outlined(), [ff.RandomResizedCrop(48, scale=(0.4, 1)), ff.RandomFlip()]
    transform = ff.Transform(ops, seed=0)
    want = batch_of(source, ops)
    fields = {"instance_masks": outlines(), "box_labels": [[0, 1]] * N}
    got = transform(list(pictures(outlines())), fields=fields, ids=want.ids)
    for name in ("image", "boxes", "box_labels", "instance_masks"):
        np.testing.assert_array_equal(got[name], want[name])
    with pytest.raises(ConfigError, match=r"fields: instance mask 0 of .* finite"):
        fields = {"instance_masks": [[[[0, 0, 1, 1, np.inf, 3]]]]}
        transform([np.zeros((4, 4, 3), np.uint8)], fields=fields, ids=[0])
    bad = transform(
        [np.zeros((4, 5, 3), np.uint8)], fields={"instance_masks": [[np.eye(4) > 0]]}, ids=[0]
    )
    assert "the mask of an object has another size" in bad.bad[0].detail


class Incomplete:
    """A user's source whose `object_spec` promises more than `objects` gives."""

    spec = ff.Spec((8, 8, 3), "uint8", "HWC")
    classes = ()
    most = 2
    object_classes = ()

    def __init__(self, object_spec: ObjectSpec, **parts: np.ndarray) -> None:
        self.object_spec = object_spec
        self.parts = parts

    def __len__(self) -> int:
        return 4

    def read(self, ids: Any) -> list[Any]:
        return [np.zeros((8, 8, 3), np.uint8) for _ in ids]

    def label(self, i: int) -> int:
        return 0

    def uri(self, i: int) -> str:
        return f"image {i}"

    def objects(self, ids: np.ndarray) -> Instances:
        n = len(ids)
        boxes = np.tile([0.0, 0, 4, 4], (n, 1))
        return Instances(boxes, np.zeros(n, np.int64), np.ones(n, np.int64), **self.parts)


@pytest.mark.parametrize(
    ("spec", "parts", "text"),
    [
        (ObjectSpec(instance_masks=True), {}, "must give shapes (2,) for object_spec.instance_mas"),
        (ObjectSpec(keypoints=5), {}, "must give keypoints (2, 5, 3) for object_spec.keypoints=5"),
        (ObjectSpec(keypoints=5), {"keypoints": np.zeros((2, 4, 3))}, "got (2, 4, 3); add them"),
    ],
)
def test_sources_that_give_less_than_they_say_are_refused(
    spec: ObjectSpec, parts: dict[str, np.ndarray], text: str
) -> None:
    with (
        pytest.raises(ConfigError) as error,
        ff.Feed(Incomplete(spec, **parts), [ff.ToFloat()], batch=2, threads=1) as feed,
    ):
        next(iter(feed))
    assert "objects() of Incomplete" in str(error.value) and text in str(error.value)
