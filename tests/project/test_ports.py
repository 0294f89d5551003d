"""Ports of public training programs give the data that the originals give.

The original's data path is built with the original's library where it is installed, else with
Pillow from what its documentation says, on the same files. Pixels of resized images may differ by
little: see docs/coming_from.md.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from conftest import ROOT
from helpers.needs import require
from PIL import Image

import fastfeed as ff
from fastfeed.feed.session import FeedSession

pytestmark = pytest.mark.slow

PORTS = ROOT / "examples" / "ports"
HELPERS = {"data", "torch_steps"}
NEEDS = {  # packages of each port
    "diffusers_text_to_image": ("torch",),
    "diffusers_unconditional": ("torch",),
    "keras_autoencoder": ("keras", "tensorflow"),
    "keras_captcha": ("keras", "tensorflow"),
    "keras_from_scratch": ("keras", "tensorflow"),
    "keras_pets": ("keras", "tensorflow"),
    "open_clip_train": ("torch",),
    "pytorch_imagenet": ("torch",),
    "pytorch_siamese": ("torch",),
    "timm_train": ("torch",),
    "torchvision_classification": ("torch",),
    "torchvision_detection": ("torch",),
    "torchvision_segmentation": ("torch",),
}
MEAN = np.array([0.485, 0.456, 0.406])
STD = np.array([0.229, 0.224, 0.225])


@pytest.fixture(autouse=True)
def _import_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(PORTS))
    yield
    for name in (*HELPERS, *NEEDS):
        sys.modules.pop(name, None)


def load(name: str) -> ModuleType:
    """A port as a module; skipped without its packages."""
    require(*NEEDS[name])
    return importlib.import_module(name)


def made(port: ModuleType, form: str, folder: Path) -> Path:
    """Data of one form, as the port makes it."""
    getattr(port.data, form)(folder)
    return folder


def samples(feed: ff.Feed, root: Path) -> list[tuple[str, Any]]:
    """Paths below a folder, and labels, of an epoch in its order; padding is left out."""
    found: list[tuple[str, Any]] = []
    source: Any = FeedSession.of(feed).source
    for batch in feed:
        own = batch.weights > 0
        paths = [Path(uri).relative_to(root) for uri in source.uris(batch.ids[own])]
        found += zip(map(str, paths), batch.labels[own].tolist(), strict=True)
    return found


def folder_samples(root: Path) -> list[tuple[str, int]]:
    """Files below folders of classes and their labels, sorted, as torchvision's ImageFolder."""
    classes = sorted(path.name for path in root.iterdir())
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return [(str(path.relative_to(root)), classes.index(path.parent.name)) for path in files]


def short_side(path: Path, side: int, filter: Any = Image.Resampling.BILINEAR) -> Image.Image:
    """An image whose short side is scaled to `side`, as torchvision's Resize does with Pillow."""
    image = Image.open(path).convert("RGB")
    width, height = (max(side, int(side * s / min(image.size))) for s in image.size)
    return image.resize((width, height), filter)


def resized(path: Path, size: tuple[int, int]) -> np.ndarray:
    """An image of exactly (height, width), antialiased: uint8 (height, width, 3)."""
    image = Image.open(path).convert("RGB")
    return np.asarray(image.resize(size[::-1], Image.Resampling.BILINEAR))


def center(image: Image.Image, side: int) -> np.ndarray:
    """The middle of an image: uint8 (side, side, 3)."""
    left, top = (round((length - side) / 2) for length in image.size)
    return np.asarray(image.crop((left, top, left + side, top + side)))


def assert_close(images: np.ndarray, wanted: np.ndarray) -> None:
    """Pixels of another library's resizing, on the scale of bytes."""
    assert images.shape == wanted.shape
    assert np.abs(images - wanted).mean() < 2


def as_bytes(images: Any, mean: Any = MEAN, std: Any = STD) -> np.ndarray:
    """Normalized CHW images on the scale of bytes, HWC."""
    return 255 * (np.asarray(images).transpose(0, 2, 3, 1) * std + mean)


