"""Ports give the data that the originals' own libraries give, on the same files.

FFCV and Horovod, which have to be compiled, are not among these libraries.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.needs import LazyModule, needs
from helpers.opencv_ops.chain import run
from helpers.photos import picture
from helpers.ports import MEAN, STD, as_bytes, folder_samples, load, made, parsed, samples
from PIL import Image

import fastfeed as ff
from fastfeed.feed.session import FeedSession
from fastfeed.ops import timm_policy
from fastfeed.ops.program.layers import Choices, Layer

pytestmark = pytest.mark.slow
albumentations: Any = LazyModule("albumentations")
auto_augment: Any = LazyModule("timm.data.auto_augment")
clip: Any = LazyModule("open_clip.transform")
coco: Any = LazyModule("pycocotools.coco")
datasets: Any = LazyModule("datasets")
optax: Any = LazyModule("optax")
presets: Any = LazyModule("torchvision.transforms._presets")
tf: Any = LazyModule("tensorflow")
timm: Any = LazyModule("timm.data")
timm_mixup: Any = LazyModule("timm.data.mixup")
torch: Any = LazyModule("torch")
torch_data: Any = LazyModule("torch.utils.data")
transformers: Any = LazyModule("transformers")
tv: Any = LazyModule("torchvision.datasets")
v1: Any = LazyModule("torchvision.transforms")

AUGMENTED = "rand-m9-mstd0.5-inc1"  # timm's usual --aa
RESAMPLED = 0.75  # mean distance of two antialiased resizings, in bytes
ALIASED = 2.0  # the same, of one that is not antialiased


def with_torchvision(side: int, cropped: int, filter: str = "bilinear", **values: Any) -> Any:
    """Resize, CenterCrop, ToTensor and Normalize."""
    values = values or {"mean": MEAN, "std": STD}
    resized = v1.Resize(side, interpolation=v1.InterpolationMode(filter))
    steps = [resized, v1.CenterCrop(cropped), v1.ToTensor(), v1.Normalize(**values)]
    return v1.Compose(steps)


def with_timm(**options: Any) -> Any:
    return timm.create_transform(64, crop_pct=0.875, interpolation="bicubic", **options)


def ops_of(feed: ff.Feed, kind: type) -> list[Any]:
    """The ops of one kind, in order."""
    steps = FeedSession.of(feed).program.steps
    return [step.op for step in steps if isinstance(step.op, kind)]


def distance(images: Any, wanted: Any) -> float:
    """Mean of normalized CHW images' distances, on the scale of bytes."""
    assert np.shape(images) == np.shape(wanted)
    return float(np.abs(as_bytes(images) - as_bytes(wanted)).mean())


@pytest.mark.parametrize(
    ("name", "transform", "drop_last"),
    [
        pytest.param(
            "pytorch_imagenet",
            lambda: with_torchvision(256, 224),
            False,
            marks=needs("torchvision"),
        ),
        pytest.param(
            "torchvision_classification",
            lambda: presets.ImageClassification(crop_size=224, resize_size=232),
            False,
            marks=needs("torchvision"),
        ),
        pytest.param("timm_train", lambda: with_timm(is_training=False), True, marks=needs("timm")),
    ],
)
def test_classification(
    name: str, transform: Callable[[], Any], drop_last: bool, tmp_path: Path
) -> None:
    """Order, labels, pixels and steps."""
    port = load(name)
    port.data.class_folders(tmp_path, train=50)
    train, val = port.feeds(tmp_path, batch=8)
    there = tv.ImageFolder(tmp_path / "val", transform())
    assert samples(val, tmp_path / "val") == [
        (str(Path(path).relative_to(tmp_path / "val")), label) for path, label in there.samples
    ]
    wanted = np.stack([image for image, _ in there])
    found = np.concatenate([np.asarray(images) for images, _ in val.to_torch()])
    assert distance(found, wanted) < RESAMPLED

    folder = tv.ImageFolder(tmp_path / "train")
    assert len(train) == len(torch_data.DataLoader(folder, 8, shuffle=True, drop_last=drop_last))
    rank, _ = port.feeds(tmp_path, batch=4, world=ff.World(1, 2))
    sampler = torch_data.DistributedSampler(folder, 2, 1)
    loader = torch_data.DataLoader(folder, 4, sampler=sampler, drop_last=drop_last)
    assert len(rank) == len(loader)


