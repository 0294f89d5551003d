"""`fastfeed show DIR --ops`: what is drawn, and what is said where that is impossible."""

import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.commands import CliRunner
from helpers.hugging_face import README, repository
from helpers.op_examples.basic import darker
from helpers.photos import picture
from helpers.targets import tar_folder
from PIL import Image

from fastfeed.cli import app
from fastfeed.cli.show.command import show
from fastfeed.cli.show.ops import FAMILIES, UNSEEN, arguments, sections
from fastfeed.cli.show.strengths import PAPER, STRENGTHS, pictures, sample_box, scaled
from fastfeed.errors import ConfigError, SourceError
from fastfeed.feed.explain import short
from fastfeed.feed.preview import label_text
from fastfeed.ops import (
    OPS,
    Brightness,
    ChannelDropout,
    ChannelShuffle,
    Function,
    Invert,
    IoUCrop,
    Maybe,
    Normalize,
    RandomErasing,
    RandomFlip,
    RandomResize,
    Rotate,
    ZoomOut,
)
from fastfeed.ops.labels import OneHot
from fastfeed.ops.ops_file import save_ops


def photograph(seed: int) -> np.ndarray:
    return scaled(np.asarray(picture(seed)), 90)


PHOTOS = [photograph(seed) for seed in range(4)]
SEEN = [op for section in sections("all") for op in section.ops]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("show")
    (root / "a.jpg").write_bytes(b"broken")
    for i, photo in enumerate(PHOTOS):
        Image.fromarray(photo).save(root / f"b{i}.png")
    return root


def test_all_is_every_op_that_can_be_seen():
    shown = {type(op) for op in SEEN}
    visible = {op for op in OPS if op.kind not in UNSEEN}
    missing = visible - shown - {Function}
    advice = [f"{op.__name__} needs an example in SHOWCASE of {op.__module__}" for op in missing]
    assert not missing, f"{'; '.join(advice)}; then run docs/augmentations/draw.py"


def test_every_module_with_a_showcase_belongs_to_a_family():
    modules = {op.__module__ for op in OPS if hasattr(sys.modules[op.__module__], "SHOWCASE")}
    named = {f"fastfeed.ops.{module}" for family in FAMILIES.values() for module in family}
    assert modules == named, "a new module of ops needs a family in FAMILIES of cli/op_lists.py"


@pytest.mark.parametrize("op", SEEN, ids=short)
def test_every_op_has_its_pictures(op):
    made = pictures([op], PHOTOS, 60)
    random = op.draws or op.kind == "views"
    assert len(made) == (len(STRENGTHS) if random else 1)
    assert all(picture.image.dtype == np.uint8 and picture.image.shape[2] == 3 for picture in made)
    if random:
        assert len({picture.image.tobytes() for picture in made}) > 1, "five strengths differ"
        boxes = {picture.box for picture in made}
        assert (
            any(picture.words for picture in made)
            or len(boxes) > 1
            or type(op).__name__
            in (
                "AugMix",
                "GridDistortion",
                "RandomGrayscale",
            )
        )


def test_channels_are_named():
    assert [picture.words for picture in pictures([ChannelShuffle()], PHOTOS, 60)] == [
        "RGB",
        "RBG",
        "GBR",
        "BRG",
        "BGR",
    ]
    dropped = [picture.words for picture in pictures([ChannelDropout()], PHOTOS, 60)]
    assert all(sorted(words)[0] == "-" and words.count("-") == 1 for words in dropped)


def test_strengths_go_from_low_to_high():
    means = [picture.image.mean() for picture in pictures([Brightness(0.5)], PHOTOS, 60)]
    assert means == sorted(means) and means[0] < 0.8 * means[2] < means[2] < 0.95 * means[4]
    assert [picture.words for picture in pictures([Rotate(50)], PHOTOS, 60)] == [
        "40° right",
        "20° right",
        "",
        "20° left",
        "40° left",
    ]
    plain = pictures([Brightness(0.5)], PHOTOS, 60)[2].image
    assert np.array_equal(plain, scaled(PHOTOS[0], 60)), "a factor of one in the middle"


