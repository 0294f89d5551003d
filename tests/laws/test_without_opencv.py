"""Feeds on native threads do not load OpenCV, whatever ops are in the list; without the kernel it
makes the same.
"""

from __future__ import annotations

import pytest
from helpers.photos import folder, picture
from PIL import Image

from fastfeed.decode import is_built

pytestmark = pytest.mark.skipif(not is_built(), reason="the kernel is not built")

PROGRAM = """
import sys

import numpy as np
from helpers.op_examples import ALL, listed

import fastfeed as ff

{program}
assert "cv2" not in sys.modules, sorted(name for name in sys.modules if name.startswith("fastfeed.backends"))
print("ok")
"""

ARRAYS = """
source = ff.Arrays(np.random.default_rng(0).integers(0, 256, (8, 24, 32, 3), dtype=np.uint8), np.arange(8) % 4)
run = 0
for op in ALL:
    if op.kind in ("decode", "label"):  # no pixels change
        continue
    with ff.Feed(source, [*listed(op), *([ff.OneHot(4)] if op.kind == "mix" else [])], batch=8, threads=2) as feed:
        run += len(list(feed.batches(0)))
assert run > 90, run
"""

FILES = """
source = ff.ImageFolder(sys.argv[1])
lists = [
    [ff.RandomResizedCrop(48), ff.RandomFlip(), ff.RandAugment(), ff.Normalize.imagenet()],
    [ff.RandomCrop(60, 20, "reflect"), ff.RandomFlip()],
    [ff.RandomCrop(160, padding=60), ff.AugMix(), ff.RandomErasing(), ff.ToLayout("CHW")],
    [ff.Resize((80, 80), fit="pad"), ff.TenCrop(32)],
    [ff.MultiCrop([ff.View(48, 2), ff.View(24, 3)])],
    [ff.Resize((50, 50)), ff.OneOf([lambda image, numbers: 255 - image, ff.Rotate(20), ff.Equalize()]), ff.Invert()],
    [ff.Resize((50, 50)), ff.OneHot(), ff.RandomChoice([ff.MixUp(), ff.CutMix()]), ff.Normalize.imagenet()],
]
for ops in lists:
    with ff.Feed(source, ops, batch=5, threads=2) as feed:
        assert len(list(feed.batches(0))) == 4
        print(feed)
        assert not feed.stats().bad
"""

MASKS = """
images = np.random.default_rng(0).integers(0, 256, (8, 40, 50, 3), dtype=np.uint8)
source = ff.Objects(ff.Arrays(images), [np.array([[3, 4, 20, 30]])] * 8, masks=list(images[..., 0]))
for ops in ([ff.Mosaic()], [ff.RandomFlip(), ff.Rotate(30), ff.Perspective(), ff.Mosaic(0.5)]):
    with ff.Feed(source, [ff.RandomResizedCrop(32), *ops], batch=4, threads=2) as feed:
        batches = list(feed.batches(0))
    assert batches[0].masks.shape == (4, 32, 32) and not feed.stats().bad
"""


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """JPEGs, and PNGs, which Pillow decodes."""
    root = folder(tmp_path_factory.mktemp("photos"), {"a": 10, "b": 8}, (120, 90))
    for name in ("a", "b"):
        Image.fromarray(picture(99, (70, 60))).save(root / name / "other.png")
    return root


@pytest.mark.parametrize("program", [ARRAYS, FILES, MASKS], ids=["arrays", "files", "masks"])
def test_opencv_is_not_loaded(program, photographs, python):
    done = python(PROGRAM.format(program=program), photographs)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("ok\n")


SAME = """
import hashlib, sys

import numpy as np

if sys.argv[1] == "without":
    sys.modules["fastfeed._native"] = None  # as where it is not built

import fastfeed as ff

images = np.random.default_rng(0).integers(0, 256, (8, 40, 50, 3), dtype=np.uint8)
source = ff.Objects(ff.Arrays(images, np.arange(8) % 4), masks=list(images[..., 0]))
ops = [ff.RandomResizedCrop(32), ff.RandAugment(), lambda image, numbers: 255 - image, ff.Rotate(30), ff.CutMix()]
with ff.Feed(source, [*ops, ff.OneHot(4)], batch=4, seed=1) as feed:
    batches = list(feed.batches(0))
text = "; in Python: Function(<lambda>)\\n" if sys.argv[1] == "with" else "OpenCV, because the kernel is not built"
assert text in str(feed), str(feed)
assert ("cv2" in sys.modules) == (sys.argv[1] == "without")
print(hashlib.sha256(b"".join(b.images.tobytes() + b.masks.tobytes() for b in batches)).hexdigest())
"""


def test_a_feed_without_the_kernel_makes_the_same_batches(python):
    done = [python(SAME, kernel) for kernel in ("with", "without")]
    assert [run.returncode for run in done] == [0, 0], [run.stderr for run in done]
    assert done[0].stdout == done[1].stdout
