"""`ff.timm.create_loader` next to timm's own: arguments, labels, steps and pixels."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers.needs import LazyModule, needs
from helpers.photos import folder

import fastfeed as ff
from fastfeed.errors import ConfigError

timm_data: Any = LazyModule("timm.data")
torch: Any = LazyModule("torch")
pytestmark = needs("torch")

TRAIN = {"input_size": (3, 32, 32), "batch_size": 4, "is_training": True, "device": "cpu"}
IMAGES = ff.Arrays(np.full((10, 40, 56, 3), 60, np.uint8), np.arange(10) % 3)
MIXUP = {
    "mixup_alpha": 0.8,
    "cutmix_alpha": 1.0,
    "cutmix_minmax": None,
    "mix_prob": 1.0,
    "switch_prob": 0.25,
    "mode": "batch",
    "label_smoothing": 0.1,
    "num_classes": 3,
}


class Mixing(SimpleNamespace):
    """What timm's FastCollateMixup tells of itself."""

    def __call__(self, batch: Any) -> Any: ...


def made(dataset: Any, **options: Any) -> Any:
    return ff.timm.create_loader(dataset, **{**TRAIN, **options})


@pytest.fixture
def ops(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Ops of the last feed that was made."""
    last: list[Any] = []

    def feed(source: Any, ops: list[Any], **options: Any) -> ff.Feed:
        last[:] = ops
        return ff.Feed(source, ops, **options)

    monkeypatch.setattr("fastfeed.timm.Feed", feed)
    return last


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, [ff.RandomFlip(0.5), ff.ColorJitter(0.4, 0.4, 0.4)]),
        (
            {"hflip": 0.0, "vflip": 0.5, "color_jitter": (0.1, 0.2, 0.3, 0.1)},
            [
                ff.RandomFlip(0.0),
                ff.RandomFlip(0.5, "vertical"),
                ff.ColorJitter(0.1, 0.2, 0.3, 0.1),
            ],
        ),
        (
            {"auto_augment": "rand-m9", "re_prob": 0.25, "re_mode": "pixel", "grayscale_prob": 0.2},
            [
                ff.RandomFlip(0.5),
                ff.RandAugment.from_timm("rand-m9"),
                ff.RandomGrayscale(0.2),
                ff.RandomErasing(0.25, (0.02, 1 / 3), (0.3, 1 / 0.3), "noise"),
            ],
        ),
        (
            {"color_jitter_prob": 0.8, "gaussian_blur_prob": 0.5, "re_prob": 0.1},
            [
                ff.RandomFlip(0.5),
                ff.Maybe(ff.ColorJitter(0.4, 0.4, 0.4), 0.8),
                ff.Maybe(ff.GaussianBlur(23), 0.5),
                ff.RandomErasing(0.1, (0.02, 1 / 3), (0.3, 1 / 0.3), (124, 116, 104)),
            ],
        ),
    ],
)
def test_training_has_the_ops_of_the_arguments(options, wanted, ops):
    loader = made(IMAGES, interpolation="random", **options)
    crop = ff.RandomResizedCrop((32, 32), filter=("bilinear", "bicubic"))
    assert ops == [crop, *wanted, ff.Normalize.imagenet(), ff.ToLayout("CHW")]
    assert len(loader) == 2 and loader.drop_last


def test_timms_mixing_is_that_of_ops(ops):
    loader = made(IMAGES, collate_fn=Mixing(**MIXUP))
    mix = ff.RandomChoice([ff.MixUp(0.8), ff.CutMix(1.0)], (0.75, 0.25), "batch")
    assert ops[-2:] == [mix, ff.LabelSmoothing(0.1, 3)]
    images, shares = next(iter(loader))
    assert images.shape == (4, 3, 32, 32)
    assert shares.sum(1).tolist() == pytest.approx([1] * 4)
    alone = Mixing(**{**MIXUP, "cutmix_alpha": 0, "label_smoothing": 0, "mode": "elem"})
    made(IMAGES, collate_fn=alone)
    assert ops[-2:] == [ff.RandomChoice([ff.MixUp(0.8)]), ff.OneHot(3)]


def test_repeats_types_ranks_and_files(tmp_path, monkeypatch):
    assert len(made(IMAGES, num_aug_repeats=3)) == 2
    assert next(iter(made(IMAGES, fp16=True)))[0].dtype == torch.float16
    assert next(iter(made(IMAGES, img_dtype=torch.float16, use_prefetcher=False)))[0].dtype == (
        torch.float32
    )
    for name, value in (("RANK", 1), ("WORLD_SIZE", 2), ("LOCAL_RANK", 1), ("LOCAL_WORLD_SIZE", 2)):
        monkeypatch.setenv(name, str(value))
    assert len(made(IMAGES, distributed=True)) == 1
    assert len(made(IMAGES)) == 2
    root = folder(tmp_path, {"b": 2, "a": 2})
    files = [(str(path), 1 - i) for i, side in enumerate("ba") for path in (root / side).iterdir()]
    for dataset in (
        SimpleNamespace(samples=files),
        SimpleNamespace(reader=SimpleNamespace(samples=files)),
    ):
        loader = made(dataset, is_training=False)
        assert [label for _, labels in loader for label in labels.tolist()] == [1, 1, 0, 0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"re_count": 2}, "re_count must be 1 here, got 2; erase several times by"),
        ({"re_mode": "zeros", "re_prob": 0.1}, 're_mode must be "const", "rand" or "pixel"'),
        ({"collate_fn": len}, "collate_fn must be timm's FastCollateMixup or None"),
        ({"auto_augment": "augmix-m5"}, "put ff.AutoAugment.. or ff.AugMix.. into a Feed"),
        ({"train_crop_mode": "rkrc"}, "train_crop_mode must be 'rrc' here, got 'rkrc'"),
        ({"input_size": (1, 28, 28)}, "images have three channels"),
        ({"mean": (0.5,)}, "mean must be three numbers"),
        ({"is_training": False, "crop_mode": "corner"}, 'crop_mode must be "center"'),
        ({"is_training": False, "input_size": (32, 24)}, "needs a square input_size"),
        ({"input_size_choices": [32]}, "has no argument 'input_size_choices'"),
        ({"dataset": [1, 2]}, "needs a data set of image files, or a source of fastfeed, got list"),
        (
            {"dataset": SimpleNamespace(samples=[("a", 0)], target_transform=len)},
            "not through its target_transform; pass ff.Files",
        ),
    ],
)
def test_what_a_feed_lacks_is_refused(options, words):
    with pytest.raises((ConfigError, TypeError), match=words):
        made(**{"dataset": IMAGES, **options})


@pytest.mark.slow
@needs("timm")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # timm's open files
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"interpolation": "bicubic", "crop_pct": 0.9},
        {"crop_mode": "squash", "input_size": (3, 32, 24)},
        {"crop_mode": "border"},
    ],
)
def test_evaluation_is_that_of_timm(options, tmp_path):
    """Labels too, whose classes timm sorts as people do."""
    root = folder(tmp_path, {"class10": 3, "class2": 3, "class1": 3}, size=(60, 80))
    options = {"input_size": (3, 32, 32), "batch_size": 4, "device": torch.device("cpu"), **options}
    dataset = timm_data.create_dataset("", str(root))
    ours = ff.timm.create_loader(dataset, **options)
    theirs = timm_data.create_loader(dataset, **options, num_workers=0, persistent_workers=False)
    for (images, labels), (wanted, targets) in zip(ours, theirs, strict=True):
        assert labels.tolist() == targets.tolist()
        bytes_apart = (images - wanted).abs() * torch.tensor(timm_data.IMAGENET_DEFAULT_STD).view(
            3, 1, 1
        )
        assert bytes_apart.max() * 255 < 1.01


@pytest.mark.slow
@needs("timm")
def test_arguments_are_those_of_timm():
    theirs = inspect.signature(timm_data.create_loader).parameters
    ours = inspect.signature(ff.timm.create_loader).parameters
    lacking = {name for name in theirs if name not in ours}
    assert all(name.startswith(("input_size_", "batch_", "num_batches")) for name in lacking)
    assert [name for name in ours if name in theirs] == [n for n in theirs if n in ours]