def test_the_box_follows_what_moves():
    flipped = pictures([RandomFlip()], PHOTOS, 60)
    left, top, right, bottom = sample_box(flipped[0].image)
    width = flipped[0].image.shape[1]
    assert flipped[0].box == pytest.approx((width - right, top, width - left, bottom))
    assert flipped[4].box == pytest.approx((left, top, right, bottom))
    assert all(picture.box is None for picture in pictures([Invert()], PHOTOS, 60))


def test_results_of_any_size_are_drawn_in_one():
    """As they are in a corner, or scaled down; a canvas, which adds a border already, is scaled."""
    photo = scaled(PHOTOS[0], 60)
    small, *_, large = pictures([RandomResize(90, scale=(0.2, 1.0))], [photo], 60)
    assert small.image.shape == large.image.shape == photo.shape
    paper = [(picture.image == PAPER).all(axis=2).mean() for picture in (small, large)]
    assert paper[0] > 0.8 > 0.4 > paper[1] and small.image[0, 0].tolist() != [*PAPER]
    (_, zoomed, *_), (cropped, *_) = (
        pictures([op], [photo], 60) for op in (ZoomOut(1.0, (2, 2), (9, 8, 7)), IoUCrop((0.1,)))
    )
    assert (zoomed.image == (9, 8, 7)).all(axis=2).mean() > 0.6
    assert 0 < (cropped.image == PAPER).all(axis=2).mean() < 0.95


def test_a_list_is_drawn_one_by_one_and_as_a_whole():
    (section,) = sections("RandomFlip(), [Brightness(0.2), Normalize.imagenet()], OneHot(3)")
    assert section.ops == section.combined == (RandomFlip(), Brightness(0.2))
    assert section.skipped == (Normalize.imagenet(), OneHot(3))
    assert sections("ff.RandomFlip(), fastfeed.recipes.cifar_train()")[0].ops[0] == RandomFlip(), (
        "as in a script"
    )
    (section,) = sections("cifar_train")
    assert [type(op).__name__ for op in section.ops] == ["RandomCrop", "RandomFlip"]
    assert [short(op) for op in sections("imagenet_train(96)")[0].ops] == [
        "RandomResizedCrop(96)",
        "RandomFlip()",
    ]


@pytest.mark.parametrize(
    ("op", "text"),
    [
        (RandomErasing(1.0, fill="noise"), "p=1.0, fill='noise'"),
        (Maybe(Brightness((0.2, 0.8))), "Brightness((0.2, 0.8))"),
        (Invert(), ""),
    ],
)
def test_arguments_are_those_that_differ(op, text):
    assert arguments(op) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nonsense", "got 'nonsense': NameError: name 'nonsense' is not defined"),
        ("Brightness(", "SyntaxError: "),
        ("Brightness", "Brightness is a class, write Brightness(...)"),
        ("3", "3 is not an op"),
        ("Rotate('x')", "Rotate degrees must be"),
        (
            "Normalize.imagenet()",
            "--ops Normalize: nothing to draw; add an op such as RandAugment()",
        ),
        ("().__class__.__base__", "object is a class, write object(...)"),
    ],
)
def test_what_is_no_list_is_refused_in_one_line(text, words):
    with pytest.raises(ConfigError) as caught:
        sections(text)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_of_ops_is_drawn(folder, tmp_path):
    file = tmp_path / "ops.json"
    save_ops(file, [RandomFlip(), darker])
    words = ["show", str(folder), "--ops", str(file), "-o", str(tmp_path / "ops.png")]
    refused = CliRunner().invoke(app, words)
    assert "--allow-functions" in str(refused.exception) and "darker" in str(refused.exception)
    done = CliRunner().invoke(app, [*words, "--allow-functions", "--size", "32"])
    assert done.exit_code == 0 and "3 rows" in done.output, done.output
    file.write_text("{}")
    with pytest.raises(ConfigError, match="is not a saved list of ops"):
        sections(str(file))


def test_functions_of_more_than_pixels_are_refused():
    text = "Function(lambda image, numbers, label: image, fields=('label',))"
    with pytest.raises(ConfigError, match=r"takes fields of samples.*leave it out of --ops"):
        pictures(sections(text)[0].ops, PHOTOS, 60)


