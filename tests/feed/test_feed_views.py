"""Several images of each sample: corners, and the crops of self-supervised learning."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.photos import broken, folder, jpeg, picture

from fastfeed.errors import ConfigError, SpecError
from fastfeed.feed.feed import Feed
from fastfeed.ops import (
    Brightness,
    CenterCrop,
    FiveCrop,
    Invert,
    MultiCrop,
    Normalize,
    RandomFlip,
    Resize,
    TenCrop,
    ToFloat,
    ToLayout,
    View,
)
from fastfeed.sources import Arrays, ImageFolder

IMAGES = np.stack([picture(seed, (30, 40)) for seed in range(6)])
SOURCE = Arrays(IMAGES, np.arange(6))


def first(source, ops, **more):
    with Feed(source, ops, batch=4, shuffle=False, threads=2, **more) as feed:
        return next(iter(feed))


def test_five_crop_gives_the_corners_and_the_middle():
    got = first(SOURCE, [FiveCrop((20, 16))])
    assert got.images.shape == (4, 5, 20, 16, 3) and len(got.views) == 1
    for image, views in zip(IMAGES, got.images, strict=False):
        corners = [
            image[:20, :16],
            image[:20, -16:],
            image[-20:, :16],
            image[-20:, -16:],
            image[5:25, 12:28],
        ]
        np.testing.assert_array_equal(views, corners)


@pytest.mark.parametrize("vertical", [False, True])
@pytest.mark.parametrize("size", [18, 17], ids=["even room", "odd room"])
def test_ten_crop_is_five_crop_of_the_image_and_of_its_mirror_image(vertical, size):
    """In torchvision's order: `ten_crop` is five_crop(image) + five_crop(hflip(image))."""
    mirror = Arrays(np.ascontiguousarray(IMAGES[:, ::-1] if vertical else IMAGES[:, :, ::-1]))
    ten = first(SOURCE, [TenCrop(size, vertical)]).images
    np.testing.assert_array_equal(ten[:, :5], first(SOURCE, [FiveCrop(size)]).images)
    np.testing.assert_array_equal(ten[:, 5:], first(mirror, [FiveCrop(size)]).images)


def test_ops_behind_a_split_change_each_view_by_itself():
    got = first(SOURCE, [FiveCrop(30), Brightness((0.2, 1.0)), ToFloat(), ToLayout("CHW")])
    assert got.images.shape == (4, 5, 3, 30, 30) and got.images.dtype == np.float32
    assert len({float(view.sum()) for view in got.images[0, :2]}) == 2


def test_multi_crop_has_an_array_per_size(tmp_path):
    photos = ImageFolder(folder(tmp_path / "photos", {"a": 6}, (90, 120)))
    ops = [
        MultiCrop((View(32, 2, scale=(0.4, 1.0)), View(16, 6, scale=(0.05, 0.4), ops=(Invert(),)))),
        RandomFlip(),
    ]
    got = first(photos, [*ops, Normalize.imagenet()])
    assert [view.shape for view in got.views] == [(4, 2, 32, 32, 3), (4, 6, 16, 16, 3)]
    assert got.images is got.views[0]
    for views in got.views:
        flat = views.reshape(4, views.shape[1], -1)
        assert all(len(np.unique(sample, axis=0)) == len(sample) for sample in flat), (
            "views are drawn independently"
        )
    plain = first(
        photos,
        [MultiCrop((View(32, 2, scale=(0.4, 1.0)), View(16, 6, scale=(0.05, 0.4)))), RandomFlip()],
    )
    inverted = first(photos, ops)
    np.testing.assert_array_equal(inverted.views[0], plain.views[0])
    np.testing.assert_array_equal(inverted.views[1], 255 - plain.views[1])


def test_views_of_two_kinds_are_drawn_apart():
    got = first(SOURCE, [MultiCrop((View(16, 2), View(16, 2))), Brightness((0.2, 1.0))])
    for one, other in zip(*got.views, strict=True):
        assert not any(np.array_equal(a, b) for a in one for b in other)


def test_a_view_is_what_its_crop_alone_gives(tmp_path):
    """Files are decoded once for all views, which may cost a level or two."""
    root = tmp_path / "photos" / "a"
    root.mkdir(parents=True)
    for k in range(4):
        (root / f"{k}.jpg").write_bytes(jpeg(k, (400, 500), quality=95))
    photos = ImageFolder(root.parent)
    five = first(photos, [Resize((100, 120)), FiveCrop(60)]).images[:, 4]
    middle = first(photos, [Resize((100, 120)), CenterCrop(60)]).images
    assert np.abs(five.astype(int) - middle).mean() < 1


@pytest.mark.parametrize("decode", ["auto", "pillow"])
def test_bad_files_are_replaced_in_all_views(tmp_path, decode):
    root = folder(tmp_path / "photos", {"a": 8})
    for name, reason in (("0001", "truncated"), ("0002", "empty")):
        (root / "a" / f"{name}.jpg").write_bytes(broken(reason))
    ops = [MultiCrop((View(16, 2), View(8, 3)))]
    masked = first(ImageFolder(root), ops, on_bad="mask", decode=decode)
    assert masked.weights.tolist() == [1, 0, 0, 1]
    assert not any(view[1:3].any() for view in masked.views) and all(
        view[0].any() for view in masked.views
    )
    replaced = first(ImageFolder(root), ops, decode=decode)
    assert set(replaced.ids[1:3]).isdisjoint({1, 2}) and all(
        view[1:3].any() for view in replaced.views
    )


@pytest.mark.slow  # test_fields.py sends all fields
def test_a_helper_process_makes_the_same_views():
    ops = [MultiCrop((View(16, 2), View(8, 3))), Invert()]
    here = first(SOURCE, ops)
    there = first(SOURCE, ops, side_process=True)
    assert len(there.views) == 2
    for one, other in zip(here.views, there.views, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (
            lambda: Feed(SOURCE, [FiveCrop(32)], batch=2),
            SpecError,
            "FiveCrop of 32x32 does not fit into HWC uint8[30",
        ),
        (lambda: Feed(SOURCE, [Invert(), FiveCrop(8)], batch=2), SpecError, "put it before Invert"),
        (
            lambda: Feed(SOURCE, [FiveCrop(9), TenCrop(8)], batch=2),
            SpecError,
            "TenCrop cannot follow FiveCrop",
        ),
        (lambda: MultiCrop(()), ConfigError, "MultiCrop takes 1 to 15 views, got 0"),
        (lambda: MultiCrop((224,)), ConfigError, "write MultiCrop((View(224, 2), View(96, 8)))"),
        (lambda: View(8, 0), ConfigError, "View count must be an integer in [1, 64], got 0"),
        (lambda: View(8, scale=(0.5, 1.5)), ConfigError, "View scale must be"),
        (lambda: FiveCrop(0), ConfigError, "FiveCrop size must be in [1, 65535] pixels, got 0"),
    ],
)
def test_refuses(make, error, text):
    with pytest.raises(error) as refused:
        make()
    assert text in str(refused.value)
