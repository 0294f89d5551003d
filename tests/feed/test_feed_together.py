"""Samples of several images: pairs that never come apart, moved alike."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.feeds import NUMBERS
from helpers.photos import broken, folder, jpeg, picture
from helpers.remotes import uploaded
from helpers.shards import shard_folder

import fastfeed as ff
from fastfeed.distributed.world import World
from fastfeed.errors import ConfigError, SampleError, SpecError, StorageError
from fastfeed.feed.session import FeedSession

PICTURES = np.stack([picture(seed, (30, 40)) for seed in range(8)])
MOVING = [
    ff.RandomResizedCrop((20, 24), scale=(0.2, 1.0)),
    ff.RandomFlip(),
    ff.Rotate((-30, 30)),
    ff.TrivialAugmentWide(),
    ff.Normalize.imagenet(),
]


class Flawed(ff.Arrays):
    """Image i is all i, plus `more`; those in `bad` cannot be read, or raise an error."""

    def __init__(self, bad: tuple[int, ...] = (), more: int = 0, error: bool = False) -> None:
        super().__init__(np.ascontiguousarray(NUMBERS + np.uint8(more)), np.arange(50))
        self.bad = bad
        self.error = error
        self.begun: list[int] = []

    def uri(self, i: int) -> str:
        return f"{self._images[0, 0, 0, 0]}/{i}"

    def read(self, ids: Any) -> list[Any]:
        self.begun += [int(i) for i in ids]
        if self.error and not {*self.bad}.isdisjoint(map(int, ids)):
            raise RuntimeError("a bug")
        return [
            ff.Failure(int(i), self.uri(int(i)), "read", "corrupt", "scratched")
            if int(i) in self.bad
            else self._images[int(i)]
            for i in ids
        ]


def pairs(**more: Any) -> ff.Together:
    return ff.Together({"left": Flawed((3, 9), **more), "right": Flawed((9, 17, 30), 100, **more)})


def fed(source: Any, ops: Any, **more: Any) -> ff.Feed:
    return ff.Feed(source, ops, **({"batch": 4, "shuffle": False, "threads": 2} | more))


def first(source: Any, ops: Any, **more: Any) -> ff.Batch:
    with fed(source, ops, **more) as feed:
        return next(iter(feed))


def check_pairs(batch: ff.Batch, bad: set[int]) -> None:
    """Every row is a pair, or black and masked."""
    left, right = batch["left"][:, 0, 0, 0], batch["right"][:, 0, 0, 0]
    good = batch.weights > 0
    np.testing.assert_array_equal(left[good], batch.ids[good])
    np.testing.assert_array_equal(right[good], batch.ids[good] + 100)
    assert not left[~good].any() and not right[~good].any()
    assert bad.isdisjoint(batch.ids[good].tolist()) and bad >= {*batch.ids[~good].tolist()}


@pytest.mark.parametrize("on_bad", ["substitute", "mask"])
def test_pairs_never_come_apart(on_bad: str):
    def steps(size: int, saved: Any = None, count: int = 8) -> tuple[list[Any], Any]:
        """Global batches of two epochs, and the state after the first three."""
        walks = []
        for rank in range(size):
            world = World(rank, size)
            with ff.Feed(
                pairs(), [], global_batch=12, world=world, seed=3, on_bad=on_bad, threads=1
            ) as feed:
                if saved is not None:
                    feed.restore(saved)
                walks.append(list(feed) + list(feed))
                for batch in walks[-1]:
                    check_pairs(batch, {3, 9, 17, 30})
                feed.seek(0, 3)
                state = json.loads(json.dumps(feed.state()))
        fields = ("id", "left", "right", "weight", "label")
        return [
            [np.concatenate([batch[name] for batch in step]).tobytes() for name in fields]
            for step in zip(*walks, strict=True)
        ], state

    want, saved = steps(1)
    for size in (2, 3):
        assert steps(size)[0] == want
        assert steps(size, saved)[0] == want[3:]


@pytest.mark.parametrize("threads", [1, 3])
def test_the_same_images_move_alike_bit_for_bit(threads: int):
    same = ff.Arrays(PICTURES)
    together = ff.Together({"left": same, "right": ff.Arrays(PICTURES.copy())})
    with fed(together, MOVING, threads=threads) as feed, fed(same, MOVING) as alone:
        for batch, single in zip(feed, alone, strict=True):
            np.testing.assert_array_equal(batch["left"], batch["right"])
            np.testing.assert_array_equal(batch["right"], single.images)
            assert batch.images is batch["left"] is batch["image"]
            assert batch.views == (batch["left"], batch["right"])


def test_own_geometry_draws_other_numbers():
    same = ff.Arrays(PICTURES)
    together = ff.Together({"a": same, "b": same, "c": same}, geometry="own")
    batch, single = first(together, MOVING), first(same, MOVING)
    np.testing.assert_array_equal(batch["a"], single.images)
    assert len({batch[name].tobytes() for name in "abc"}) == 3


def test_lists_of_their_own():
    same = ff.Arrays(PICTURES)
    together = ff.Together({"image": same, "depth": same})
    moves = [ff.RandomResizedCrop(16), ff.RandomFlip()]
    jitter, norm = ff.ColorJitter(0.4, 0.4, 0.4), ff.Normalize.imagenet()
    batch = first(together, {"depth": moves, "image": [*moves, jitter, norm]})
    np.testing.assert_array_equal(batch["depth"], first(same, moves).images)
    np.testing.assert_array_equal(batch["image"], first(same, [*moves, jitter, norm]).images)
    assert batch.images.dtype == np.float32


BENDS = [ff.ElasticTransform((20.0, 90.0), border="reflect"), ff.GridDistortion(3)]


@pytest.mark.parametrize("bend", BENDS, ids=["elastic", "grid"])
def test_bent_images_are_bent_alike(bend: Any):
    mask = replace(bend, filter="nearest", fill=(9, 9, 9), border="constant")
    alike = {
        "left": [ff.RandomFlip(), ff.Maybe(ff.Sequential([bend, ff.Brightness(0.5)]), 0.5)],
        "right": [ff.RandomFlip(), ff.Maybe(mask, 0.5)],
    }
    ff.Feed(PAIR, alike, batch=4)
    crop = ff.CenterCrop(20)
    resize = ff.Resize((30, 40), fit="exact")
    for left, right in (
        ([ff.Maybe(ff.Grayscale(), 0.01), bend], [mask]),  # other random numbers
        ([bend], []),
        ([ff.Maybe(bend, 0.001)], []),
        ([ff.Maybe(bend, 0.5)], [ff.Maybe(mask, 0.51)]),
        ([bend], [ff.ElasticTransform(20.0, 3.0)]),
        ([bend], [ff.Resize((60, 80)), mask]),
        ([bend, crop, resize], [crop, resize, mask]),  # at other places
    ):
        with pytest.raises(ConfigError, match="turn or bend images differently"):
            ff.Feed(PAIR, {"left": left, "right": right}, batch=4)


def test_crops_of_larger_images_are_the_same_shares():
    """Of an image enlarged by whole pixels, a crop is the crop of the small one, enlarged."""
    large = np.repeat(np.repeat(PICTURES, 4, axis=1), 4, axis=2)
    together = ff.Together({"low": ff.Arrays(PICTURES), "high": ff.Arrays(large)})
    crop = [ff.RandomCrop(12), ff.RandomFlip(), ff.RandomFlip(direction="vertical")]
    batch = first(together, {"low": crop, "high": [*crop, ff.Resize((48, 48))]})
    np.testing.assert_array_equal(
        batch["high"], np.repeat(np.repeat(batch["low"], 4, axis=1), 4, axis=2)
    )


def test_sizes_out_of_proportion_are_bad_samples(tmp_path: Path):
    left, right = (folder(tmp_path / name, {"a": 8}) for name in ("left", "right"))
    (right / "a" / "0002.jpg").write_bytes(jpeg(2, (40, 80)))
    (right / "a" / "0005.jpg").write_bytes(jpeg(5, (20, 28)))
    sources = {"left": ff.ImageFolder(left), "right": ff.ImageFolder(right)}
    ops = [ff.Resize((16, 16))]
    with fed(ff.Together(sources), ops) as feed:
        ids = {int(id) for batch in feed for id in batch.ids}
        (failure,) = feed.stats().bad
    assert ids == {*range(8)} - {2}
    assert (failure.id, failure.uri, failure.reason) == (2, str(left / "a/0002.jpg"), "corrupt")
    assert failure.detail == (
        f"right, {right / 'a/0002.jpg'}: 40x80 pixels (height x width), out of proportion to the"
        ' first image\'s 40x56; Together(geometry="own") crops each by itself'
    )
    with fed(ff.Together(sources, geometry="own"), ops) as feed:
        assert [batch.ids.tolist() for batch in feed] == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize("remote", ["", "left", "right", "both"])
def test_a_real_pair_of_folders(tmp_path: Path, remote: str):
    roots = {
        name: folder(tmp_path / name, {"a": 4, "b": 4}, (40, 56)) for name in ("left", "right")
    }
    (roots["right"] / "b" / "0001.jpg").write_bytes(broken("truncated"))
    (roots["left"] / "a" / "0002.jpg").write_bytes(broken("not_image"))
    places = {
        name: uploaded(root) if remote in (name, "both") else str(root)
        for name, root in roots.items()
    }
    ops = [ff.RandomResizedCrop(16), ff.RandomFlip()]
    sources = {name: ff.ImageFolder(place) for name, place in places.items()}
    list_file = tmp_path / "bad.jsonl"
    with fed(ff.Together(sources), ops, quarantine=list_file) as feed:
        batches = list(feed)
        bad = {failure.id: failure for failure in feed.stats().bad}
    for batch in batches:
        np.testing.assert_array_equal(batch["left"], batch["right"])
        np.testing.assert_array_equal(batch.labels, sources["left"].label(batch.ids))
    assert {*bad} == {2, 5} and not {2, 5} & {int(id) for batch in batches for id in batch.ids}
    assert str(bad[2]).startswith(f"{sources['left'].uri(2)}: not_image (left: ")
    assert str(bad[5]).startswith(
        f"{sources['left'].uri(5)}: truncated (right, {sources['right'].uri(5)}: "
    )
    with fed(ff.Together(sources), ops, quarantine=list_file) as feed:
        quarantine = FeedSession.of(feed).quarantine
        assert quarantine.known_bad(np.arange(8)).nonzero()[0].tolist() == [2, 5]
        assert [batch.ids.tolist() for batch in feed] == [batch.ids.tolist() for batch in batches]


@pytest.mark.parametrize("remote", [False, True])
def test_images_that_do_not_fit_into_memory_at_once(tmp_path: Path, remote: bool):
    """What was read of one image beyond the others' limit is read again."""
    left = folder(tmp_path / "left", {"a": 8}, (20, 28))
    right = folder(tmp_path / "right", {"a": 8}, (160, 224))
    places = [uploaded(root) if remote else root for root in (left, right)]
    together = ff.Together(dict(zip(("left", "right"), map(ff.ImageFolder, places), strict=True)))
    want = first(together, [ff.Resize((8, 8))], batch=8)
    with fed(together, [ff.Resize((8, 8))], batch=8) as feed:
        loaders = FeedSession.of(feed).producer._builder._loader.loaders
        loaders["right"].max_bytes = 1
        batch = next(iter(feed))
    for name in ("id", "left", "right"):
        np.testing.assert_array_equal(batch[name], want[name])