def test_a_crop_that_fits_nowhere_is_refused():
    with pytest.raises(ConfigError, match="is larger than the image,"):
        pictures(sections("Crop(3000, 0, 20)")[0].ops, PHOTOS, 60)


def test_the_sheet(folder, tmp_path, capsys):
    out = tmp_path / "ops.webp"
    show(folder, out=out, ops="Hue(0.2), Invert(), Equalize()", size=64)
    said = capsys.readouterr().out
    assert "3 rows -> " in said and out.name in said.replace("\n", "")
    with Image.open(out) as sheet:
        paper = np.asarray(sheet.convert("RGB"), int)
    height, width = scaled(PHOTOS[0], 64).shape[:2]
    assert paper.shape[1] == 2 * 28 + 176 + 5 * (max(width, 96) + 10) - 10
    assert paper.shape[0] == 28 + height + 18 + 24 + 3 * (height + 29) + 28 - 10
    for edge in (paper[:20], paper[-20:], paper[:, :20], paper[:, -20:]):
        assert abs(edge - 251).max() < 6, "nothing reaches into the margin"


def test_a_split_of_a_data_set_of_hugging_face_is_drawn_with_its_classes(tmp_path, capsys):
    root = repository(tmp_path / "birds", "license: mit")
    show(str(root), out=tmp_path / "a.png", size=32, split="train")
    assert "birds, split train): 6 images of 2 classes" in capsys.readouterr().out
    assert (tmp_path / "a.png").is_file()
    several = repository(tmp_path / "several", README)
    show(str(several), out=tmp_path / "a.png", size=32, split="train")
    assert "several, configuration full, split train): 6 images" in capsys.readouterr().out


@pytest.mark.parametrize("size", [(3000, 1), (1, 3000), (1, 1)])
def test_a_long_photograph_shows_its_middle(size, tmp_path):
    Image.new("RGB", size, (200, 30, 60)).save(tmp_path / "a.png")
    out = tmp_path / "ops.png"
    show(tmp_path, out=out, ops="Invert(), Resize(64), RandomResizedCrop(32), Mosaic()", size=64)
    with Image.open(out) as sheet:
        assert max(sheet.size) < 2500, "pictures are at most four times as long as wide"


def test_no_photograph_is_one_error(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"broken")
    with pytest.raises(
        SourceError, match=r"none of the first 1 images of ImageFolder.* can be read"
    ):
        show(tmp_path, out=tmp_path / "x.png", ops="all", size=64)
    with pytest.raises(
        ConfigError, match=r"--out must be a \.png, \.jpg, \.webp in an existing folder, got x\.gif"
    ):
        show(tmp_path, out=Path("x.gif"), ops="all")


def test_the_families_of_ops():
    assert list(FAMILIES) == [
        "geometry",
        "color",
        "filters",
        "erasing",
        "policies",
        "mixing",
        "views",
    ]


def test_labels_under_images():
    classes = ("cat", "dog")
    assert label_text(np.int64(1), classes) == "dog" and label_text(np.int64(-1), classes) == ""
    assert label_text(np.int64(7), ()) == "7"
    assert label_text(np.array([1, 1], np.float32), classes) == "cat, dog"
    assert label_text(np.array([0, 0], np.float32), classes) == ""
    assert label_text(np.float32(1.5), ()) == "1.5"
    assert label_text(np.array([1.5, 2], np.float32), ()) == "1.5, 2"
    assert label_text("a caption", ()) == "a caption"


def test_show_takes_targets_of_any_kind(tmp_path):
    tar_folder(tmp_path / "tar")
    for target, kind in (("price", "value"), ("txt", "text"), ("json:tags", "multi")):
        words = ["--label", target, "--label-kind", kind, "--size", "16", "-n", "4"]
        out = ["-o", str(tmp_path / "sheet.png")]
        done = CliRunner().invoke(app, ["show", f"{tmp_path}/tar/*.tar", *words, *out])
        assert done.exit_code == 0, done.output
        assert (tmp_path / "sheet.png").exists()