def assert_validates(val: ff.Feed, root: Path, wanted: np.ndarray) -> None:
    """All files in order, with the last batch cut, and these pixels."""
    files = folder_samples(root)
    assert samples(val, root) == files
    batches = [tuple(map(np.asarray, batch)) for batch in val.to_torch()]
    assert sum(len(labels) for _, labels in batches) == len(files)
    assert len(batches) == len(val) == -(-len(files) // val.plan.batch)
    assert_close(np.concatenate([as_bytes(images) for images, _ in batches]), wanted)


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
    ("name", "resized", "cropped", "least", "filter"),
    [
        ("torchvision_classification", 232, 224, 0.0, Image.Resampling.BILINEAR),
        ("timm_train", 73, 64, 0.1 / 3, Image.Resampling.BICUBIC),
    ],
)
def test_recipes_with_mixed_labels(
    name: str, resized: int, cropped: int, least: float, filter: Any, tmp_path: Path
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
    assert shares.min() == pytest.approx(least) and len(np.unique(shares.round(4))) > 6
    paths = [root / "val" / name for name, _ in folder_samples(root / "val")]
    wanted = np.stack([center(short_side(path, resized, filter), cropped) for path in paths])
    assert_validates(val, root / "val", wanted)


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
        pixels.append(np.asarray(image.resize((52, 52), Image.Resampling.BILINEAR)))
        classes.append(np.asarray(mask.resize((52, 52), Image.Resampling.NEAREST)))
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
        if not each["iscrowd"]:
            own = (each["bbox"], 1 + kinds.index(each["category_id"]))
            wanted.setdefault(names[each["image_id"]], []).append(own)
    source: Any = FeedSession.of(feed).source
    seen = []
    fields = ("image", "boxes", "box_labels", "box_counts", "id")
    for *batch, ids in feed.to_torch(yields=fields):
        images, targets = port.targets(batch)
        assert len(images) == 4
        for uri, target in zip(source.uris(np.asarray(ids)), targets, strict=True):
            seen.append(Path(uri).name)
            [((x, y, width, height), kind)] = wanted[seen[-1]]
            assert target["labels"].tolist() == [kind]
            left = [x, 96 - x - width]  # as it is, or flipped; 12 rows above 72
            boxes = [[at, y + 12, at + width, y + 12 + height] for at in left]
            assert target["boxes"].tolist()[0] in boxes
    assert len(seen) == len(set(seen)) == len(wanted) // 4 * 4
    assert set(seen) <= set(wanted)


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
            same = center(short_side(root / name, 64), 64)
            flipped = np.abs(image - same).mean() > np.abs(image - same[:, ::-1]).mean()
            assert_close(image, same[:, ::-1] if flipped else same)
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


def test_keras_from_scratch(tmp_path: Path) -> None:
    port = load("keras_from_scratch")
    import keras

    root = made(port, "class_folders", tmp_path) / "train"
    feeds = port.feeds(root)
    for feed, subset in zip(feeds, ("training", "validation"), strict=True):
        dataset = keras.utils.image_dataset_from_directory(
            root,
            validation_split=0.2,
            subset=subset,
            seed=1337,
            image_size=(64, 64),
            batch_size=8,
            verbose=False,
        )
        assert len(feed) == len(dataset)
        paths = [str(Path(path).relative_to(root)) for path in dataset.file_paths]
        labels = [sorted(port.data.CLASSES).index(path.split("/")[0]) for path in paths]
        assert sorted(samples(feed, root)) == sorted(zip(paths, labels, strict=True))
    found = list(feeds[1])
    wanted = [resized(root / name, (64, 64)) for name, _ in samples(feeds[1], root)]
    pixels = np.concatenate([batch.images[batch.weights > 0] for batch in found])
    assert pixels.dtype == np.float32
    assert_close(255 * pixels, np.stack(wanted))


def test_keras_autoencoder() -> None:
    port = load("keras_autoencoder")
    images = port.data.digits()
    feed = port.feeds(images, shuffle=False)
    assert len(feed) == len(images) // 16
    noisy, clean = (np.concatenate([batch[name] for batch in feed]) for name in ("noisy", "clean"))
    wanted = images.astype("float32")[..., None].repeat(3, axis=-1) / 255
    np.testing.assert_allclose(clean, wanted, atol=1e-6)
    rng = np.random.default_rng(0)
    noise = np.clip(wanted + 0.4 * rng.normal(size=wanted.shape), 0, 1) - wanted
    assert noisy.min() == 0 and noisy.max() == 1
    np.testing.assert_allclose((noisy - wanted).std(), noise.std(), rtol=0.03)
    np.testing.assert_allclose((noisy - wanted).mean(), noise.mean(), atol=0.01)


def test_keras_captcha(tmp_path: Path) -> None:
    port = load("keras_captcha")
    import keras

    root = made(port, "captchas", tmp_path)
    train, val, letters = port.feeds(root)
    assert (train.plan.length, val.plan.length) == (36, 4)
    lookup = keras.layers.StringLookup(vocabulary=letters, mask_token=None)
    texts: list[str] = []
    for feed in train, val:
        for batch in feed:
            own = batch.weights > 0
            names = list(batch.labels[own])
            wanted = [np.asarray(lookup(list(text))) for text in names]
            np.testing.assert_array_equal(batch["letters"][own], wanted)
            gray = [Image.open(root / f"{name}.png").convert("L") for name in names]
            turned = np.stack([np.asarray(image).T[..., None] for image in gray])
            assert_close(255 * batch["turned"][own], turned)
            texts += names
    assert sorted(texts) == sorted(path.stem for path in root.glob("*.png"))


def test_keras_pets(tmp_path: Path) -> None:
    port = load("keras_pets")
    root = made(port, "trimaps", tmp_path)
    train, val = port.feeds(root)
    seen = []
    source: Any = FeedSession.of(train).source
    for feed in train, val:
        source = FeedSession.of(feed).source
        for batch in feed:
            for i, uri in enumerate(source.uris(batch.ids)):
                seen.append(Path(uri).stem)
                mask = Image.open(root / "masks" / f"{seen[-1]}.png")
                wanted = np.asarray(mask.resize((64, 64), Image.Resampling.NEAREST)) - 1
                np.testing.assert_array_equal(batch["masks"][i], wanted)
    assert (len(train), len(val)) == (4, 2)
    assert sorted(seen) == sorted(path.stem for path in (root / "images").iterdir())


@pytest.mark.parametrize("name", sorted(NEEDS))
def test_ports_train_on_data_of_their_own_making(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    port = load(name)
    monkeypatch.setattr(sys, "argv", [name, "--steps", "2"])
    port.main()
    assert "loss" in capsys.readouterr().out


def test_the_table_counts_lines() -> None:
    """Code lines of `feeds` and `targets`, at most half of the original's, as the docs tell."""
    assert {path.stem for path in PORTS.glob("*.py")} - HELPERS == NEEDS.keys()
    page = (ROOT / "docs" / "coming_from.md").read_text()
    rows = re.findall(
        r"^\| \[[^]]+\]\(\S+\) \| `(\w+)\.py` \| (\d+) \| (\d+) \|", page, re.MULTILINE
    )
    assert {name for name, _, _ in rows} == NEEDS.keys()
    for name, there, here in rows:
        tree = ast.parse((PORTS / f"{name}.py").read_text())
        own = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        text = (PORTS / f"{name}.py").read_text().splitlines()
        lines = sum(
            bool(line.strip())
            for node in own
            if node.name != "main"
            for line in text[node.lineno - 1 : node.end_lineno]
        )
        assert (name, int(here)) == (name, lines)
        assert 2 * lines <= int(there), name