@pytest.mark.parametrize("remote", [False, True])
def test_shards_in_blocks(tmp_path: Path, remote: bool):
    roots = [shard_folder(tmp_path / name, (3, 1, 4)) for name in ("left", "right")]
    shards = [ff.TarShards(uploaded(root) if remote else root) for root in roots]
    pair = ff.Together({"left": shards[0], "right": shards[1]})
    with fed(pair, [ff.Resize((8, 8))], shuffle=ff.Blocks()) as feed:
        batches = list(feed)
    assert len({int(id) for batch in batches for id in batch.ids}) == 8
    for batch in batches:
        np.testing.assert_array_equal(batch["left"], batch["right"])


def test_storage_of_one_image_that_is_down():
    class Down(ff.Arrays):
        def uri(self, i: int) -> str:
            return f"s3://right/{i}.jpg"

        def read(self, ids: Any) -> list[Any]:
            return [ff.Failure(int(i), self.uri(i), "read", "io_error", "gone") for i in ids]

    pair = ff.Together({"left": IMAGE, "right": Down(PICTURES)})
    for then in ("raise", "substitute"):
        with pytest.raises(StorageError, match="s3://right has not answered"):
            first(pair, [], outage=ff.Outage(0.0, then=then))


@pytest.mark.slow  # test_fields.py sends all fields
def test_a_helper_process_makes_the_same_pairs():
    together = ff.Together({"left": ff.Arrays(PICTURES), "right": ff.Arrays(PICTURES[::-1])})
    want = first(together, [ff.RandomFlip()])
    got = first(together, [ff.RandomFlip()], side_process=True)
    names = list(want.keys())
    assert list(got.keys()) == names
    for name in names:
        np.testing.assert_array_equal(got[name], want[name])


