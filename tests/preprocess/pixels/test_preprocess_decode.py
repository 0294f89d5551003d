"""Files to pixels: orientation, depth, transparency, palettes, frames, and both ways for JPEGs."""

from __future__ import annotations

import io
import struct
import threading

import cv2
import numpy as np
import pytest
from helpers import jpegs
from helpers.jpegs import resized, textured
from helpers.pngs import png
from helpers.preprocess.rasters import TURNED, decoded, info_of, saved, without_kernel
from helpers.products import in_turn
from PIL import Image

from fastfeed.decode import DecodeFailure
from fastfeed.errors import ConfigError
from fastfeed.preprocess.pixels import decode
from fastfeed.preprocess.pixels.decode import Rasterizer
from fastfeed.preprocess.pixels.image_info import LARGE, image_info

FILTERS = {"lanczos": "lanczos", "bicubic": "bicubic", "area": "box"}
PATHS = ["native", "pillow", "vips"]
WEBP = ("WEBP",) if jpegs.native and jpegs.native.LIBWEBP else ()  # built with libwebp


@pytest.fixture(params=PATHS)
def path(request, monkeypatch):
    """With native code and without; everything through libvips that it is ever asked for."""
    if request.param == "vips":
        pytest.importorskip("pyvips", reason="no pyvips; pip install 'fastfeed[vips]'")
        without_kernel(monkeypatch)
        monkeypatch.setattr("fastfeed.preprocess.pixels.image_info.LARGE", 1)
    elif request.param == "pillow":
        without_kernel(monkeypatch)
        monkeypatch.setattr("fastfeed.preprocess.pixels.image_info.libvips", lambda: None)
    elif not decode.is_built():
        pytest.skip(jpegs.NO_KERNEL)
    return request.param


@pytest.mark.parametrize(
    ("orientation", "format"), in_turn(range(1, 9), ["JPEG", "PNG", "WEBP", "TIFF"])
)
def test_orientation(format, orientation, path):
    stored = textured(40, 64, orientation)
    blob = saved(stored, format, orientation)
    shown = TURNED[orientation](stored)
    found = info_of(
        blob,
        format=format,
        orientation=orientation,
        height=shown.shape[0],
        width=shown.shape[1],
        icc="none",
    )
    ways = {
        "native": dict.fromkeys(("JPEG", "PNG", "TIFF", *WEBP), "native"),
        "vips": dict.fromkeys(("PNG", "TIFF", "WEBP"), "vips"),
    }
    assert found.path == ways.get(path, {}).get(format, "pillow")
    off = np.abs(decoded(blob).astype(int) - shown)
    assert off.max() <= (4 if format == "JPEG" else 0)
    box = (3.5, 2.25, 30.0, 33.5)
    off = np.abs(decoded(blob, box, (17, 23)) - resized(shown, box, (17, 23), "lanczos"))
    assert off.max() <= (4 if format == "JPEG" else 1.6)


def test_orientation_that_follows_the_pixels_of_a_png():
    """The standard lets it; and finding it must not take decoding."""
    stored = textured(40, 64)
    blob = saved(stored, "PNG", 6)
    at = blob.index(b"eXIf") - 4
    length = 12 + int.from_bytes(blob[at : at + 4], "big")
    moved = blob[:at] + blob[at + length : -12] + blob[at : at + length] + blob[-12:]
    info_of(moved, orientation=6, height=64, width=40)
    assert np.array_equal(decoded(moved), TURNED[6](stored))


@pytest.mark.parametrize(("filter", "format"), in_turn(FILTERS, ["JPEG", "PNG"]))
def test_filters_are_antialiased(format, filter, path):
    pixels = textured(90, 120)
    for box, size in (
        ((0, 0, 90, 120), (20, 30)),
        ((10.5, 20, 60, 80.5), (48, 44)),
        ((0, 0, 90, 120), (180, 200)),
    ):
        off = np.abs(
            decoded(saved(pixels, format), box, size, filter)
            - resized(pixels, box, size, FILTERS[filter])
        )
        assert np.percentile(off, 99) <= (5 if format == "JPEG" else 1.6), (box, size)


@pytest.mark.skipif(not decode.is_built(), reason=jpegs.NO_KERNEL)
@pytest.mark.parametrize("layout", jpegs.LAYOUTS)
def test_kernel_and_pillow_agree(layout, monkeypatch):
    blob = jpegs.LAYOUTS[layout](160, 256, 3)
    cases = [
        ((0, 0, 160, 256), (40, 60)),
        ((11, 7, 99.5, 140.25), (70, 90)),
        ((0, 0, 160, 256), (160, 256)),
    ]
    found = info_of(
        blob,
        path="native",
        mode="L" if layout == "gray" else "RGB",
        progressive=layout == "progressive",
    )
    one = [decoded(blob, *case).astype(int) for case in cases]
    without_kernel(monkeypatch)
    assert info_of(blob, path="pillow").mode == found.mode
    for case, pixels in zip(cases, one, strict=True):
        off = np.abs(decoded(blob, *case) - pixels)
        assert off.max() <= 4 and off.mean() < 0.5