@needs("torchvision")
def test_transformers_classification(tmp_path: Path) -> None:
    port = load("transformers_classification")
    root = made(port, "class_folders", tmp_path)
    feed = port.feeds(root)[1]
    there = dict(tv.ImageFolder(root / "train", with_torchvision(64, 64)).samples)
    names = samples(feed, root / "train")
    assert [there[str(root / "train" / name)] for name, _ in names] == [k for _, k in names]


@pytest.mark.parametrize(
    ("name", "form", "crop"),
    [
        pytest.param(
            "pytorch_imagenet",
            "class_folders",
            lambda: v1.RandomResizedCrop(224),
            marks=needs("torchvision"),
        ),
        pytest.param(
            "timm_train",
            "class_folders",
            lambda: with_timm(is_training=True).transforms[0],
            marks=needs("timm"),
        ),
        pytest.param(
            "open_clip_train",
            "tars",
            lambda: clip.image_transform(64, is_train=True).transforms[0],
            marks=needs("open_clip"),
        ),
    ],
)
def test_random_crops(name: str, form: str, crop: Callable[[], Any], tmp_path: Path) -> None:
    port = load(name)
    feeds = port.feeds(made(port, form, tmp_path))
    (op,) = ops_of(feeds if isinstance(feeds, ff.Feed) else feeds[0], ff.RandomResizedCrop)
    there = crop()
    assert np.broadcast_to(op.size, 2).tolist() == list(there.size)
    assert op.scale == pytest.approx(there.scale) and op.ratio == pytest.approx(there.ratio)
    assert op.filter == there.interpolation.value


@needs("open_clip")
def test_open_clip_values(tmp_path: Path) -> None:
    port = load("open_clip_train")
    (op,) = ops_of(port.feeds(made(port, "tars", tmp_path)), ff.Normalize)
    there = clip.image_transform(64, is_train=True).transforms[-1]
    assert (op.mean, op.std) == (tuple(there.mean), tuple(there.std))


@needs("timm")
@pytest.mark.parametrize("config", ["rand-m9-inc1-p1", "rand-m9-p1", "rand-m4-p1-t3aw"])
def test_timm_rand_augment(config: str, tmp_path: Path) -> None:
    """The text of the port; and each op on a photograph, by Pillow, in either direction."""
    port = load("timm_train")
    train, _ = port.feeds(made(port, "class_folders", tmp_path))
    (op,) = ops_of(train, ff.TimmRandAugment)
    assert op.config == AUGMENTED and op.fill == tuple(round(255 * x) for x in MEAN)
    hints = {"img_mean": op.fill, "interpolation": Image.Resampling.BILINEAR}
    there = auto_augment.rand_augment_transform(config, hints)
    ours = ff.TimmRandAugment(config)
    settings = timm_policy._settings(config)
    names = [each.name.removesuffix("Increasing") for each in there.ops]
    assert (there.num_layers, names) == (len(ours.layers), list(settings.names))
    image = picture(3, (60, 80), 3)
    sizes = np.array([[60, 80]])
    for name, each in zip(names, there.ops, strict=True):
        wanted = [np.asarray(each(Image.fromarray(image)), float) for _ in range(12)]
        simple = timm_policy._op(name, ours)
        for sign in (-1.0, 1.0):
            share = np.array([min(each.magnitude / 10, 1)])
            on = {name: np.array([True])}
            if "Desaturate" in names:
                on |= {"Desaturate": np.array([name == "Desaturate"])}
            args = (on, share, np.array([sign]), settings.increasing, sizes)
            values = timm_policy._values(simple, *args)
            got = run((Layer((simple,)),), [Choices(np.zeros(1, int), (values,))], 0, image.copy())
            apart = min(np.abs(got - want).mean() for want in wanted)
            assert apart < 2.5, (name, sign, apart)  # warps of Pillow end abruptly