def test_errors_name_the_image():
    together = pairs(error=True)
    with fed(together, [], on_bad="mask", batch=10) as feed:
        list(feed)
        bad = {failure.id: failure for failure in feed.stats().bad}
    assert {*bad} == {3, 9, 17, 30}
    assert bad[17].reason == "internal" and bad[17].detail.endswith("in the image 'right'")

    def fails(image: np.ndarray, _: np.ndarray) -> np.ndarray:
        raise ValueError("a bug")

    with pytest.raises(SampleError, match=r"sample \d, 100/\d: .* raised ValueError: a bug"):
        first(pairs(), {"left": [], "right": [fails]})


def test_columns_labels_and_weights(tmp_path: Path):
    class Told(ff.Arrays):
        def weights(self, ids: np.ndarray) -> np.ndarray:
            return np.full(len(ids), 0.5, np.float32)

        def columns(self, ids: np.ndarray) -> dict[str, np.ndarray]:
            return {"time": np.asarray(ids) * 3}

    class Timed(ff.Arrays):
        def columns(self, ids: np.ndarray) -> dict[str, np.ndarray]:
            return {"time": np.asarray(ids) * 2}

    shards = ff.TarShards(shard_folder(tmp_path / "shards", (8,)), columns=["cls"])
    sources = {"shot": Timed(PICTURES), "scan": shards, "depth": Told(PICTURES)}
    ops = {"shot": [], "scan": [ff.Resize((8, 8))], "depth": []}
    with fed(ff.Together(sources, geometry="own"), ops) as feed:
        batch = next(iter(feed))
        assert list(feed.fields) == list(batch.keys())
    np.testing.assert_array_equal(batch.labels, shards.label(batch.ids))
    assert (batch.weights == 0.5).all()
    np.testing.assert_array_equal(batch.columns["time"], batch.ids * 2)
    np.testing.assert_array_equal(batch.columns["depth.time"], batch.ids * 3)
    rows = shards.column_values(batch.ids.tolist())
    assert batch["scan.cls"].tolist() == [row["cls"] for row in rows]
    soft = first(ff.Together(sources, geometry="own"), ops | {"shot": [ff.OneHot(3)]})
    assert soft.labels.shape == (4, 3)


