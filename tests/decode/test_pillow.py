"""The Pillow engine: every kind of image to the right RGB, every kind of damage to a reason."""

import io
import struct
import threading
import zlib

import numpy as np
import pytest
from PIL import AvifImagePlugin, Image, ImageFile

from fastfeed.decode import DecodeFailure, Header, PillowEngine, Request
from fastfeed.decode.base import dct_denominator
from fastfeed.decode.memory_limit import MemoryLimit
from fastfeed.decode.sniff import sniff
from fastfeed.errors import ConfigError
from fastfeed.ops import Decode
from fastfeed.ops.program.compile import Windows

GO = threading.Event()


def scene(height=48, width=64) -> np.ndarray:
    """A smooth colored picture, so that JPEG keeps it within a few levels."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [128 + 100 * np.sin(x / 17 + c) * np.cos(y / 13 - c) for c in range(3)]
    return np.stack(planes, axis=2).clip(0, 255).astype(np.uint8)


def encoded(image: Image.Image, format: str, **options) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def decoded(
    blob: bytes,
    op: Decode | None = None,
    box=None,
    size=None,
    flip=(False, False),
    filter="bilinear",
):
    """Pixels of one blob, or why there are none."""
    engine = PillowEngine(op or Decode())
    (header,) = engine.probe([blob])
    if isinstance(header, DecodeFailure):
        return header
    box = (0, 0, header.height, header.width) if box is None else box
    size = (header.height, header.width) if size is None else size
    out = np.full((1, *size, 3), 99, np.uint8)
    windows = Windows(np.array([box], float), np.array([flip]), np.array([size]))
    (why,) = engine.decode(Request([blob], [header], windows, filter), out, GO)
    if why is not None:
        assert not out.any(), "the slot of a bad sample is zeroed"
        return why
    return out[0]


def difference(a: np.ndarray, b: np.ndarray) -> int:
    return int(np.abs(a.astype(int) - b.astype(int)).max())


RGB = Image.fromarray(scene())
GRAY16 = (np.linspace(0, 65_535, 48 * 64).reshape(48, 64)).astype(np.uint16)


@pytest.mark.parametrize(
    ("format", "options", "levels"),
    [
        ("PNG", {}, 0),
        ("BMP", {}, 0),
        ("TIFF", {}, 0),
        ("TIFF", {"compression": "tiff_lzw"}, 0),
        ("WEBP", {"lossless": True}, 0),
        ("PPM", {}, 0),
        ("JPEG2000", {}, 0),
        ("JPEG", {"quality": 97, "subsampling": 0}, 4),
        ("JPEG", {"quality": 97, "progressive": True}, 8),
        ("AVIF", {"quality": 100}, 8),
        ("GIF", {}, 60),
    ],
)
def test_formats(format, options, levels):
    assert difference(decoded(encoded(RGB, format, **options)), scene()) <= levels


def test_gray_jpeg_expands():
    gray = Image.fromarray(scene()[:, :, 0])
    pixels = decoded(encoded(gray, "JPEG", quality=97))
    assert difference(pixels, np.repeat(scene()[:, :, :1], 3, axis=2)) <= 4


def test_cmyk_jpeg_has_its_colors():
    pixels = decoded(encoded(RGB.convert("CMYK"), "JPEG", quality=97, subsampling=0))
    assert difference(pixels, scene()) <= 12


def test_16_bit_gray_keeps_the_high_byte():
    for format in ("PNG", "TIFF"):
        pixels = decoded(encoded(Image.fromarray(GRAY16), format))
        assert np.array_equal(
            pixels, np.repeat((GRAY16 >> 8).astype(np.uint8)[:, :, None], 3, axis=2)
        ), format


def test_16_bit_rgb_png_keeps_the_high_byte():
    wide = np.stack([GRAY16, GRAY16[::-1], GRAY16[:, ::-1]], axis=2)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in wide)
    head = struct.pack(">IIBBBBB", 64, 48, 16, 2, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    blob = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    assert difference(decoded(blob), (wide >> 8).astype(np.uint8)) <= 1


def test_transparency_shows_the_matte_not_what_hides_below():
    rgba = np.dstack([scene(), np.zeros((48, 64), np.uint8)])
    rgba[:, 32:, 3] = 255
    half = rgba.copy()
    half[..., 3] = 128
    blob = encoded(Image.fromarray(rgba), "PNG")
    pixels = decoded(blob, Decode(matte=(10, 20, 30)))
    assert np.array_equal(pixels[:, 32:], scene()[:, 32:])
    assert (pixels[:, :32] == (10, 20, 30)).all()
    assert (decoded(blob)[:, :32] == 255).all()
    mixed = decoded(encoded(Image.fromarray(half), "PNG"), Decode(matte=(0, 0, 0)))
    assert difference(mixed, (scene() * (128 / 255)).round().astype(np.uint8)) <= 1


def test_palette_with_a_transparent_entry():
    image = Image.new("P", (4, 4), 0)
    image.putpalette([200, 0, 0, 0, 200, 0])
    image.putpixel((0, 0), 1)
    pixels = decoded(encoded(image, "PNG", transparency=0))
    assert tuple(pixels[0, 0]) == (0, 200, 0)
    assert tuple(pixels[3, 3]) == (255, 255, 255)


def test_first_frame_of_an_animation():
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "blue")]
    for format in ("GIF", "PNG", "WEBP"):
        blob = encoded(
            frames[0],
            format,
            save_all=True,
            append_images=frames[1:],
            **({"lossless": True} if format == "WEBP" else {}),
        )
        assert tuple(decoded(blob)[4, 4]) == (255, 0, 0), format


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_windows_and_flips(format, orientation):
    """A window of the displayed image equals that window of the fully decoded and turned image."""
    from fastfeed.decode.orientation import displayed

    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"JPEG": {"quality": 97, "subsampling": 0}, "WEBP": {"lossless": True}}.get(
        format, {}
    )
    blob = encoded(RGB, format, exif=exif, **options)
    shown = displayed(orientation, scene())
    whole = decoded(blob)
    assert whole.shape == shown.shape
    assert difference(whole, shown) <= 4
    cut = decoded(blob, box=(8, 4, 20, 30), size=(20, 30), flip=(True, False))
    assert difference(cut, shown[8:28, 4:34][::-1]) <= 4
    cut = decoded(blob, box=(3, 5, 20, 30), size=(20, 30), flip=(False, True))
    assert difference(cut, shown[3:23, 5:35][:, ::-1]) <= 4


@pytest.mark.parametrize("filter", ["bilinear", "bicubic", "lanczos", "box"])
@pytest.mark.parametrize("size", [(7, 5), (23, 31), (60, 70)], ids=str)
def test_a_window_is_scaled_with_the_pixels_around_it(filter, size):
    """Also of modes that are converted, of which only a part of the image is."""
    noise = np.random.default_rng(0).integers(0, 256, (96, 120, 3)).astype(np.uint8)
    palette = Image.fromarray(noise).quantize(64)
    top, left, height, width = box = (20.25, 31.5, 40.0, 50.0)
    want = palette.convert("RGB").resize(
        size[::-1],
        Image.Resampling[filter.upper()],
        box=(left, top, left + width, top + height),
    )
    got = decoded(encoded(palette, "PNG"), box=box, size=size, filter=filter)
    assert difference(got, np.asarray(want)) <= 1


@pytest.mark.parametrize("shrink", [2, 4, 8])
def test_dct_scaling_is_close_to_full_decoding(shrink):
    big = Image.fromarray(scene(601, 811))  # odd sizes: the last block is not full
    blob = encoded(big, "JPEG", quality=97)
    size = (int(600 / shrink / 1.5), int(810 / shrink / 1.5))
    assert dct_denominator((600, 810), size) == shrink
    want = np.asarray(big.resize(size[::-1], Image.Resampling.BILINEAR, box=(0, 0, 810, 600)))
    got = decoded(blob, box=(0, 0, 600, 810), size=size)
    assert difference(got, want) <= 6


def test_dct_rule():
    table = {((448, 448), (224, 224)): 1, ((672, 672), (224, 224)): 2, ((672, 600), (224, 224)): 1}
    table |= {
        ((1344, 1400), (224, 224)): 4,
        ((9999, 9999), (224, 224)): 8,
        ((10, 10), (224, 224)): 1,
    }
    assert {pair: dct_denominator(*pair) for pair in table} == table
    assert dct_denominator((1344, 1344), (224, 224), "box") == 2, "a box needs more: 3x"


JPEG, PNG = encoded(Image.fromarray(scene(480, 640)), "JPEG", quality=90), encoded(RGB, "PNG")
HUGE = bytearray(JPEG)
_at = HUGE.index(b"\xff\xc0") + 5
HUGE[_at : _at + 4] = struct.pack(">HH", 65_500, 65_500)


@pytest.mark.parametrize(
    ("blob", "reason"),
    [
        (b"", "empty"),
        (b"<html>not a photo</html>", "not_image"),
        (b"\0" * 1000, "not_image"),
        (JPEG[: len(JPEG) // 2], "truncated"),
        (JPEG[:40], "truncated"),
        (PNG[: len(PNG) // 2], "truncated"),
        (encoded(RGB, "WEBP")[:-20], "truncated"),
        (encoded(RGB, "TIFF")[:2000], "truncated"),
        (encoded(RGB, "BMP")[:2000], "truncated"),
        (encoded(RGB, "GIF")[:500], "truncated"),
        (PNG[:60] + b"x" * 200 + PNG[260:], "corrupt"),
        (bytes(HUGE), "bomb"),
        (b"8BPS" + b"\0" * 100, "unsupported_format"),
        (
            encoded(Image.fromarray(np.random.default_rng(0).random((9, 9), np.float32)), "TIFF"),
            "unsupported_format",
        ),
    ],
)
def test_damage_gets_its_reason(blob, reason):
    why = decoded(blob)
    assert isinstance(why, DecodeFailure), "this must not decode"
    assert why.reason == reason, why


def test_size_limit_counts_pixels_of_the_header():
    assert decoded(PNG, Decode(max_pixels=48 * 64 - 1)) == DecodeFailure(
        "bomb", "64x48 pixels, the limit is 3071: Decode(max_pixels=...)"
    )
    assert decoded(PNG, Decode(max_pixels=48 * 64)).shape == (48, 64, 3)


def test_few_bytes_that_claim_many_pixels_are_a_bomb():
    blob = encoded(Image.new("1", (12_000, 12_000)), "PNG")
    assert len(blob) < 36_000
    assert decoded(blob).reason == "bomb"


def test_one_bad_sample_leaves_its_neighbors_alone():
    engine = PillowEngine(Decode())
    blobs = [JPEG, JPEG[: len(JPEG) // 2], PNG]
    headers = engine.probe(blobs)
    assert all(isinstance(h, Header) for h in headers)
    out = np.full((3, 8, 8, 3), 7, np.uint8)
    windows = Windows(
        np.array([[0, 0, h.height, h.width] for h in headers], float),
        np.zeros((3, 2), bool),
        np.full((3, 2), 8),
    )
    done = engine.decode(Request(blobs, headers, windows, "bilinear"), out, GO)
    assert [d.reason if d else None for d in done] == [None, "truncated", None]
    assert not out[1].any()
    assert out[0].mean() > 50 and out[2].mean() > 50


def test_stops_between_images():
    stop = threading.Event()
    stop.set()
    engine = PillowEngine(Decode())
    out = np.full((1, 8, 8, 3), 7, np.uint8)
    windows = Windows(np.array([[0, 0, 48, 64]], float), np.zeros((1, 2), bool), np.full((1, 2), 8))
    engine.decode(Request([PNG], engine.probe([PNG]), windows, "bilinear"), out, stop)
    assert (out == 7).all()


def test_refuses_to_run_where_truncated_files_would_pass(monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with pytest.raises(ConfigError, match=r"LOAD_TRUNCATED_IMAGES is True.*set it to False"):
        PillowEngine(Decode())


def test_sniffs_content_not_names():
    assert sniff(JPEG) == "JPEG"
    assert sniff(PNG) == "PNG"
    assert sniff(b"RIFF\0\0\0\0WAVE") is None


def test_budget_admits_by_bytes_and_one_at_least():
    budget, order = MemoryLimit(100), []
    inside, leave = threading.Event(), threading.Event()

    def large():
        with budget.reserve(1000):
            order.append("large in")
            inside.set()
            leave.wait(5)
            order.append("large out")

    def small():
        with budget.reserve(10):
            order.append("small in")

    first = threading.Thread(target=large)
    first.start()
    inside.wait(5)
    second = threading.Thread(target=small)
    second.start()
    leave.set()
    first.join(5)
    second.join(5)
    assert order == ["large in", "large out", "small in"]


def test_avif_is_decoded_by_one_thread_per_image(monkeypatch):
    """Pillow would start one for each core, for each of as many images at a time."""
    blob, threads = encoded(RGB, "AVIF", quality=90), []
    real = AvifImagePlugin._avif.AvifDecoder

    def decoder(data, codec, max_threads):
        threads.append(max_threads)
        return real(data, codec, max_threads)

    monkeypatch.setattr(AvifImagePlugin._avif, "AvifDecoder", decoder)
    assert decoded(blob).shape == (RGB.height, RGB.width, 3)
    monkeypatch.setattr(AvifImagePlugin, "DEFAULT_MAX_THREADS", 3)
    decoded(blob)
    assert threads == [1, 3], "unless the user asks Pillow for more"
    Image.open(io.BytesIO(blob))
    monkeypatch.setattr(AvifImagePlugin, "DEFAULT_MAX_THREADS", 0)
    Image.open(io.BytesIO(blob))
    assert threads[3] == AvifImagePlugin._get_default_max_threads(), "of others nothing has changed"