@needs("timm")
def test_timm_erasing(tmp_path: Path) -> None:
    port = load("timm_train")
    train, _ = port.feeds(made(port, "class_folders", tmp_path))
    (op,) = ops_of(train, ff.RandomErasing)
    there = with_timm(is_training=True, re_prob=0.25, re_mode="pixel").transforms[-1]
    assert op.p == there.probability
    assert op.scale == pytest.approx((there.min_area, there.max_area))
    assert np.log(op.ratio) == pytest.approx(there.log_aspect_ratio, abs=0.02)
    noise = there(torch.zeros(64, 3, 64, 64)).numpy()
    noise = noise[noise != 0].std() * 255 * STD.mean()
    white = ff.Arrays(np.full((64, 64, 64, 3), 255, np.uint8))
    erased = next(iter(ff.Feed(white, [ff.RandomErasing(1.0, fill=op.fill)], batch=64))).images
    assert erased[erased < 255].std() == pytest.approx(noise, rel=0.1)


@pytest.mark.parametrize(
    "smoothed",
    [
        pytest.param(
            lambda labels: timm_mixup.mixup_target(torch.tensor(labels), 3, smoothing=0.1),
            marks=needs("timm"),
            id="timm",
        ),
        pytest.param(
            lambda labels: optax.smooth_labels(np.eye(3)[labels], 0.1),
            marks=needs("optax"),
            id="optax",
        ),
    ],
)
def test_smoothed_labels(smoothed: Callable[[list[int]], Any]) -> None:
    labels = [0, 2, 1, 1]
    source = ff.Arrays(np.zeros((4, 8, 8, 3), np.uint8), labels, classes=("a", "b", "c"))
    feed = ff.Feed(source, [ff.LabelSmoothing(0.1)], batch=4, shuffle=False)
    np.testing.assert_allclose(next(iter(feed)).labels, smoothed(labels), atol=1e-6)


@needs("datasets", "torchvision")
def test_diffusers_text_to_image(tmp_path: Path) -> None:
    """Captions and pixels of an "imagefolder"."""
    port = load("diffusers_text_to_image")
    root = made(port, "captioned", tmp_path / "images")
    rows = datasets.load_dataset(
        "imagefolder", data_dir=str(root), split="train", cache_dir=str(tmp_path / "cache")
    )
    transform = with_torchvision(64, 64, "lanczos", mean=[0.5], std=[0.5])
    wanted = {row["text"]: transform(row["image"].convert("RGB")).numpy() for row in rows}
    assert len(wanted) == 32
    feed = port.feeds(root, tokenize=lambda texts: np.arange(len(texts)), batch=5)
    assert len(feed) == len(torch_data.DataLoader(rows, 5, shuffle=True))
    seen: list[str] = []
    for batch in feed:
        own = batch.weights > 0
        for image, text in zip(batch.images[own], batch["text"][own], strict=True):
            seen.append(text)
            there = wanted[text]
            distances = [distance([image], [each]) for each in (there, there[..., ::-1])]
            assert min(distances) < RESAMPLED
    assert sorted(seen) == sorted(wanted)


