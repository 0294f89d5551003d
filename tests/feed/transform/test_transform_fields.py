"""Values that come with the items of a transform: as in a feed, and one bad one among many."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.photos import broken, jpeg
from PIL import Image

import fastfeed as ff
from fastfeed.errors import ConfigError, SampleError, SpecError
from fastfeed.runtime.batch import UnknownField

N, SIZE = 4, (40, 56)
FILES = [jpeg(i, SIZE) for i in range(N)]
BOXES = [[[0, 0, 20, 10]], [], [[5, 5, 50, 30], [8, 9, 12, 20]], [[30, 20, 56, 40]]]
KINDS = [[1], [], [2, 0], [3]]
POINTS = [[[[*box[:2], 2], [*box[2:], 1]] for box in boxes] for boxes in BOXES]
MASKS = [np.full(SIZE, i, np.uint8) for i in range(N)]
LABELS = np.array([2, 0, 1, 2])
WORDS = ["a", "bb", "", "dddd"]
FIELDS = {
    "label": LABELS,
    "boxes": BOXES,
    "box_labels": KINDS,
    "keypoints": POINTS,
    "masks": MASKS,
    "word": WORDS,
    "number": np.arange(N) * 10,
}
MOVES = [ff.RandomResizedCrop(24), ff.RandomFlip()]


class Described(ff.Files):
    """Files with columns."""

    def columns(self, ids: np.ndarray) -> dict[str, np.ndarray]:
        return {"word": np.array(WORDS, object)[ids], "number": np.arange(N)[ids] * 10}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> ff.Objects:
    root = tmp_path_factory.mktemp("photos")
    for i, file in enumerate(FILES):
        (root / f"{i}.jpg").write_bytes(file)
    files = Described([str(root / f"{i}.jpg") for i in range(N)], LABELS, classes=list("abc"))
    more = {"keypoints": POINTS, "flip_pairs": [(0, 1)], "min_visible": 0.3}
    return ff.Objects(files, BOXES, KINDS, MASKS, **more)


def mark(image: np.ndarray, numbers: np.ndarray, **fields: Any) -> dict[str, Any]:
    """Paint what a function gets into its image, and move the boxes."""
    image[0, 0] = fields["label"], len(fields["word"]), int(255 * numbers[0])
    return {
        "image": image,
        "boxes": fields["boxes"] / 2,
        "box_labels": fields["box_labels"] + 1,
        "keypoints": fields["keypoints"] / [2, 2, 1],
        "masks": fields["masks"] // 2,
    }


TAKEN = ("label", "word", "boxes", "box_labels", "keypoints", "masks")


@pytest.mark.parametrize(
    "ops",
    [
        MOVES,
        [*MOVES, ff.OneHot(), ff.Rotate(30)],
        [*MOVES, ff.Function(mark, fields=TAKEN)],
        [*MOVES, ff.Map(lambda number, u: number + u[:, 0], "number", draws=1, out="noisy")],
        [*MOVES, ff.Map(lambda masks: masks + 1, "masks", out="masks")],
    ],
    ids=["moved", "turned", "function", "map", "masks"],
)
def test_fields_are_those_of_a_feed(ops: list[Any], source: ff.Objects) -> None:
    with ff.Feed(source, ops, batch=N, seed=5, threads=2, shuffle=False) as feed:
        (batch,) = feed.batches(epoch=1)
        assert not feed.stats().bad
        transform = ff.Transform.of(feed)
    with transform:
        made = transform(FILES, fields=FIELDS, ids=np.arange(N), epoch=1)
        rows = [2, 0]
        some = {name: [values[row] for row in rows] for name, values in FIELDS.items()}
        part = transform([FILES[row] for row in rows], fields=some, ids=rows, epoch=1)
    assert list(made.keys()) == list(batch.keys()) and not made.bad
    for name in batch.keys():  # noqa: SIM118  a batch is no mapping to iterate
        assert np.array_equal(made[name], batch[name]), name
        assert np.asarray(part[name]).dtype == np.asarray(batch[name]).dtype
        assert np.array_equal(part[name], batch[name][rows]), name


def test_kinds_of_items_do_not_mix_their_boxes_up() -> None:
    pixels = [np.asarray(Image.open(io.BytesIO(file))) for file in FILES]
    ops = [ff.RandomFlip(p=1.0), ff.Resize((20, 28))]
    with ff.Transform(ops, threads=1, flip_pairs=[(0, 1)]) as transform:
        alike = transform(FILES, fields=FIELDS, ids=range(N))
        items = [FILES[0], pixels[1], FILES[2], pixels[3]]
        mixed = transform(items, fields=FIELDS, ids=range(N))
    assert np.array_equal(mixed.objects.boxes, alike.objects.boxes)
    assert np.array_equal(mixed.objects.counts, [1, 0, 2, 1])
    assert np.array_equal(mixed["keypoints"], alike["keypoints"])
    assert np.array_equal(mixed["keypoints"][0, 0], [[18, 5, 1], [28, 0, 2]])
    assert np.array_equal(mixed.masks, alike.masks)
    assert np.array_equal(mixed.masks[:, 0, 0], range(N))


def test_masks_are_files_in_memory_or_paths(tmp_path: Path) -> None:
    encoded = []
    for i, mask in enumerate(MASKS):
        Image.fromarray(mask).save(tmp_path / f"{i}.png")
        encoded.append((tmp_path / f"{i}.png").read_bytes())
    (tmp_path / "3.png").unlink()
    with ff.Transform([ff.Resize((20, 28))], threads=1) as transform:
        want = transform(FILES, fields={"masks": MASKS}).masks
        assert np.array_equal(transform(FILES, fields={"masks": encoded}).masks, want)
        paths = [tmp_path / f"{i}.png" for i in range(N)]
        batch = transform(FILES, fields={"masks": paths})
        assert np.array_equal(batch.masks[:3], want[:3]) and (batch.masks[3] == 255).all()
        assert list(batch.bad) == [3] and batch.bad[3].reason == "not_found"
        other = transform(FILES, fields={"masks": [*MASKS[:3], MASKS[3][1:]]})
        assert "its mask has 39x56 pixels" in str(other.bad[3]) and list(other.bad) == [3]


def test_a_box_outside_of_its_image_costs_its_item() -> None:
    fields = {"boxes": [[[0, 0, 5, 5]], [[99, 0, 100, 5]]], "box_labels": [[0], [0]]}
    with ff.Transform([ff.Resize((20, 28))], threads=1) as transform:
        batch = transform(FILES[:2], fields=fields)
    assert list(batch.bad) == [1] and "is outside, the image has 40x56 pixels" in str(batch.bad[1])
    assert batch.objects.counts.tolist() == [1, 0] and not batch.images[1].any()


def test_boxes_are_pixels_though_the_source_has_shares() -> None:
    images = ff.Arrays(np.zeros((1, *SIZE, 3), np.uint8))
    source = ff.Objects(images, [[[0.25, 0.25, 0.5, 0.5]]], [[1]], normalized=True)
    fields = {"boxes": [[[0, 0, 30, 20]]], "box_labels": [[1]]}
    with ff.Feed(source, [ff.Resize(SIZE)], batch=1, threads=1) as feed:
        transform = ff.Transform.of(feed)
    with transform:
        batch = transform([np.zeros((*SIZE, 3), np.uint8)], fields=fields)
    assert batch.objects.boxes.tolist() == [[[0, 0, 30, 20]]] and not batch.bad


@pytest.mark.parametrize("name", ("transform", "original_size"))
def test_fields_do_not_hide_what_was_done_to_an_image(name: str) -> None:
    text = f"to_original=True makes the field '{name}', and fields= has a column of this name"
    with ff.Transform([ff.Resize(SIZE)], threads=1, to_original=True) as transform:
        with pytest.raises(ConfigError, match=text):
            transform(FILES, fields={name: np.arange(N)})
    with ff.Transform([ff.Resize(SIZE)], threads=1) as transform:
        assert transform(FILES, fields={name: np.arange(N)})[name].tolist() == list(range(N))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"label": [1]}, r"fields\['label'\] must be a list, got 1 for 2 items; pass one value"),
        ({"caption": "ab"}, r"fields\['caption'\] must be a list, got str"),
        ({"caption": iter("ab")}, r"fields\['caption'\] must be a list, got str_?\w*iterator"),
        ([1, 2], "fields must be a mapping of names to values, got"),
        (
            {"label": [1, None]},
            r"fields\['label'\] must be integers, numbers of one shape or texts",
        ),
        ({"boxes": [[], []]}, "boxes and box_labels go together, got one of them"),
        (
            {"boxes": [[], [[0, np.nan, 1, 1]]], "box_labels": [[], [0]]},
            r"box 0 of items\[1\] must be finite numbers, got \[0.0, nan, 1.0, 1.0\]",
        ),
        (
            {"boxes": [[], [[5, 0, 1, 1]]], "box_labels": [[], [0]]},
            r"box 0 of items\[1\] got .* its right or bottom edge is before the other",
        ),
        ({"boxes": [[], [[0, 1]]], "box_labels": [[], [0]]}, r"items\[1\]"),
        ({"boxes": [[], []], "box_labels": [[], [0]]}, r"items\[1\] has 0 boxes and 1 labels"),
        (
            {"keypoints": [[], [[[1, 2, 3]]]]},
            r"keypoints 0 of items\[1\] has a keypoint whose visibility is not 0",
        ),
        ({"keypoints": [[], []]}, "all objects must have as many keypoints, got none"),
        ({"masks": [MASKS[0], np.zeros(SIZE)]}, r"the mask of items\[1\] must be uint8"),
    ],
)
def test_wrong_fields_are_one_sentence(fields: Any, text: str) -> None:
    with ff.Transform([ff.Resize((20, 28))], threads=1) as transform:
        with pytest.raises(ConfigError, match=text) as raised:
            transform(FILES[:2], fields=fields)
        assert "\n" not in str(raised.value) and "Objects" not in str(raised.value)


def test_keypoints_need_no_boxes_and_flips_need_their_pairs() -> None:
    points = [[[0.5, 3], [20, np.nan]]]
    fields = {"keypoints": points, "box_labels": [[7]]}
    with ff.Transform([ff.RandomFlip(p=1.0), ff.Resize((20, 28))], threads=1) as transform:
        with pytest.raises(SpecError, match=r"have no table of left and right; pass flip_pairs=\["):
            transform(FILES[:1], fields=fields, ids=[0])
    ops = [ff.RandomFlip(p=1.0), ff.Resize((20, 28))]
    with ff.Transform(ops, threads=1, flip_pairs=[]) as transform:
        batch = transform(FILES[:1], fields=fields, ids=[0])
    assert batch["keypoints"][0, 0].tolist() == [[27.75, 1.5, 2], [28, 0, 0]]
    assert batch["box_labels"].tolist() == [[7]]
    assert batch["boxes"][0, 0].tolist() == [27.75, 1.5, 27.75, 1.5]
    with ff.Transform(ops, threads=1, flip_pairs=[(0, 2)]) as transform:
        with pytest.raises(ConfigError, match=r"flip_pairs must be pairs .* keypoints are 0 to 1"):
            transform(FILES[:1], fields=fields, ids=[0])


def test_rules_for_objects_are_saved(tmp_path: Path) -> None:
    rules = {"flip_pairs": [(1, 0)], "min_area": 60.0}
    points = {"keypoints": [[[[0, 0, 1], [6, 0, 2]]] * 2]}
    fields = points | {"boxes": [[[0, 0, 20, 10], [0, 0, 20, 12]]], "box_labels": [[1, 2]]}
    with ff.Transform([ff.RandomFlip(p=1.0), ff.Resize((20, 28))], threads=1, **rules) as first:
        first.save(tmp_path / "saved.json")
        want = first(FILES[:1], fields=fields, ids=[0])
    with ff.Transform.load(tmp_path / "saved.json", threads=1) as second:
        again = second(FILES[:1], fields=fields, ids=[0])
    assert want.objects.labels.tolist() == again.objects.labels.tolist() == [[2, -1]]
    assert want["keypoints"][0, 0].tolist() == again["keypoints"][0, 0].tolist()


def test_a_function_or_map_says_which_fields_it_lacks() -> None:
    taking = ff.Function(lambda image, u, word: image, draws=0, fields=("word",))
    with ff.Transform([ff.Resize((20, 28)), taking]) as transform:
        with pytest.raises(SpecError, match="takes word, the source has label"):
            transform(FILES)
    with ff.Transform([ff.Resize((20, 28)), ff.Map(len, "word", out="length")]) as transform:
        with pytest.raises(UnknownField, match="no field 'word'; the fields are image, label"):
            transform(FILES)


def fails_at_bb(image: np.ndarray, _: np.ndarray, word: str) -> np.ndarray:
    if word == "bb":
        raise KeyError(word)
    return image


def test_a_function_that_fails_costs_its_item() -> None:
    ops = [ff.Resize((20, 28)), ff.Function(fails_at_bb, draws=0, fields=("word",))]
    with ff.Transform(ops, threads=2) as transform:
        batch = transform(FILES, fields={"word": WORDS})
    assert list(batch.bad) == [1] and batch.bad[1].stage == "augment"
    assert batch.bad[1].reason == "op_failed" and "raised KeyError: 'bb'" in batch.bad[1].detail
    assert batch.weights.tolist() == [1, 0, 1, 1] and not batch.images[1].any()


def lengths(words: list[str]) -> np.ndarray:
    if rows := [row for row, word in enumerate(words) if not word]:
        raise SampleError("no word", rows=rows)
    return np.array(list(map(len, words)))


def test_items_that_a_map_names_are_bad() -> None:
    ops = [ff.Resize((20, 28)), ff.Map(lengths, "word", out="length")]
    items = [FILES[0], broken("truncated"), FILES[2], FILES[3]]
    with ff.Transform(ops, threads=1) as transform:
        batch = transform(items, fields={"word": WORDS}, ids=[7, 7, 8, 9])
        assert list(batch.bad) == [1, 2] and batch.weights.tolist() == [1, 0, 0, 1]
        assert [bad.reason for bad in batch.bad.values()] == ["truncated", "op_failed"]
        assert batch.bad[2].id == 8 and batch.bad[2].uri == "items[2]"
        assert batch["length"].tolist() == [1, 2, 1, 4], "a bad one has another's values"
        alone = transform(FILES[:1], fields={"word": [""]})
        assert list(alone.bad) == [0] and not alone.images.any()


def test_a_map_that_raises_anything_else_is_an_error_with_advice() -> None:
    def fails(_: Any) -> None:
        raise ValueError("why")

    with ff.Transform([ff.Resize((20, 28)), ff.Map(fails, "label", out="x")]) as transform:
        with pytest.raises(SampleError, match=r"fix the function, or let it raise SampleError"):
            transform(FILES)


def test_labels_of_bad_items_have_no_nan() -> None:
    with ff.Transform([ff.Resize((20, 28))], threads=1) as transform:
        batch = transform([FILES[0], b""], fields={"label": [np.nan, np.nan]})
        assert batch.labels.dtype == np.float32
        assert np.isnan(batch.labels[0]) and batch.labels[1] == 0
        texts = transform(FILES, fields={"label": WORDS}).labels
        assert texts.dtype == object and texts.tolist() == WORDS
