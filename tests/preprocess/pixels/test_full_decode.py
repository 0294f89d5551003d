"""JPEGs decoded at full size before they are scaled: in saturated colors, the mean is that of the
photograph.
"""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from helpers.jpegs import NO_KERNEL, native
from helpers.preprocess.rasters import without_kernel
from helpers.preprocess.transforming import CountingContext, pixels_of, processed
from PIL import Image

from fastfeed.preprocess.model.recipe import Encoding, Recipe, Scaling
from fastfeed.preprocess.pixels.decode import cost
from fastfeed.preprocess.pixels.image_info import image_info
from fastfeed.preprocess.pixels.transform import Transformer

RAW = Encoding("raw")
COLORS = {
    "blue": (0, 0, 255),
    "red": (255, 0, 0),
    "yellow": (255, 255, 0),
    "black": (0, 0, 0),
    "gray": (128, 128, 128),
}
BOUND = 0.1  # of a level, the mean of a channel


def photograph(color: tuple[int, int, int]) -> bytes:
    """A lightly shaded surface of this color, with the noise of a camera: its levels are clipped
    one by one.
    """
    rng, (height, width) = np.random.default_rng(3), (600, 800)
    shade = 0.85 + 0.15 * np.sin(np.arange(width) / 90)[None, :, None]
    pixels = np.array(color) * shade + rng.normal(0, 12, (height, width, 3))
    out = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(out, "JPEG", quality=90)
    return out.getvalue()


def shift(blob: bytes, scaling: Scaling) -> float:
    """The largest difference of a channel's mean from decoding in full with Pillow, then
    scaling.
    """
    image = Image.open(io.BytesIO(blob))
    want = np.asarray(image.resize((128, 96), Image.Resampling.LANCZOS), float)
    return float(
        np.abs(
            pixels_of(processed(blob, scaling, RAW)).astype(float).mean((0, 1)) - want.mean((0, 1))
        ).max()
    )


@pytest.mark.parametrize(
    "kernel",
    [pytest.param(True, marks=pytest.mark.skipif(native is None, reason=NO_KERNEL)), False],
)
@pytest.mark.parametrize("color", COLORS)
def test_the_mean_is_that_of_the_photograph(
    color: str, kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kernel:
        without_kernel(monkeypatch)
    blob = photograph(COLORS[color])
    assert shift(blob, Scaling(96, full_decode=True)) < BOUND
    if color in ("red", "yellow", "black"):
        assert shift(blob, Scaling(96)) > BOUND, "why there is the option"


@pytest.mark.skipif(native is None, reason=NO_KERNEL)
def test_one_call_of_the_kernel_gives_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    blob, scaling = photograph(COLORS["red"]), Scaling(96, full_decode=True)
    short = processed(blob, scaling, Encoding())
    monkeypatch.setattr(Transformer, "_recode", lambda *_: None)
    assert processed(blob, scaling, Encoding()).image == short.image
    assert processed(blob, Scaling(96), Encoding()).image != short.image


def test_memory_of_the_whole_photograph_is_reserved() -> None:
    out = io.BytesIO()
    Image.new("CMYK", (4000, 3000)).save(out, "JPEG")
    blob, info = out.getvalue(), image_info(out.getvalue())
    assert not isinstance(info, tuple)
    box, size = (0.0, 0.0, 3000.0, 4000.0), (96, 128)
    full = cost(info, len(blob), box, size, full_decode=True)
    assert full > 4 * 12_000_000 > cost(info, len(blob), box, size)
    context = CountingContext()
    Transformer(Recipe(Scaling(96, full_decode=True), RAW))(blob, context)
    assert max(context.needs) >= full


def test_recipes_of_earlier_versions_keep_their_hashes() -> None:
    document = Recipe(Scaling(24)).document()
    assert "full_decode" not in document["scaling"]
    assert Recipe.of(document) == Recipe(Scaling(24)) and Recipe().hash == "7bb6566759187ede"
    full = Recipe(Scaling(24, full_decode=True))
    assert (
        Recipe.of(json.loads(json.dumps(full.document()))) == full
        and full.hash != Recipe(Scaling(24)).hash
    )
    assert Recipe(Scaling(24)).difference(full) == ["scaling.full_decode: False -> True"]
