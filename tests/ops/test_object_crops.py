"""IoUCrop against a slow definition, ZoomOut, and what a feed makes of both."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.op_examples import EXAMPLES

import fastfeed as ff
from fastfeed.errors import ConfigError, SpecError
from fastfeed.ops.program.compile import fuse
from fastfeed.ops.program.window import ObjectBoxes
from fastfeed.sampling.rng import uniform
from fastfeed.spec import PIXELS

N = 40
SIZE = (60, 90)


def objects_of(seed: int, sizes: np.ndarray) -> ObjectBoxes:
    """None to three boxes per image."""
    rng = np.random.default_rng(seed)
    rows = np.repeat(np.arange(len(sizes)), rng.integers(0, 4, len(sizes)))
    sides = sizes[rows, ::-1]
    low = rng.uniform(0, 0.4, (len(rows), 2)) * sides
    return ObjectBoxes(
        rows, np.concatenate([low, low + rng.uniform(0.2, 0.6, low.shape) * sides], 1)
    )


def defined(op: ff.IoUCrop, u: np.ndarray, size: Any, boxes: np.ndarray) -> list[float]:
    """The part of one image, overlap by overlap and trial by trial."""
    height, width = (int(side) for side in size)
    for turn in range(16):
        least = op.min_overlaps[int(u[turn] * len(op.min_overlaps))]
        if least == 1:
            break
        for trial in u[16:].reshape(-1, 4):
            h, w, y, x = (trial + turn * np.sqrt([2, 3, 5, 7])) % 1
            part_height = max(int(height * (op.scale[0] + (op.scale[1] - op.scale[0]) * h)), 1)
            part_width = max(int(width * (op.scale[0] + (op.scale[1] - op.scale[0]) * w)), 1)
            top, left = int((height - part_height) * y), int((width - part_width) * x)
            part = [top, left, part_height, part_width]
            if fits(part, boxes, least) and (
                op.ratio[0] <= part_width / part_height <= op.ratio[1]
            ):
                return part
    return [0, 0, height, width]


def fits(part: list[int], boxes: np.ndarray, least: float) -> bool:
    """Whether the center of an object is inside, and enough of the object."""
    top, left, height, width = part
    bottom, right = top + height, left + width
    for x0, y0, x1, y1 in boxes:
        if not (left < (x0 + x1) / 2 < right and top < (y0 + y1) / 2 < bottom):
            continue
        wide, high = min(x1, right) - max(x0, left), min(y1, bottom) - max(y0, top)
        common = max(wide, 0) * max(high, 0)
        if common / ((x1 - x0) * (y1 - y0) + height * width - common) >= least:
            return True
    return False


@pytest.mark.parametrize("op", EXAMPLES[ff.IoUCrop], ids=repr)
def test_the_first_part_that_overlaps_an_object_enough(op: ff.IoUCrop) -> None:
    sizes = np.random.default_rng(1).integers(20, 200, (N, 2))
    objects = objects_of(2, sizes)
    u = uniform(3, 0, np.arange(N), 0, op.draws)
    params = op.params(u, sizes, objects.rows, objects.boxes)
    want = [defined(op, u[i], sizes[i], objects.boxes[objects.rows == i]) for i in range(N)]
    np.testing.assert_array_equal(params["box"], want)
    np.testing.assert_array_equal(params["size"], params["box"][:, 2:])
    whole = (params["size"] == sizes).all(axis=1)
    without = ~np.isin(np.arange(N), objects.rows)
    assert whole[without].all() and without.any() and (~whole).sum() > 3
    np.testing.assert_array_equal(op.params(u, sizes)["size"], sizes)
    assert pickle.loads(pickle.dumps(op)) == op and eval(repr(op), vars(ff)) == op


def test_boxes_are_where_ops_before_it_moved_them() -> None:
    """Looked for in the image that the crop gets: resized, mirrored, cut and on a canvas."""
    op = ff.IoUCrop((0.0, 0.1))
    before = [ff.Resize((80, 70)), ff.RandomFlip(0.5, "both"), ff.CenterCrop(60), ff.ZoomOut(1.0)]
    sizes = np.random.default_rng(1).integers(50, 200, (N, 2))
    objects = objects_of(2, sizes)

    def work(ops: list[Any], objects: ObjectBoxes | None = None) -> Any:
        program = fuse(ops, PIXELS, fixed=False)
        draws = program.draw(lambda slot, k: uniform(5, 0, np.arange(N), slot, k))
        return program, program.work(draws, sizes, objects), draws

    _, first, _ = work(before)
    _, both, draws = work([*before, op], objects)
    crops = 0
    for row in range(N):
        (top, left, height, width), scale = first.windows.boxes[row], first.windows.sizes[row]
        own = objects.boxes[objects.rows == row]
        x = (own[:, [0, 2]] - left) * scale[1] / width
        y = (own[:, [1, 3]] - top) * scale[0] / height
        if first.windows.flips[row, 1]:
            x = scale[1] - x[:, ::-1]
        if first.windows.flips[row, 0]:
            y = scale[0] - y[:, ::-1]
        x, y = x.clip(0, scale[1]), y.clip(0, scale[0])
        moved = np.stack([x[:, 0], y[:, 0], x[:, 1], y[:, 1]], axis=1)
        moved = moved[(moved[:, 2:] > moved[:, :2]).all(axis=1)]
        want = defined(op, draws[-1][row], scale, moved)
        assert both.windows.sizes[row].tolist() == want[2:]
        crops += want[2:] != scale.tolist()
    assert crops > 5


def located(n: int = 8, **more: Any) -> ff.Objects:
    images = np.random.default_rng(0).integers(0, 256, (n, *SIZE, 3), np.uint8)
    objects = objects_of(4, np.tile(SIZE, (n, 1)))
    boxes = [objects.boxes[objects.rows == row] for row in range(n)]
    return ff.Objects(ff.Arrays(images), boxes, [range(len(own)) for own in boxes], **more)


OPS = [ff.ZoomOut(0.5, (1, 2)), ff.IoUCrop(), ff.Resize((48, 48)), ff.RandomFlip()]


def test_feeds_of_any_batch_and_start_make_the_same_images_and_boxes() -> None:
    """A pure function of seed, epoch and sample, as a Transform makes it of the same items."""
    source, made = located(), {}
    for batch, start in ((8, 0), (2, 1)):
        with ff.Feed(source, OPS, batch=batch, shuffle=False, seed=7) as feed:
            for each in feed.batches(2, start=start):
                for row, id in enumerate(each.ids.tolist()):
                    found = [each[name][row] for name in ("image", "boxes", "box_labels")]
                    for one, other in zip(made.setdefault(id, found), found, strict=True):
                        np.testing.assert_array_equal(one, other)
    lists = source.objects(np.arange(8))
    assert lists is not None
    ends = np.cumsum(lists.counts)[:-1]
    fields = {
        "boxes": np.split(lists.boxes, ends),
        "box_labels": np.split(lists.labels, ends),
    }
    transform = ff.Transform(OPS, seed=7)
    batch = transform(list(source.read(range(8))), fields=fields, ids=range(8), epoch=2)
    for row in range(8):
        np.testing.assert_array_equal(batch["image"][row], made[row][0])
        np.testing.assert_array_equal(batch["boxes"][row], made[row][1])


def test_parts_are_of_the_image_that_is_seen() -> None:
    """Each pixel of a crop without scaling is one of its image, and boxes are where they were."""
    source = located()
    with ff.Feed(
        source, [ff.IoUCrop(), ff.Pad(0), ff.Crop(0, 0, 12)], batch=8, shuffle=False
    ) as feed:
        (batch,) = feed
    images = source.read(range(8))
    windows = [np.lib.stride_tricks.sliding_window_view(image, (12, 12, 3)) for image in images]
    for image, views in zip(batch.images, windows, strict=True):
        assert (views[:, :, 0] == image).all(axis=(2, 3, 4)).any()


def test_a_canvas_around_the_image() -> None:
    op = ff.ZoomOut(1.0, (1.5, 3), (9, 8, 7))
    sizes = np.tile(SIZE, (N, 1))
    u = uniform(0, 0, np.arange(N), 0, op.draws)
    params = op.params(u, sizes)
    times = params["size"] / sizes
    assert (times >= 1.5 - 1 / 60).all() and (times <= 3).all() and np.ptp(times) > 1
    np.testing.assert_array_equal(params["box"][:, 2:], params["size"])
    assert (params["box"][:, :2] <= 0).all()
    assert (-params["box"][:, :2] <= params["size"] - sizes).all()
    half = ff.ZoomOut(0.5).params(uniform(0, 0, np.arange(2000), 0, 4), np.tile(SIZE, (2000, 1)))
    assert 0.4 < (half["size"] == SIZE).all(axis=1).mean() < 0.6
    source = located()
    with ff.Feed(source, [op, ff.Resize((40, 60))], batch=8, shuffle=False) as feed:
        (batch,) = feed
    assert (batch.images[:, [0, -1]] == [9, 8, 7]).all(axis=-1).any(axis=(1, 2)).all()
    assert (batch["boxes"][..., 2] <= 60).all() and batch["box_counts"].any()


def test_without_boxes_it_is_refused(tmp_path: Path) -> None:
    images = ff.Arrays(np.zeros((4, *SIZE, 3), np.uint8))
    for source in (images, ff.Objects(images, masks=[None] * 4)):
        with pytest.raises(SpecError, match=r"IoUCrop\(.* needs boxes of objects"):
            ff.Feed(source, OPS, batch=2)
    transform = ff.Transform(OPS)
    with pytest.raises(SpecError, match=r"IoUCrop\(.* needs boxes of objects"):
        transform([images.read([0])[0]], ids=[0])
    transform.save(tmp_path / "ops.json")
    assert ff.Transform.load(tmp_path / "ops.json").ops == transform.ops
    with pytest.raises(SpecError, match="put it before ops that change pixels"):
        fuse([ff.Resize((40, 40)), ff.Invert(), ff.IoUCrop(), ff.Resize((9, 9))], PIXELS)
    padded = [ff.IoUCrop(), ff.Resize(ff.LargestSize(), fit="corner")]
    with pytest.raises(SpecError, match="needs sizes that do not depend on random numbers"):
        ff.Feed(located(), padded, batch=2)
    with pytest.raises(ConfigError, match="put it directly into the list of ops"):
        ff.Maybe(ff.IoUCrop())
    assert ff.evaluation(OPS) == [ff.Resize((48, 48))]


def test_a_bad_sample_stays_the_only_bad_one() -> None:
    source = located(sizes=None)
    wrong = source.source.read([0])[0][:30]
    data = [wrong, *source.source.read(range(1, 8))]
    found = source.objects(np.arange(8))
    assert found is not None
    ends = np.cumsum(found.counts)[:-1]
    fields = {"boxes": np.split(found.boxes, ends), "box_labels": np.split(found.labels, ends)}
    fields["boxes"][0] = np.array([[70.0, 40, 80, 50]])
    fields["box_labels"][0] = np.array([0])
    batch = ff.Transform(OPS)(data, fields=fields, ids=range(8))
    assert list(batch.bad) == [0] and "is outside" in batch.bad[0].detail


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ff.IoUCrop(()), r"IoUCrop min_overlaps must be numbers in \[0, 1\]"),
        (lambda: ff.IoUCrop((0.5, 1.5)), "IoUCrop min_overlaps must be"),
        (lambda: ff.IoUCrop(scale=(0, 1)), "IoUCrop scale must be"),
        (lambda: ff.IoUCrop(ratio=(2, 1)), "IoUCrop ratio must be"),
        (lambda: ff.ZoomOut(2.0), "ZoomOut p must be"),
        (lambda: ff.ZoomOut(scale=(0.5, 2)), "ZoomOut scale must be"),
        (lambda: ff.ZoomOut(fill=(0, 0, 256)), "ZoomOut fill must be"),
    ],
)
def test_arguments_out_of_range(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