def test_boxes_and_masks_of_the_first_image():
    boxed = ff.Objects(ff.Arrays(PICTURES), boxes=[[[0, 0, 8, 6]]] * 8)
    together = ff.Together({"image": boxed, "depth": ff.Arrays(PICTURES)})
    batch = first(together, [ff.RandomFlip(p=1.0)])
    np.testing.assert_array_equal(batch["boxes"][:, 0], [[32, 0, 40, 6]] * 4)
    np.testing.assert_array_equal(batch["image"], batch["depth"])


def test_functions_take_the_fields_of_their_sample():
    def add(image: np.ndarray, _: np.ndarray, label: np.ndarray) -> np.ndarray:
        return image + np.uint8(label)

    function = ff.Function(add, fields=("label",))
    both = ff.Map(lambda *images: np.concatenate(images, axis=3), "left", "right", out="stack")
    ops = {"left": [both], "right": [function]}
    batch = first(pairs(), ops, batch=3)
    right = 100 + 2 * batch.ids
    np.testing.assert_array_equal(batch["right"][:, 0, 0, 0], right)
    np.testing.assert_array_equal(batch["stack"][:, 0, 0, 3], right)

    boxed = ff.Objects(IMAGE, boxes=[[[0, 0, 8, 6]]] * 8)
    takes_boxes = ff.Function(lambda image, _, **fields: image, fields=("boxes", "box_labels"))
    with pytest.raises(SpecError, match="boxes and masks are of 'left', the first image"):
        ff.Feed(ff.Together({"left": boxed, "right": IMAGE}), [takes_boxes], batch=4)