@pytest.mark.parametrize(("channels", "mode"), [(1, "I;16"), (3, "RGB;16"), (4, "RGBA;16")])
@pytest.mark.parametrize("format", ["png", "tiff"])
def test_sixteen_bits_keep_the_high_byte(format, channels, mode, path):
    wide = np.random.default_rng(channels).integers(0, 65_536, (50, 60, channels), dtype=np.uint16)
    if channels == 4:
        wide[:, :, 3] = 65_535
        wide[:25, :, 3] = 0
    blob = cv2.imencode(
        f".{format}", wide[:, :, [2, 1, 0, 3][:channels]] if channels > 1 else wide
    )[1].tobytes()
    high = (wide >> 8).astype(np.uint8)
    want = np.broadcast_to(high[:, :, : min(channels, 3)], (50, 60, 3)).copy()
    if channels == 4:
        want[:25] = (9, 200, 90)
    info_of(blob, mode=mode, alpha=channels == 4)
    assert np.array_equal(decoded(blob, matte=(9, 200, 90)), want)


def test_twelve_bits_are_not_taken_for_dark_sixteen():
    samples = np.random.default_rng(12).integers(0, 4096, (6, 8))
    pairs = samples.reshape(-1, 2)  # two samples in three bytes
    packed = np.stack(
        [pairs[:, 0] >> 4, (pairs[:, 0] & 15) << 4 | pairs[:, 1] >> 8, pairs[:, 1] & 255], axis=1
    )
    strip = packed.astype(np.uint8).tobytes()
    tags = [
        (256, 8),
        (257, 6),
        (258, 12),
        (259, 1),
        (262, 1),
        (273, 8 + 2 + 9 * 12 + 4),
        (277, 1),
        (278, 6),
    ]
    tags.append((279, len(strip)))
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    blob = b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4) + strip
    info_of(blob, mode="I;16")
    assert np.array_equal(decoded(blob), np.broadcast_to((samples >> 4)[:, :, None], (6, 8, 3)))