@needs("datasets")
def test_parquet(tmp_path: Path) -> None:
    """Rows, labels, captions and pixels of a folder of two Parquet files."""
    images = tmp_path / "images"
    load("transformers_classification").data.class_folders(images, train=10, val=0)
    files = folder_samples(images / "train")
    columns = {
        "image": [{"bytes": (images / "train" / name).read_bytes()} for name, _ in files],
        "label": [label for _, label in files],
        "caption": [f"number {i}" for i in range(10)],
    }
    features = {
        "image": datasets.Image(),
        "label": datasets.ClassLabel(names=["arch", "bridge", "tower"]),
        "caption": datasets.Value("string"),
    }
    rows = datasets.Dataset.from_dict(columns, features=datasets.Features(features))
    folder = tmp_path / "parquet"
    folder.mkdir()
    for shard in range(2):
        path = folder / f"train-{shard:05}-of-00002.parquet"
        rows.shard(2, shard, contiguous=True).to_parquet(str(path))
    cache = str(tmp_path / "cache")
    there = datasets.load_dataset("parquet", data_dir=str(folder), split="train", cache_dir=cache)
    source = ff.HuggingFace(folder, split="train", columns=["caption"])
    (batch,) = ff.Feed(source, [ff.Resize((72, 96))], batch=10, shuffle=False)
    assert batch.labels.tolist() == list(there["label"]) == columns["label"]
    assert list(batch["caption"]) == list(there["caption"])
    assert source.classes == tuple(there.features["label"].names)
    for image, row in zip(batch.images, there, strict=True):
        np.testing.assert_allclose(image, np.asarray(row["image"]), atol=2)


@needs("datasets")
def test_split_sizes() -> None:
    """datasets rounds the held-out part up, a split here to the nearest."""
    rows = datasets.Dataset.from_dict({"label": list(range(48))}).train_test_split(0.15)
    source = ff.Arrays(np.zeros((48, 1, 1, 3), np.uint8))
    sides = ff.split(source, {"train": 0.85, "validation": 0.15}, by="random")
    assert abs(len(sides["validation"]) - len(rows["test"])) <= 1


def segmented(tmp_path: Path) -> tuple[Any, list[Any], list[Any]]:
    """The held-out batch of transformers_segmentation, and its images and masks."""
    port = load("transformers_segmentation")
    root = made(port, "segmented", tmp_path) / "train"
    val = port.feeds(root)[1]
    stems = [Path(name).stem for name, _ in samples(val, root / "images")]
    images = [Image.open(root / "images" / f"{stem}.jpg").convert("RGB") for stem in stems]
    masks = [Image.open(root / "masks" / f"{stem}.png") for stem in stems]
    _, loader = port.loaders(val, val)
    return next(iter(loader)), images, masks


@needs("albumentations")
def test_transformers_segmentation(tmp_path: Path) -> None:
    """albumentations takes pixels without a mean, and masks half a pixel off."""
    batch, images, masks = segmented(tmp_path)
    there = albumentations.Compose([albumentations.Resize(48, 48), albumentations.Normalize()])
    for i, (image, mask) in enumerate(zip(images, masks, strict=True)):
        classes = np.asarray(mask).copy()
        classes[classes == 0] = 255
        classes -= 1
        classes[classes == 254] = 255
        both = there(image=np.asarray(image), mask=classes)
        assert distance(batch["pixel_values"][i : i + 1], [both["image"].transpose(2, 0, 1)]) < (
            ALIASED
        )
        assert np.mean(np.asarray(batch["labels"][i]) == both["mask"]) > 0.9


@needs("transformers", "torchvision")
def test_segformer_processor(tmp_path: Path) -> None:
    batch, images, masks = segmented(tmp_path)
    size = {"height": 48, "width": 48}
    processor = transformers.SegformerImageProcessor(size=size, do_reduce_labels=True)
    there = processor(images=images, segmentation_maps=masks, return_tensors="pt")
    assert distance(batch["pixel_values"], there["pixel_values"]) < RESAMPLED
    np.testing.assert_array_equal(batch["labels"], there["labels"])


@needs("torchvision")
def test_torchvision_segmentation(tmp_path: Path) -> None:
    port = load("torchvision_segmentation")
    root = made(port, "segmented", tmp_path) / "val"
    _, val = port.feeds(tmp_path)
    nearest = v1.Resize((52, 52), v1.InterpolationMode.NEAREST)
    values = [v1.Resize((52, 52)), v1.ToTensor(), v1.Normalize(MEAN, STD)]
    transform = v1.Compose(values)
    (batch,) = val
    for i, path in enumerate(sorted((root / "images").iterdir())):
        assert distance(batch.images[i : i + 1], [transform(Image.open(path))]) < RESAMPLED
        mask = nearest(Image.open(root / "masks" / f"{path.stem}.png"))
        np.testing.assert_array_equal(batch["masks"][i], np.asarray(mask))


