"""Ports of programs in PyTorch give the data that the originals give."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.needs import LazyModule, require
from helpers.ports import (
    NEEDS,
    as_bytes,
    assert_close,
    assert_validates,
    center,
    folder_samples,
    load,
    made,
    output_of,
    resized,
    samples,
    short_side,
)
from helpers.preprocess.libraries import streaming
from PIL import Image

import fastfeed as ff
from fastfeed.feed.session import FeedSession

pytestmark = pytest.mark.slow
torch: Any = LazyModule("torch")
PORTS_OF = sorted(name for name, packages in NEEDS.items() if "torch" in packages)


def test_pytorch_imagenet(tmp_path: Path) -> None:
    port = load("pytorch_imagenet")
    root = made(port, "class_folders", tmp_path)
    train, val = port.feeds(root, batch=8)
    files = folder_samples(root / "train")
    assert sorted(samples(train, root / "train")) == files
    images, labels = next(iter(train.to_torch()))
    assert images.shape == (8, 3, 224, 224) and str(labels.dtype) == "torch.int64"
    paths = [root / "val" / name for name, _ in folder_samples(root / "val")]
    wanted = np.stack([center(short_side(path, 256), 224) for path in paths])
    assert_validates(val, root / "val", wanted)

    ranks = [port.feeds(root, batch=4, world=ff.World(rank, 2))[0] for rank in range(2)]
    seen = [sample for feed in ranks for sample in samples(feed, root / "train")]
    assert sorted(seen) == files
    assert [len(feed) for feed in ranks] == [len(files) // 8] * 2


@pytest.mark.parametrize(
    ("name", "resized", "cropped", "least", "levels", "filter"),
    [
        ("torchvision_classification", 232, 224, 0.0, range(7, 25), Image.Resampling.BILINEAR),
        # one lambda for the batch
        ("timm_train", 73, 64, 0.1 / 3, range(3, 5), Image.Resampling.BICUBIC),
    ],
)
def test_recipes_with_mixed_labels(
    name: str,
    resized: int,
    cropped: int,
    least: float,
    levels: range,
    filter: Any,
    tmp_path: Path,
) -> None:
    port = load(name)
    root = made(port, "class_folders", tmp_path)
    train, val = port.feeds(root, batch=8)
    seen = samples(train, root / "train")
    assert sorted(name for name, _ in seen) == [name for name, _ in folder_samples(root / "train")]
    _, shares = next(iter(train.to_torch()))
    shares = np.asarray(shares)
    assert shares.shape == (8, 3) and shares.dtype == np.float32
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-6)
    assert shares.min() == pytest.approx(least)
    assert len(np.unique(shares.round(4))) in levels
    paths = [root / "val" / name for name, _ in folder_samples(root / "val")]
    wanted = np.stack([center(short_side(path, resized, filter), cropped) for path in paths])
    assert_validates(val, root / "val", wanted)


def test_torchvision_repeats_augmentation_as_its_sampler(tmp_path: Path) -> None:
    """Of the images a quarter, four times each, as many steps as without, and no image with itself."""
    port = load("torchvision_classification")
    root = made(port, "class_folders", tmp_path)
    train, _ = port.feeds(root, batch=16, repeats=4, mixup=1.0)
    assert len(train) == 3
    ids = [train.plan.ids(0, step) for step in range(3)]
    assert np.unique(np.concatenate(ids), return_counts=True)[1].tolist() == [4] * 12
    for pairs in ids:
        assert (pairs[::2] != pairs[1::2]).all()


def test_torchvision_segmentation(tmp_path: Path) -> None:
    port = load("torchvision_segmentation")
    root = made(port, "segmented", tmp_path)
    train, val = port.feeds(root, batch=4)
    images, masks = next(iter(train.to_torch(yields=("image", "masks"))))
    assert images.shape == (4, 3, 48, 48) and masks.shape == (4, 48, 48)
    assert set(np.unique(np.asarray(masks))) <= {0, 1, 2, 3, 255}
    names = sorted(path.stem for path in (root / "val" / "images").iterdir())
    pixels, classes = [], []
    for name in names:
        image = Image.open(root / "val" / "images" / f"{name}.jpg")
        mask = Image.open(root / "val" / "masks" / f"{name}.png")
        pixels.append(np.asarray(image.resize((69, 52), Image.Resampling.BILINEAR)))
        classes.append(np.asarray(mask.resize((69, 52), Image.Resampling.NEAREST)))
    batches = list(val.to_torch(yields=("image", "masks")))
    assert_close(np.concatenate([as_bytes(images) for images, _ in batches]), np.stack(pixels))
    found = np.concatenate([np.asarray(masks) for _, masks in batches])
    np.testing.assert_array_equal(found, np.stack(classes))


def test_torchvision_detection(tmp_path: Path) -> None:
    port = load("torchvision_detection")
    root = made(port, "coco", tmp_path)
    feed = port.feeds(root, batch=4)
    file = json.loads((root / "instances.json").read_text())
    kinds = sorted(category["id"] for category in file["categories"])
    wanted: dict[str, list[tuple[list[int], int]]] = {}
    names = {image["id"]: image["file_name"] for image in file["images"]}
    for each in file["annotations"]:
        boxes = wanted.setdefault(names[each["image_id"]], [])
        if not each["iscrowd"]:
            boxes.append((each["bbox"], 1 + kinds.index(each["category_id"])))
    source: Any = FeedSession.of(feed).source
    seen = []
    fields = ("image", "boxes", "box_labels", "box_counts", "id")
    for *batch, ids in feed.to_torch(yields=fields):
        images, targets = port.targets(batch)
        assert len(images) == 4
        for uri, target in zip(source.uris(np.asarray(ids)), targets, strict=True):
            seen.append(Path(uri).name)
            assert target["labels"].tolist() == [kind for _, kind in wanted[seen[-1]]]
            if not wanted[seen[-1]]:  # of a crowd
                continue
            [((x, y, width, height), _)] = wanted[seen[-1]]
            left = [x, 96 - x - width]  # as it is, or flipped; 12 rows above 72
            boxes = [[at, y + 12, at + width, y + 12 + height] for at in left]
            assert target["boxes"].tolist()[0] in boxes
    assert len(seen) == len(set(seen)) == len(wanted) // 4 * 4
    assert set(seen) <= set(wanted)


def test_torchvision_masks(tmp_path: Path) -> None:
    """A diamond in each box, flipped with it; of images with nothing but a crowd there is none."""
    port = load("torchvision_masks")
    root = made(port, "polygons", tmp_path)
    feed = port.feeds(root, batch=4)
    fields = ("image", "boxes", "box_labels", "instance_masks", "box_counts")
    seen = 0
    for batch in feed.to_torch(yields=fields):
        images, targets = port.targets(batch)
        assert len(images) == 4
        for target in targets:
            assert target["masks"].shape == (len(target["boxes"]), 96, 96)
            for (left, top, right, bottom), mask in zip(
                target["boxes"].tolist(), target["masks"].numpy(), strict=True
            ):
                y, x = np.indices((96, 96)) + 0.5
                width, height = right - left, bottom - top
                away = abs(x - (left + right) / 2) / width + abs(y - (top + bottom) / 2) / height
                sure = abs(away - 0.5) > 1 / min(width, height)
                np.testing.assert_array_equal(mask[sure], (away < 0.5)[sure])
                seen += 1
    assert seen > 15


def test_torchvision_keypoints(tmp_path: Path) -> None:
    """Points as they are in the file, or those of the other side where the image is flipped."""
    port = load("torchvision_keypoints")
    root = made(port, "persons", tmp_path)
    file = json.loads((root / "persons.json").read_text())
    wanted = {
        image["file_name"]: np.array(own["keypoints"], np.float32).reshape(17, 3)
        for image, own in zip(file["images"], file["annotations"], strict=True)
    }
    feed = port.feeds(root, batch=4)
    source: Any = FeedSession.of(feed).source
    others = [0, *(k + (1 if k % 2 else -1) for k in range(1, 17))]
    flips = []
    for *batch, ids in feed.to_torch(yields=("image", "boxes", "keypoints", "box_counts", "id")):
        _, targets = port.targets(batch)
        for uri, target in zip(source.uris(np.asarray(ids)), targets, strict=True):
            (found,) = target["keypoints"].numpy()
            points = wanted[Path(uri).name]
            seen = points[:, 2] > 0
            points[seen, 1] += 12  # rows of the border above
            flipped = points[others]
            flipped[flipped[:, 2] > 0, 0] = 95 - flipped[flipped[:, 2] > 0, 0]
            flips.append(not np.allclose(found, points, atol=1e-3))
            np.testing.assert_allclose(found, flipped if flips[-1] else points, atol=1e-3)
            assert target["labels"].tolist() == [1]
    assert set(flips) == {False, True}


def test_diffusers_text_to_image(tmp_path: Path) -> None:
    port = load("diffusers_text_to_image")
    root = made(port, "captioned", tmp_path)
    lines = [json.loads(line) for line in (root / "metadata.jsonl").read_text().splitlines()]
    captions = {line["file_name"]: line["text"] for line in lines}
    feed = port.feeds(root)
    fields = {"pixel_values": "image", "input_ids": "input_ids", "id": "id"}
    source: Any = FeedSession.of(feed).source
    seen = set()
    for batch in feed.to_torch(yields=fields):
        names = [Path(uri).name for uri in source.uris(np.asarray(batch["id"]))]
        seen.update(names)
        wanted = port.data.tokens([captions[name] for name in names])
        np.testing.assert_array_equal(batch["input_ids"], wanted)
        pixels = as_bytes(batch["pixel_values"], 0.5, 0.5)
        for image, name in zip(pixels, names, strict=True):
            same = center(short_side(root / name, 64, Image.Resampling.LANCZOS), 64)
            flipped = np.abs(image - same).mean() > np.abs(image - same[:, ::-1]).mean()
            assert_close(image, same[:, ::-1] if flipped else same)
    assert seen == captions.keys()


def test_diffusers_sdxl(tmp_path: Path) -> None:
    port = load("diffusers_sdxl")
    root = made(port, "captioned", tmp_path)
    lines = [json.loads(line) for line in (root / "metadata.jsonl").read_text().splitlines()]
    captions = {line["file_name"]: line["text"] for line in lines}
    feed = port.feeds(root)
    fields = {name: name for name in ("input_ids", "transform", "original_size", "id")}
    source: Any = FeedSession.of(feed).source
    seen = set()
    for batch in feed.to_torch(yields=fields | {"pixel_values": "image"}):
        names = [Path(uri).name for uri in source.uris(np.asarray(batch["id"]))]
        seen.update(names)
        np.testing.assert_array_equal(
            batch["input_ids"], port.data.tokens([captions[name] for name in names])
        )
        pixels = as_bytes(batch["pixel_values"], 0.5, 0.5)
        for image, name, ids in zip(pixels, names, port.time_ids(batch).tolist(), strict=True):
            with Image.open(root / name) as opened:
                height, width = opened.height, opened.width
                ratios = [abs(math.log(width / height) - math.log(w / h)) for h, w in port.SIZES]
                high, wide = port.SIZES[ratios.index(min(ratios))]
                scale = max(high / height, wide / width)
                size = round(width * scale), round(height * scale)
                scaled = np.asarray(opened.resize(size, Image.Resampling.BILINEAR))
            assert ids[:2] == [height, width] and ids[4:] == [high, wide] == [*image.shape[:2]]
            top, left = ids[2:4]
            assert_close(image, scaled[top : top + high, left : left + wide])
    assert seen == captions.keys()


def test_diffusers_unconditional(tmp_path: Path) -> None:
    port = load("diffusers_unconditional")
    root = made(port, "captioned", tmp_path)
    feed = port.feeds(root, batch=5)
    batches = [batch["input"] for batch in feed.to_torch(yields={"input": "image"})]
    assert [tuple(batch.shape) for batch in batches] == [(5, 3, 64, 64)] * 6 + [(2, 3, 64, 64)]
    assert -1 <= min(float(batch.min()) for batch in batches) < -0.3
    assert sorted(name for name, _ in samples(feed, root)) == [f"{i:04}.jpg" for i in range(32)]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # webdataset's files
def test_open_clip_on_two_ranks(tmp_path: Path) -> None:
    port = load("open_clip_train")
    require("webdataset")
    import webdataset

    root = made(port, "tars", tmp_path)
    shards = [str(path) for path in sorted(root.glob("*.tar"))]
    dataset = webdataset.WebDataset(shards, shardshuffle=False).decode("pil").to_tuple("jpg", "txt")
    wanted = sorted(port.data.tokens([text])[0].tolist() for _, text in dataset)
    found = []
    for rank in range(2):
        feed = port.feeds(root, batch=3, world=ff.World(rank, 2))
        for images, tokens in feed.to_torch(yields=("image", "tokens")):
            assert images.shape == (3, 3, 64, 64)
            found += tokens.tolist()
    assert sorted(found) == wanted


def test_pytorch_siamese(tmp_path: Path) -> None:
    port = load("pytorch_siamese")
    root = made(port, "class_folders", tmp_path)
    feed = port.feeds(root, batch=8)
    source: Any = FeedSession.of(feed).source
    count = 0
    for batch in feed:
        firsts, seconds = (
            [Path(uri).parent.name for uri in each.uris(batch.ids)]
            for each in source.together.values()
        )
        alike = [a == b for a, b in zip(firsts, seconds, strict=True)]
        assert batch.labels.tolist() == alike and set(alike) == {True, False}
        count += len(batch)
    assert count == 48


def test_pml_triplet(tmp_path: Path) -> None:
    port = load("pml_triplet")
    root = made(port, "mnist", tmp_path)
    train, test = port.feeds(root)
    there = {
        part: np.frombuffer((root / f"{part}-images-idx3-ubyte").read_bytes()[16:], np.uint8)
        for part in ("train", "t10k")
    }
    wanted = (there["t10k"].reshape(-1, 1, 28, 28) / 255 - 0.1307) / 0.3081
    found = np.concatenate([np.asarray(images) for images, _ in test.to_torch()])
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    ids = []
    for batch in train:
        assert np.bincount(batch.labels).tolist() == [4, 4, 4]
        assert (batch.labels.reshape(3, 4) == batch.labels[::4, None]).all()
        ids += batch.ids.tolist()
    assert sorted(ids) == list(range(48)) == sorted(range(len(there["train"]) // 784))


def test_ffcv_cifar(tmp_path: Path) -> None:
    port = load("ffcv_cifar")
    root = made(port, "cifar", tmp_path)
    train, test = port.feeds(root)
    there = np.load(root / "test.npz")
    found = [tuple(map(np.asarray, batch)) for batch in test.to_torch()]
    images, labels = map(np.concatenate, zip(*found, strict=True))
    assert labels.tolist() == there["labels"].tolist()
    mean, std = np.array([125.307, 122.961, 113.8575]), np.array([51.5865, 50.847, 51.255])
    wanted = (there["images"] - mean) / std
    np.testing.assert_allclose(images.transpose(0, 2, 3, 1), wanted, atol=1e-5)
    assert len(train) == 48 // 16
    for images, _ in train.to_torch():
        pixels = as_bytes(images, mean / 255, std / 255)
        hidden = (np.abs(pixels - [125, 122, 113]) < 0.01).all(axis=-1).sum(axis=(1, 2))
        assert hidden.min() >= 4  # a square of 4 x 4, of which a border may cut 2 each way


def test_mosaic_cifar(tmp_path: Path) -> None:
    port = load("mosaic_cifar")
    root = made(port, "mds", tmp_path / "mds")
    program = """
