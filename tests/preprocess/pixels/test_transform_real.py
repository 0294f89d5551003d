"""Real photographs, scaled as if all of each had been decoded first; real bad files, with a result
or a reason.
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import numpy as np
import pytest
from helpers.jpegs import NO_KERNEL, native, shown, ssim
from helpers.preprocess.transforming import CountingContext, pixels_of, processed, recipe, saved_as
from PIL import Image

from fastfeed.decode.base import DecodeFailure
from fastfeed.preprocess.model.recipe import Encoding, Limits, Scaling
from fastfeed.preprocess.model.record import REASONS
from fastfeed.preprocess.pixels.transform import Transformer

PHOTOS = 3
STEP = 9  # of the bad files, every so many


@pytest.fixture(scope="module")
def photos(data: Path) -> list[bytes]:
    """Those whose colors stay as they are: the reference does not convert them."""
    blobs = (path.read_bytes() for path in sorted((data / "photos-large").iterdir()))
    plain = (blob for blob in blobs if "icc_profile" not in Image.open(io.BytesIO(blob)).info)
    return [blob for blob, _ in zip(plain, range(PHOTOS), strict=False)]


@pytest.mark.slow
@pytest.mark.skipif(native is None, reason=NO_KERNEL)
def test_scaling_is_as_good_as_decoding_all_of_it(photos: list[bytes]) -> None:
    values = []
    for blob in photos:
        found = processed(blob, Scaling(512), Encoding("raw"))
        want = Image.fromarray(shown(blob)).resize(
            (found.width, found.height), Image.Resampling.LANCZOS
        )
        values.append(ssim(pixels_of(found), np.asarray(want)))
    # the latter: little above 1.5 times the size
    assert np.mean(values) >= 0.998 and min(values) >= 0.996, values


@pytest.mark.slow
@pytest.mark.skipif(native is None, reason=NO_KERNEL)
def test_scaling_planes_is_as_good_as_scaling_pixels(photos: list[bytes]) -> None:
    for blob in photos:
        found = processed(blob, Scaling(512), Encoding("raw"))
        want = np.asarray(
            Image.fromarray(shown(blob)).resize(
                (found.width, found.height), Image.Resampling.LANCZOS
            )
        )
        by_pixels = saved_as(pixels_of(found), "JPEG", quality=90, subsampling="4:2:0")
        by_planes = processed(blob, Scaling(512), Encoding("jpeg", 90)).image
        assert by_planes != by_pixels
        assert ssim(shown(by_planes), want) > ssim(shown(by_pixels), want) - 0.0002


@pytest.mark.parametrize("image", ["jpeg", "png", "webp"])
def test_bad_files_become_readable_ones_or_have_a_reason(data: Path, image: str) -> None:
    # the most are kept where nothing is scaled
    one = Transformer(
        recipe(Scaling(3000), Encoding(image, keep_small=True), Limits(max_pixels=500_000))
    )
    paths = sorted(path for path in (data / "bad-images").rglob("*") if path.is_file())
    reasons, good = set(), 0
    for path in paths[::STEP]:
        found = one(path.read_bytes(), CountingContext())
        if isinstance(found, DecodeFailure):
            reasons.add(found.reason)
            continue
        good += 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # kept metadata may be odd
            assert pixels_of(found).shape == (found.height, found.width, 3), path
    assert good and reasons and reasons <= REASONS.keys()