@needs("torchvision", "pycocotools")
def test_torchvision_detection(tmp_path: Path) -> None:
    """Images with annotations, their boxes, and labels in the order of COCO's categories."""
    port = load("torchvision_detection")
    root = made(port, "coco", tmp_path)
    there = tv.CocoDetection(root / "images", root / "instances.json")
    kinds = sorted(there.coco.getCatIds())
    wanted = {}
    for i, number in enumerate(there.ids):
        annotated = there[i][1]  # if any, torchvision's references train on it
        rows = [row for row in annotated if not row["iscrowd"]]
        labels = [1 + kinds.index(row["category_id"]) for row in rows]
        if annotated:
            file = there.coco.loadImgs(number)[0]["file_name"]
            wanted[file] = sorted(zip(labels, [row["bbox"][2:] for row in rows], strict=True))
    feed = port.feeds(root, batch=1)
    source: Any = FeedSession.of(feed).source
    seen = {}
    for *batch, ids in feed.to_torch(yields=("image", "boxes", "box_labels", "box_counts", "id")):
        _, (target,) = port.targets(batch)
        boxes = target["boxes"].numpy()
        sides = (boxes[:, 2:] - boxes[:, :2]).tolist()
        file = Path(source.uris(np.asarray(ids))[0]).name
        seen[file] = sorted(zip(target["labels"].tolist(), sides, strict=True))
    assert seen == wanted


@needs("pycocotools")
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # its own
def test_torchvision_masks(tmp_path: Path) -> None:
    """Masks of pycocotools, but for pixels at the edges, where no image is flipped."""
    port = load("torchvision_masks")
    root = made(port, "polygons", tmp_path)
    there = coco.COCO(root / "instances.json")
    source = ff.Objects.coco(root / "images", root / "instances.json", draw="instances")
    found = source.objects(np.arange(len(source)))
    assert found is not None and found.shapes is not None
    rows = np.repeat(np.arange(len(source)), found.counts)
    numbers = {image["file_name"]: number for number, image in there.imgs.items()}
    for row, shape in zip(rows.tolist(), found.shapes, strict=True):
        own = there.loadAnns(there.getAnnIds(numbers[Path(source.uri(row)).name], iscrowd=False))
        mask = there.annToMask(own[0])  # all diamonds of an image are one
        assert (shape.pixels(mask.shape) != mask).sum() < 0.1 * mask.sum()


@needs("tensorflow")
def test_flax_imagenet(tmp_path: Path) -> None:
    """The middle of each image, cut and then resized, as Flax's example does.

    Its default, the fast DCT, is 1 byte off in the mean.
    """
    port = load("flax_imagenet")
    port.data.records(tmp_path, ("image", "label"), 0)
    _, val = port.feeds(tmp_path, side=128, resized=144)
    found = np.concatenate([batch.images[batch.weights > 0] for batch in val])
    wanted = []
    for jpeg, _ in parsed(tmp_path, "validation", "image", "label"):
        height, width, _ = tf.io.extract_jpeg_shape(jpeg).numpy()
        side = 128 * min(height, width) // 144
        window = [(height - side + 1) // 2, (width - side + 1) // 2, side, side]
        middle = tf.io.decode_and_crop_jpeg(jpeg, window, channels=3, dct_method="INTEGER_ACCURATE")
        pixels = tf.image.resize(middle, (128, 128), method="bicubic")
        wanted.append((pixels.numpy() / 255 - MEAN) / STD)
    chw = (np.stack(each).transpose(0, 3, 1, 2) for each in (found, wanted))
    assert distance(*chw) < RESAMPLED
