"""Samples of a feed as pictures, and a feed in a notebook."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest
from helpers.feeds import NUMBERS, numbers
from helpers.photos import folder
from PIL import Image

import fastfeed as ff
from fastfeed.errors import ConfigError
from fastfeed.feed.session import FeedSession


class Elements(HTMLParser):
    """Names of elements with their attributes, and the text between them."""

    def __init__(self, page):
        super().__init__()
        self.all = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.all.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def ids(preview):
    return [int(cell.title.rpartition("#")[2]) for cell in preview.cells]


def test_samples_are_those_of_the_epoch_with_the_pixels_of_the_feed(tmp_path):
    folder(tmp_path / "photos", {"cat": 12, "dog": 12}, (64, 80))
    ops = [ff.RandomResizedCrop(32), ff.RandomFlip()]
    with ff.Feed(ff.ImageFolder(tmp_path / "photos"), ops, batch=8, seed=3, threads=2) as feed:
        preview = ff.show(feed, n=5, epoch=2)
        batch = next(feed.batches(epoch=2))
    assert ids(preview) == batch.ids[:5].tolist()
    names = ["cat", "dog"]
    assert [cell.title.split()[0] for cell in preview.cells] == [names[k] for k in batch.labels[:5]]
    for cell, image in zip(preview.cells, batch.images, strict=False):
        assert np.array_equal(np.asarray(cell.image), image)
    assert repr(preview).startswith("5 samples of epoch 2, seed 3: ")


@pytest.mark.parametrize("more", [{}, {"max_pixels": 64}], ids=["equal", "max_pixels"])
def test_samples_of_buckets_have_the_sizes_of_their_batches(more):
    sizes = {0: 4, 1: 8}
    order = ff.Buckets([0, 1] * 8, 4, sizes=sizes, **more)
    source = ff.Arrays(np.zeros((16, 9, 9, 3), np.uint8))
    with ff.Feed(source, [ff.Resize(ff.BucketSize())], batch=4, shuffle=order) as feed:
        preview = ff.show(feed, n=7)
        wanted = [id for batch in feed for id in batch.ids.tolist()][:7]
    assert ids(preview) == wanted
    assert [cell.image.size[0] for cell in preview.cells] == [sizes[id % 2] for id in wanted]


def counted(feed):
    """Counters that change with batches alone; the feed itself reads ahead meanwhile."""
    counters = FeedSession.of(feed).live.page().counters
    names = ("asked", "batches", "images", "bad", "failed", "epoch", "step", "retries")
    return {name: counters[name] for name in names}


def test_a_feed_that_is_running_does_not_notice(tmp_path):
    quarantine = tmp_path / "bad.jsonl"
    with numbers(quarantine=quarantine) as feed:
        batches = iter(feed)
        next(batches)
        before = feed.state(), counted(feed)
        feed._repr_html_()
        ff.show(feed, n=50)
        assert (feed.state(), counted(feed)) == before
        assert [batch.step for batch in batches] == [1, 2, 3, 4]
    assert not quarantine.exists()


def test_names_do_not_steer_a_terminal(tmp_path):
    folder(tmp_path / "photos", {"red\x1b[31m\nnew": 1}, (8, 8))
    with ff.Feed(ff.ImageFolder(tmp_path / "photos"), [ff.Resize((8, 8))], batch=1) as feed:
        assert repr(ff.show(feed)).endswith(": red\\x1b[31m\\nnew #0")


def test_texts_of_files_are_escaped_and_bad_samples_are_marked(tmp_path):
    hostile = '<img src=x onerror="alert(1)">'
    folder(tmp_path / "photos", {hostile.replace("/", ""): 3}, (64, 80))
    bad = next((tmp_path / "photos").rglob("*.jpg"))
    bad.write_bytes(b"no image")
    source = ff.ImageFolder(tmp_path / "photos")
    with ff.Feed(source, [ff.Resize((16, 16))], batch=3, threads=1) as feed:
        list(feed)
        page = Elements(feed._repr_html_())
    images = [attrs for tag, attrs in page.all if tag == "img"]
    assert [image["alt"].startswith(f"{hostile} #") for image in images] == [True, True]
    assert all(image["src"].startswith("data:image/jpeg;base64,") for image in images)
    assert {tag for tag, _ in page.all} == {"pre", "div", "img", "ul", "li"}
    assert "bad: not_image #" in page.text
    assert "1 bad sample" in page.text
    assert f"{bad}: not_image" in page.text
    assert "Resize((16, 16))" in page.text


def test_storage_that_does_not_answer_is_a_sentence(tmp_path):
    class Broken(ff.Arrays):
        def read(self, ids):
            raise ff.errors.StorageError("no route to <b>host</b>")

    with ff.Feed(Broken(NUMBERS), [], batch=4, threads=1) as feed:
        page = feed._repr_html_()
        with pytest.raises(ff.errors.StorageError, match="no route"):
            ff.show(feed)
    assert "No samples are shown: no route to &lt;b&gt;host" in page


def colors(n):
    """Image i is red, green and blue of i."""
    return np.broadcast_to(np.arange(n, dtype=np.uint8)[:, None, None, None], (n, 8, 8, 3))


CASES = {
    "normalized, channels first": ([ff.Normalize.imagenet(), ff.ToLayout("CHW")], {}, 4),
    "mixed": ([ff.OneHot(4), ff.MixUp()], {}, 4),
    "views": ([ff.MultiCrop((ff.View(6, 2), ff.View(4, 1)))], {}, 12),
    "batches of a class": ([], {"shuffle": ff.ClassBatches(classes=2, per_class=4)}, 4),
    "more ranks than samples shown": ([], {"world": ff.World(rank=3, size=8)}, 4),
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_kinds_of_feeds(case):
    ops, options, count = CASES[case]
    source = ff.Arrays(colors(64), np.arange(64) % 4)
    with ff.Feed(source, ops, **({"batch": 8, "threads": 1} | options)) as feed:
        preview = ff.show(feed, n=4)
    assert len(preview.cells) == count
    assert all(cell.image.mode == "RGB" for cell in preview.cells)


def test_boxes_are_drawn():
    images = ff.Arrays(np.zeros((2, 16, 16, 3), np.uint8))
    source = ff.Objects(images, boxes=[[[2, 2, 10, 10]], []], labels=[[1], []])
    with ff.Feed(source, [], batch=2, shuffle=False, threads=1) as feed:
        first, second = ff.show(feed).cells
    assert np.argwhere(np.asarray(first.image)[:, :, 0]).min(0).tolist() == [2, 2]
    assert np.argwhere(np.asarray(first.image)[:, :, 0]).max(0).tolist() == [9, 9]
    assert not np.asarray(second.image).any()


def test_images_of_together_have_their_names():
    source = ff.Together({"left": ff.Arrays(NUMBERS), "right": ff.Arrays(NUMBERS)})
    with ff.Feed(source, [], batch=2, shuffle=False, threads=1) as feed:
        preview = ff.show(feed, n=2)
    assert [cell.title for cell in preview.cells] == ["left #0", "right #0", "left #1", "right #1"]


def test_values_that_are_no_bytes_are_scaled():
    gradient = np.arange(64, dtype=np.uint8).reshape(1, 8, 8, 1).repeat(3, axis=3)
    brightness = ff.Map(lambda images: images.mean((1, 2, 3)), "image", out="brightness")
    ops = [ff.ToFloat(), ff.ToLayout("CHW"), brightness]  # a Map takes finished images
    with ff.Feed(ff.Arrays(gradient), ops, batch=1, threads=1) as feed:
        (cell,) = ff.show(feed).cells
    pixels = np.asarray(cell.image)
    assert pixels.shape == (8, 8, 3)
    assert (pixels.min(), pixels.max()) == (0, 255)


def test_a_preview_is_saved(tmp_path):
    with numbers() as feed:
        preview = ff.show(feed, n=3)
    preview.save(tmp_path / "samples.png")
    with Image.open(tmp_path / "samples.png") as sheet:
        assert sheet.width > 2 * 112
    preview.save(tmp_path / "samples.html")
    page = (tmp_path / "samples.html").read_text("utf-8")
    assert page.count("data:image/jpeg;base64,") == 3
    assert not re.search(r"(src|href)=.https?:", page)
    with pytest.raises(ConfigError, match=r"\.png, \.jpg, \.webp or \.html"):
        preview.save(tmp_path / "samples.gif")


@pytest.mark.parametrize(
    ("options", "text"),
    [({"n": 0}, "n must be an integer >= 1"), ({"epoch": -1}, "epoch must be")],
)
def test_arguments_are_checked(options, text):
    with numbers() as feed, pytest.raises(ConfigError, match=text):
        ff.show(feed, **options)
    with pytest.raises(ConfigError, match="a Feed is needed"):
        ff.show([1, 2])