from streaming import LocalDataset
found = {}
for part in "train", "test":
    samples = LocalDataset(f"{sys.argv[1]}/{part}")
    found[part] = [[s["x"].convert("RGB").tobytes().hex(), s["y"]] for s in map(samples.__getitem__, range(len(samples)))]
json.dump(found, sys.stdout)
"""
    there = json.loads(streaming(program, str(root), folder=tmp_path))
    labels = []
    for rank in range(2):
        train, test = port.feeds(root, batch=8, world=ff.World(rank, 2))
        assert len(train) == len(there["train"]) // 16
        labels += [label for batch in train for label in batch.labels.tolist()]
        for batch in test:
            own = batch.weights > 0
            mean, std = np.array([0.4914, 0.4822, 0.4465]), np.array([0.247, 0.243, 0.261])
            pixels = as_bytes(batch.images[own], mean, std).round().astype(np.uint8)
            for i, *sample in zip(batch.ids[own], pixels, batch.labels[own], strict=True):
                assert [sample[0].tobytes().hex(), sample[1]] == there["test"][i]
    assert sorted(labels) == sorted(label for _, label in there["train"])


def test_transformers_classification(tmp_path: Path) -> None:
    port = load("transformers_classification")
    root = made(port, "class_folders", tmp_path)
    feeds = port.feeds(root)
    assert [feed.plan.length for feed in feeds] == [41, 7]
    seen = [sample for feed in feeds for sample in samples(feed, root / "train")]
    assert sorted(seen) == folder_samples(root / "train")
    train, val = map(list, port.loaders(*feeds))
    for batches, rows in (train, 41), (val, 7):
        assert all(batch.keys() == {"pixel_values", "labels"} for batch in batches)
        assert sum(len(batch["labels"]) for batch in batches) == rows
        assert batches[0]["pixel_values"].shape[1:] == (3, 64, 64)
    paths = [root / "train" / name for name, _ in samples(feeds[1], root / "train")]
    wanted = np.stack([center(short_side(path, 64), 64) for path in paths])
    assert_close(as_bytes(val[0]["pixel_values"]), wanted)


def test_transformers_segmentation(tmp_path: Path) -> None:
    port = load("transformers_segmentation")
    root = made(port, "segmented", tmp_path) / "train"
    feeds = port.feeds(root)
    assert [feed.plan.length for feed in feeds] == [20, 4]
    train, val = map(list, port.loaders(*feeds))
    for batch in train:
        assert batch["pixel_values"].shape[1:] == (3, 48, 48)
        assert batch["labels"].dtype == torch.int64
        assert set(np.unique(batch["labels"])) <= {0, 1, 2, 255}
    names = [Path(name).stem for feed in feeds for name, _ in samples(feed, root / "images")]
    assert sorted(names) == sorted(path.stem for path in (root / "images").iterdir())
    wanted, pixels = [], []
    for name in names[-4:]:
        pixels.append(resized(root / "images" / f"{name}.jpg", (48, 48)))
        mask = Image.open(root / "masks" / f"{name}.png").resize((48, 48), Image.Resampling.NEAREST)
        classes = np.asarray(mask).astype(np.int64) - 1
        wanted.append(np.where((classes < 0) | (classes == 254), 255, classes))
    np.testing.assert_array_equal(val[0]["labels"], np.stack(wanted))
    assert_close(as_bytes(val[0]["pixel_values"]), np.stack(pixels))


def test_kaggle_cassava(tmp_path: Path) -> None:
    port = load("kaggle_cassava")
    root = made(port, "table", tmp_path)
    lines = [line.split(",") for line in (root / "train.csv").read_text().splitlines()[1:]]
    labels = {name: int(label) for name, label, *_ in lines}
    predicted: dict[str, int] = {}
    for fold in range(5):
        train, held_out, val = port.feeds(root, fold)
        own = dict(samples(held_out, root / "photos"))
        assert np.bincount(list(own.values())).tolist() == [4, 4, 4]  # 20 of each class
        others = dict(samples(train, root / "photos"))
        assert own | others == labels and not own.keys() & others.keys()
        truth = iter([labels[name] for name, _ in samples(held_out, root / "photos")])

        def model(images: Any, truth: Any = truth) -> Any:
            return torch.eye(3)[[next(truth) for _ in images]]

        predicted |= port.predictions(model, held_out, val)
    assert predicted == labels


@pytest.mark.parametrize("name", PORTS_OF)
def test_they_train_on_data_of_their_own_making(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "loss" in output_of(name, monkeypatch, capsys)