@pytest.mark.parametrize("depth", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_transparent_color_at_every_depth(depth, channels, path):
    if channels == 3 and depth < 8:
        return
    samples = np.random.default_rng(depth).integers(0, 1 << depth, (12, 40, channels))
    key = tuple(int(v) for v in samples[3, 4])
    clear = (samples == key).all(axis=2)
    want = np.broadcast_to(
        samples * 255 // ((1 << depth) - 1) if depth < 16 else samples >> 8, (12, 40, 3)
    ).copy()
    want[clear] = (1, 2, 250)
    blob = png(samples, depth, key)
    assert info_of(blob).alpha and np.array_equal(decoded(blob, matte=(1, 2, 250)), want)


@pytest.mark.parametrize("format", ["PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("channels", [2, 4])
def test_hidden_colors_do_not_bleed(channels, format, path):
    """Pure green under transparent pixels: none of it may be seen, at the edges least of all."""
    rng, matte = np.random.default_rng(5), (200, 30, 60)
    pixels = np.dstack(
        [textured(48, 64)[:, :, : channels - 1] if channels == 4 else textured(48, 64)[:, :, :1]]
        * 1
    )
    alpha = (rng.random((48, 64)) * 255).astype(np.uint8)
    alpha[(rng.random((48, 64)) < 0.5)] = 0
    alpha[10:20] = 255
    pixels[alpha == 0] = (0, 255, 0) if channels == 4 else 255
    image = Image.fromarray(np.dstack([pixels, alpha]))
    color = np.broadcast_to(pixels, (48, 64, 3)).astype(float)
    share = alpha[..., None] / 255
    whole = np.rint(color * share + np.array(matte) * (1 - share))
    blob = saved(image, format)
    assert info_of(blob).alpha
    assert np.abs(decoded(blob, matte=matte) - whole).max() <= 1
    off = np.abs(
        decoded(blob, size=(12, 16), matte=matte)
        - resized(whole, (0, 0, 48, 64), (12, 16), "lanczos")
    )
    assert off.max() <= 2


@pytest.mark.parametrize("format", ["PNG", "GIF", "TIFF", "BMP"])
def test_palette(format, path):
    image = Image.fromarray(textured(48, 64)).quantize(32)
    blob = saved(image, format)
    info_of(blob, mode="P", alpha=False)
    want = np.asarray(image.convert("RGB"))
    assert np.array_equal(decoded(blob), want)
    off = np.abs(decoded(blob, size=(20, 30)) - resized(want, (0, 0, 48, 64), (20, 30), "lanczos"))
    assert off.max() <= 1.6


@pytest.mark.parametrize("format", ["PNG", "GIF"])
def test_palette_with_transparency(format, path):
    image = Image.fromarray(textured(48, 64)).quantize(32)
    index = np.asarray(image)
    blob = saved(image, format, transparency=int(index[0, 0]))
    want = np.asarray(image.convert("RGB")).copy()
    want[index == index[0, 0]] = (250, 0, 10)
    assert info_of(blob, mode="P").alpha and np.array_equal(decoded(blob, matte=(250, 0, 10)), want)


@pytest.mark.parametrize("format", ["GIF", "PNG", "WEBP", "TIFF"])
def test_the_first_frame_of_several(format, path):
    frames = [Image.fromarray(np.full((20, 30, 3), 60 * k + 30, np.uint8)) for k in range(3)]
    blob = saved(frames[0], format, save_all=True, append_images=frames[1:])
    assert (decoded(blob) == 30).all()


def test_interlaced(path):
    pixels = textured(37, 53)
    blob = png(pixels, interlaced=True)
    info_of(blob, path="pillow")
    assert np.array_equal(decoded(blob), pixels)


@pytest.mark.parametrize("format", ["BMP", "PPM", "JPEG2000", "AVIF"])
def test_other_formats(format):
    pixels = textured(48, 64)
    blob = saved(
        pixels, format, **({"quality": 100, "subsampling": "4:4:4"} if format == "AVIF" else {})
    )
    assert np.abs(decoded(blob).astype(int) - pixels).max() <= (12 if format == "AVIF" else 0)
    info_of(blob, format=format, mode="RGB", path="pillow")


def test_what_is_refused():
    def reason(blob: bytes, **limits) -> str:
        found = image_info(blob, **limits)
        if isinstance(found, DecodeFailure):
            return found.reason
        got = Rasterizer().pixels(blob, found, (0, 0, found.height, found.width), (8, 8))
        return got.reason if isinstance(got, DecodeFailure) else "pixels"

    pixels = textured(64, 80)
    for format in ("JPEG", "PNG", "WEBP", "TIFF"):
        blob = saved(pixels, format)
        assert reason(blob) == "pixels"
        assert reason(blob, max_pixels=5_000) == "bomb", format
        assert reason(blob[: len(blob) // 2]) in ("truncated", "corrupt"), format
    damaged = bytearray(saved(pixels, "PNG"))
    damaged[damaged.index(b"IDAT") + 60] ^= 1
    assert reason(bytes(damaged)) == "corrupt"
    assert [reason(b""), reason(b"<html>"), reason(b"8BPS" + bytes(40))] == [
        "empty",
        "not_image",
        "unsupported_format",
    ]
    floats = io.BytesIO()
    Image.fromarray(np.ones((9, 9), np.float32)).save(floats, "TIFF")
    assert reason(floats.getvalue()) == "unsupported_format"


def test_damage_below_the_box_is_found(path):
    """A file is good or bad whatever is cut out of it."""
    blob = saved(np.random.default_rng(0).integers(0, 256, (400, 90, 3), dtype=np.uint8), "PNG")
    damaged = bytearray(blob)
    damaged[len(blob) * 3 // 4] ^= 1
    got = Rasterizer().pixels(bytes(damaged), info_of(bytes(damaged)), (0, 0, 40, 90), (20, 45))
    assert isinstance(got, DecodeFailure) and got.reason == "corrupt"
    short = image_info(blob[: len(blob) * 3 // 4])
    assert isinstance(short, DecodeFailure) and short.reason == "truncated"


@pytest.mark.skipif(not decode.is_built(), reason=jpegs.NO_KERNEL)
def test_a_large_damaged_png_is_not_given_to_pillow(monkeypatch):
    """Which would hold all of it."""
    blob = bytearray(saved(textured(60, 90), "PNG"))
    blob[blob.index(b"IDAT") + 60] ^= 1
    found = info_of(bytes(blob), path="native")
    monkeypatch.setattr(decode, "LARGE", 1)
    monkeypatch.setattr(Rasterizer, "_through_pillow", lambda *_: pytest.fail("Pillow was asked"))
    got = Rasterizer().pixels(bytes(blob), found, (0, 0, 60, 90), (20, 30))
    assert isinstance(got, DecodeFailure) and (got.reason, got.detail) == (
        "corrupt",
        "damaged pixel data",
    )


def test_one_rasterizer_for_several_threads():
    blobs = [
        saved(textured(90, 120, k), format)
        for k, format in enumerate(("JPEG", "PNG", "TIFF", "WEBP") * 2)
    ]
    rasterizer, got = Rasterizer(), [None] * len(blobs)

    def work(k: int) -> None:
        got[k] = rasterizer.pixels(blobs[k], info_of(blobs[k]), (0, 0, 90, 120), (30, 40))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(blobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(
        np.array_equal(one, decoded(blob, size=(30, 40)))
        for one, blob in zip(got, blobs, strict=True)
    )


def test_arguments():
    with pytest.raises(
        ConfigError, match="filter must be one of lanczos, bicubic, area, got 'nearest'"
    ):
        Rasterizer(filter="nearest")
    assert LARGE >= 4_000_000