def test_printed():
    together = ff.Together({"left": ff.Arrays(PICTURES), "right": ff.Arrays(PICTURES)})
    with fed(
        together, {"left": [ff.RandomFlip()], "right": [ff.RandomFlip(), ff.ToFloat()]}
    ) as feed:
        text = str(feed)
        state = feed.state()
    assert text.startswith("Feed from Together(left=Arrays: 8 images, HWC uint8[30, 40, 3], right=")
    assert "left: RandomFlip()" in text and "right: read" in text
    assert "a batch is uint8[4, 30, 40, 3] and float32[4, 30, 40, 3], 72.1 kB;" in text
    assert state["ops"] == ["left: RandomFlip()", "right: RandomFlip()", "right: ToFloat()"]


IMAGE = ff.Arrays(PICTURES)
PAIR = ff.Together({"left": IMAGE, "right": IMAGE})


@pytest.mark.parametrize(
    ("ops", "error", "text"),
    [
        ({"left": []}, ConfigError, "a list for each of left, right, got lists for left"),
        ({"left": [], "right": [], "up": []}, ConfigError, "got lists for left, right, up"),
        ([ff.MixUp()], SpecError, "MixUp is for samples of one image"),
        ([ff.FiveCrop(8)], SpecError, "FiveCrop is for samples of one image"),
        ({"left": [], "right": [ff.OneHot(3)]}, SpecError, "put it into the list of 'left'"),
        ({"left": [], "right": [ff.Decode()]}, SpecError, "right: Decode needs encoded bytes"),
        (
            {"left": [ff.RandomFlip()], "right": []},
            ConfigError,
            "RandomFlip (random op 1) and none",
        ),
        (
            {
                "left": [ff.ColorJitter(0.1), ff.RandomFlip()],
                "right": [ff.RandomFlip()],
            },
            ConfigError,
            "RandomFlip (random op 2) and RandomFlip (random op 1); put the same ones into both",
        ),
        (
            {"left": [ff.CenterCrop(20)], "right": [ff.CenterCrop(10)]},
            ConfigError,
            "the ops of 'left' and 'right' crop, flip, turn or bend images differently",
        ),
        (
            {"left": [ff.Rotate((-10, 10))], "right": [ff.Rotate((-20, 20))]},
            ConfigError,
            "differently",
        ),
    ],
)
def test_ops_that_are_refused(ops: Any, error: type[Exception], text: str):
    with pytest.raises(error, match=re.escape(text)):
        ff.Feed(PAIR, ops, batch=4)


def test_other_uses_are_refused():
    with pytest.raises(ConfigError, match="Together needs the cpu backend, got 'dali'"):
        ff.Feed(PAIR, [], batch=4, backend="dali")
    for use in (lambda: ff.Mixture([PAIR]), lambda: ff.Objects(PAIR, [[]] * 8)):
        with pytest.raises(ConfigError, match="must have one image per sample, got Together"):
            use()
