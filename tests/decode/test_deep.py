"""`Decode(channels=..., dtype=...)`: all bits of a file, gray, alpha, and windows of these."""

from __future__ import annotations

import io
from typing import Any

import cv2
import numpy as np
import pytest
from helpers.photos import jpeg, picture
from helpers.pngs import png
from helpers.tiffs import any_tiff, tiff
from PIL import Image

import fastfeed as ff
from fastfeed.errors import ConfigError, SampleError, SpecError
from fastfeed.sources.headers import read_headers

SIZE = (12, 10)
RNG = np.random.default_rng(0)
WIDE = RNG.integers(0, 65_536, (*SIZE, 4)).astype(np.uint16)
FLOATS = RNG.normal(size=SIZE).astype(np.float32)
WHOLE = ff.CenterCrop(SIZE)
DEEP_COLOR = png(WIDE[..., :3], 16)


def made(blob: bytes, decode: ff.Decode, *ops: Any) -> np.ndarray:
    """What a Transform makes of a file; the reason where it is bad."""
    with ff.Transform([decode, *(ops or [WHOLE])], threads=1) as transform:
        return transform([blob], ids=[0]).images[0]


def reason(blob: bytes, decode: ff.Decode) -> str:
    with ff.Transform([decode, WHOLE], threads=1) as transform:
        (bad,) = transform([blob]).bad.values()
    return f"{bad.reason}: {bad.detail}"


def pillow(image: Image.Image, format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("filters", [(0,), (0, 1, 2, 3, 4), (4,)], ids=str)
def test_png_of_16_bits(channels, filters):
    blob = png(WIDE[..., :channels], 16, filters=filters)
    wanted = channels if channels != 2 else 4
    pixels = made(blob, ff.Decode(channels=wanted, dtype="uint16"))
    if channels == 2:
        expected = WIDE[..., [0, 0, 0, 1]]
    else:
        expected = cv2.imdecode(np.frombuffer(blob, np.uint8), cv2.IMREAD_UNCHANGED)
        expected = expected.reshape(*SIZE, -1)[
            ..., [[0], [], [2, 1, 0], [2, 1, 0, 3]][channels - 1]
        ]
    np.testing.assert_array_equal(pixels, expected)
    assert pixels.dtype == np.uint16


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("dtype", ["uint16", "float32"])
def test_a_transparent_color_of_16_bits_is_alpha(channels, dtype):
    samples = WIDE[..., :channels].copy()
    samples[2, 3] += 1
    key = WIDE[2, 3, :channels]
    samples[4, 5] = key
    blob = png(samples, 16, key.tolist())
    pixels = made(blob, ff.Decode(channels=4, dtype=dtype))
    np.testing.assert_array_equal(pixels[..., :3], np.broadcast_to(samples, (*SIZE, 3)))
    assert np.argwhere(pixels[..., 3] == 0).tolist() == [[4, 5]]
    assert np.unique(pixels[..., 3]).tolist() == [0, 65_535]
    stated = reason(blob, ff.Decode(channels=channels, dtype=dtype))
    assert f"{channels + 1} channels of uint16, and Decode takes {channels}" in stated


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize(
    "layout",
    [
        {},
        {"big": True, "strip": 5},
        {"compression": 5, "predictor": 2},
        {"compression": 8, "predictor": 2, "big": True, "tile": (16, 16)},
        {"compression": 32773, "strip": 1},
    ],
    ids=str,
)
def test_tiff_of_16_bits(channels, layout):
    samples = WIDE[..., :channels]
    pixels = made(tiff(samples, **layout), ff.Decode(channels=channels, dtype="uint16"))
    np.testing.assert_array_equal(pixels, samples)


@pytest.mark.parametrize(
    "how", [(cv2.IMWRITE_TIFF_COMPRESSION, 1), (cv2.IMWRITE_TIFF_COMPRESSION, 5)]
)
def test_float_tiff(how):
    blob = cv2.imencode(".tiff", FLOATS, how)[1].tobytes()
    decode = ff.Decode(channels=1, dtype="float32")
    np.testing.assert_array_equal(made(blob, decode)[..., 0], FLOATS)
    np.testing.assert_array_equal(
        made(pillow(Image.fromarray(FLOATS), "TIFF"), decode)[..., 0], FLOATS
    )
    assert reason(blob, ff.Decode()).startswith("unsupported_format: unsupported: samples that are")


@pytest.mark.parametrize(
    ("array", "dtype"),
    [
        (WIDE[..., 0], "uint16"),
        (WIDE[..., :3].astype(">u2"), "uint16"),
        (WIDE[..., 0], "float32"),
        (FLOATS, "float32"),
        (np.asfortranarray(FLOATS), "float32"),
        (FLOATS.astype(np.float16), "float32"),
        (FLOATS.astype(np.float64)[..., None], "float32"),
        ((WIDE[..., :3] >> 8).astype(np.uint8), "float32"),
        ((WIDE[..., :3] >> 8).astype(np.uint8), "uint8"),
        ((WIDE[..., 0] >> 8).astype(np.uint8), "uint8"),
    ],
    ids=lambda value: getattr(value, "dtype", value),
)
def test_npy(array, dtype):
    channels = 3 if array.ndim == 3 and array.shape[2] == 3 else 1
    pixels = made(npy(array), ff.Decode(channels=channels, dtype=dtype))
    np.testing.assert_array_equal(pixels, array.reshape(*SIZE, -1).astype(dtype))


@pytest.mark.parametrize(
    "blob",
    [
        pillow(Image.fromarray(picture(1, SIZE)), "PPM"),
        pillow(Image.fromarray(picture(1, SIZE)).convert("L"), "PPM"),
        pillow(Image.fromarray(picture(1, SIZE)).convert("L"), "JPEG2000"),
    ],
)
def test_floats_are_the_numbers_of_files_known_to_have_8_bits(blob):
    decode = ff.Decode(channels=3, dtype="float32")
    np.testing.assert_array_equal(made(blob, decode), made(blob, ff.Decode()))


def test_floats_are_the_numbers_of_jpeg_and_png():
    decode = ff.Decode(channels=3, dtype="float32")
    for blob in (jpeg(1, SIZE), pillow(Image.fromarray(picture(1, SIZE)), "PNG")):
        expected = np.asarray(Image.open(io.BytesIO(blob)), np.float32)
        np.testing.assert_array_equal(made(blob, decode), expected)
    np.testing.assert_array_equal(made(DEEP_COLOR, decode), WIDE[..., :3].astype(np.float32))


@pytest.mark.parametrize("filter", ["bilinear", "bicubic", "lanczos", "box"])
def test_windows_are_resampled_as_floats(filter):
    small = (7, 6)
    pixels = made(DEEP_COLOR, ff.Decode(dtype="uint16"), ff.Resize(small, filter=filter))
    for channel in range(3):
        plane = Image.fromarray(WIDE[..., channel].astype(np.float32))
        expected = plane.resize(small[::-1], getattr(Image.Resampling, filter.upper()))
        expected = np.rint(np.asarray(expected)).clip(0, 65_535)
        np.testing.assert_array_equal(pixels[..., channel], expected)


@pytest.mark.parametrize("size", [(5, 4), (20, 30)])
def test_linear_is_that_of_opencv(size):
    decode = ff.Decode(channels=1, dtype="float32")
    pixels = made(npy(FLOATS), decode, ff.Resize(size, filter="linear"))
    expected = cv2.resize(FLOATS, size[::-1], interpolation=cv2.INTER_LINEAR)
    np.testing.assert_allclose(pixels[..., 0], expected, rtol=1e-5, atol=1e-5)


def test_nearest_keeps_values():
    pixels = made(DEEP_COLOR, ff.Decode(dtype="uint16"), ff.Resize((6, 5), filter="nearest"))
    np.testing.assert_array_equal(pixels, WIDE[1::2, 1::2, :3])


def test_orientation_borders_and_flips():
    blob = tiff(WIDE[..., :3], orientation=6)
    ops = [ff.Pad((1, 2, 3, 4), fill=(255, 0, 9)), ff.RandomFlip(1.0)]
    pixels = made(blob, ff.Decode(dtype="uint16"), ff.Crop(1, 2, (8, 9)), *ops, ff.Pad(1))
    shown = np.rot90(WIDE[..., :3], -1)[1:9, 2:11]
    fill = np.full((8 + 1 + 3, 9 + 2 + 4, 3), np.array([65_535, 0, 9 * 257]), np.uint16)
    top, left = 1, 2
    fill[top : top + 8, left : left + 9] = shown
    expected = np.pad(fill[:, ::-1], ((1, 1), (1, 1), (0, 0)))
    np.testing.assert_array_equal(pixels, expected)


@pytest.mark.parametrize(
    "op",
    [
        ff.Rotate((33, 33), "nearest"),
        ff.Rotate((33, 33), "nearest", border="reflect"),
        ff.Rotate((30, 30), "nearest", expand=True),
        ff.Affine(20, (0.1, 0.1), (0.8, 1.2), filter="nearest"),
        ff.Perspective(0.4, 1.0, "nearest"),
        ff.ElasticTransform(20, 2, "nearest"),
        ff.GridDistortion(3, filter="nearest"),
        ff.Maybe(ff.Rotate((33, 33), "nearest"), 1.0),
        ff.OneOf([ff.Rotate((33, 33), "nearest"), ff.Affine(20, filter="nearest")]),
        ff.Sequential([ff.Rotate((9, 9), "nearest"), ff.Affine((9, 9), filter="nearest")]),
    ],
    ids=repr,
)
@pytest.mark.parametrize("dtype", ["uint16", "float32"])
def test_turns_move_all_bits_as_they_move_bytes(op, dtype):
    """Of numbers that are 256 times a byte, and of floats that are bytes."""
    small = (WIDE[..., :3] >> 8).astype(np.uint8)
    blob = png(small.astype(np.uint16) * 256, 16) if dtype == "uint16" else png(small)
    ops = [WHOLE, op, ff.RandomFlip(1.0), ff.Resize((9, 11), filter="nearest")]
    expected = made(png(small), ff.Decode(), *ops)
    factor = 256 if dtype == "uint16" else 1
    pixels = made(blob, ff.Decode(dtype=dtype), *ops, ff.ToLayout("CHW"))
    assert len(np.unique(pixels)) > 50
    np.testing.assert_array_equal(pixels, expected.transpose(2, 0, 1).astype(dtype) * factor)


def test_views():
    views = made(DEEP_COLOR, ff.Decode(dtype="uint16"), ff.FiveCrop((4, 6)))
    np.testing.assert_array_equal(views[0], WIDE[:4, :6, :3])
    np.testing.assert_array_equal(views[3], WIDE[-4:, -6:, :3])


@pytest.mark.parametrize(
    ("ops", "expected"),
    [
        ([ff.ToFloat()], WIDE[..., :3] / 65_535),
        ([ff.ToFloat("bfloat16")], WIDE[..., :3] / 65_535),
        ([ff.Normalize((0.5,) * 3, (0.25,) * 3)], (WIDE[..., :3] / 65_535 - 0.5) / 0.25),
        (
            [ff.Standardize()],
            (WIDE[..., :3].astype(float) - WIDE[..., :3].mean()) / WIDE[..., :3].std(),
        ),
    ],
    ids=str,
)
def test_conversion_of_16_bits(ops, expected):
    layout = ff.ToLayout("CHW")
    pixels = made(DEEP_COLOR, ff.Decode(dtype="uint16"), WHOLE, *ops, layout)
    exact = expected.transpose(2, 0, 1).astype(pixels.dtype)
    assert pixels.dtype.name == (ops[0].dtype if isinstance(ops[0], ff.ToFloat) else "float32")
    np.testing.assert_allclose(pixels.astype(float), exact.astype(float), rtol=1e-6, atol=1e-6)


def test_conversion_of_floats():
    decode, blob = ff.Decode(channels=1, dtype="float32"), npy(FLOATS)
    np.testing.assert_array_equal(made(blob, decode, WHOLE, ff.ToFloat())[..., 0], FLOATS)
    half = made(blob, decode, WHOLE, ff.ToFloat("float16"))[..., 0]
    np.testing.assert_array_equal(half, FLOATS.astype(np.float16))
    scaled = made(blob, decode, WHOLE, ff.Normalize((2.0,), (0.5,)))[..., 0]
    np.testing.assert_allclose(scaled, (FLOATS - 2) / 0.5, rtol=1e-6)


def test_alpha_is_kept():
    pixels = (WIDE >> 8).astype(np.uint8)
    decode = ff.Decode(channels=4)
    np.testing.assert_array_equal(made(png(pixels), decode), pixels)
    gray = made(png(pixels[..., :2]), decode)
    np.testing.assert_array_equal(gray, pixels[..., [0, 0, 0, 1]])
    opaque = made(png(pixels[..., :3]), decode)
    np.testing.assert_array_equal(opaque, np.dstack([pixels[..., :3], np.full(SIZE, 255)]))
    small = made(png(pixels), decode, ff.Resize((6, 7)))
    expected = Image.fromarray(pixels).resize((7, 6), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(small, np.asarray(expected))


GRAYS = {
    "JPEG": {"subsampling": 2},
    "JPEG progressive": {"progressive": True, "subsampling": 0},
    "PNG": {},
    "WEBP": {"lossless": True},
    "TIFF": {},
    "BMP": {},
}


@pytest.mark.parametrize("format", GRAYS)
@pytest.mark.parametrize("engine", ["native", "pillow"])
def test_gray(format, engine):
    """Luma of a JPEG, as Pillow's draft and OpenCV have it, and mode L of all others."""
    blob = pillow(Image.fromarray(picture(3, (33, 50))), format.split()[0], **GRAYS[format])
    ops = [ff.Decode(channels=1), ff.CenterCrop((33, 50))]
    with ff.Transform(ops, threads=1, decode=engine) as transform:
        pixels = transform([blob]).images[0]
    image = Image.open(io.BytesIO(blob))
    image.draft("L", image.size)
    np.testing.assert_array_equal(pixels[..., 0], np.asarray(image.convert("L")))
    if format.startswith("JPEG"):
        encoded = np.frombuffer(blob, np.uint8)
        np.testing.assert_array_equal(pixels[..., 0], cv2.imdecode(encoded, cv2.IMREAD_GRAYSCALE))


def test_gray_over_the_matte_and_of_pixels():
    pixels = (WIDE >> 8).astype(np.uint8)
    with ff.Transform([ff.Decode((0, 90, 0), channels=1), WHOLE], threads=1) as transform:
        over, of_rgb, of_gray = transform([png(pixels), pixels[..., :3], pixels[..., 0]]).images
    matte = Image.new("RGB", SIZE[::-1], (0, 90, 0))
    matte.paste(Image.fromarray(pixels), mask=Image.fromarray(pixels[..., 3]))
    np.testing.assert_allclose(over[..., 0], np.asarray(matte.convert("L")), atol=1)
    expected = np.asarray(Image.fromarray(pixels[..., :3]).convert("L"))
    np.testing.assert_array_equal(of_rgb[..., 0], expected)
    np.testing.assert_array_equal(of_gray[..., 0], pixels[..., 0])


def test_gray_ops_and_windows_agree_with_pixels_that_are_gray():
    """A gray feed of a file gives what a feed of its gray pixels does."""
    blob = pillow(Image.fromarray(picture(3, (33, 50))), "PNG")
    gray = np.asarray(Image.fromarray(picture(3, (33, 50))).convert("L"))
    ops = [ff.RandomResizedCrop(16), ff.RandomFlip(), ff.Invert(), ff.ToFloat()]
    with ff.Transform([ff.Decode(channels=1), *ops], threads=1, seed=1) as transform:
        of_file, of_pixels = (transform([item], ids=[5]).images for item in (blob, gray))
    np.testing.assert_allclose(of_file, of_pixels, atol=1.01 / 255)


FRAMES = [Image.fromarray(picture(seed, SIZE)) for seed in (1, 2)]


@pytest.mark.parametrize(
    ("format", "options"),
    [("TIFF", {}), ("GIF", {}), ("WEBP", {"lossless": True}), ("PNG", {})],
)
def test_the_first_frame_or_page_counts(format, options):
    blob = pillow(FRAMES[0], format, save_all=True, append_images=FRAMES[1:], **options)
    image = Image.open(io.BytesIO(blob))
    assert image.n_frames == 2
    first = np.asarray(image.convert("RGB"))
    np.testing.assert_array_equal(made(blob, ff.Decode()), first)
    np.testing.assert_array_equal(made(blob, ff.Decode(dtype="float32")), first)
    assert (made(blob, ff.Decode(channels=4))[..., 3] == 255).all()


def test_the_first_page_of_16_bits_counts():
    pages = [Image.fromarray(WIDE[..., k]) for k in (0, 1)]
    blob = pillow(pages[0], "TIFF", save_all=True, append_images=pages[1:])
    pixels = made(blob, ff.Decode(channels=1, dtype="uint16"))
    np.testing.assert_array_equal(pixels[..., 0], WIDE[..., 0])


@pytest.mark.parametrize(
    ("blob", "decode", "text"),
    [
        (DEEP_COLOR, ff.Decode(channels=1, dtype="uint16"), "3 channels of uint16, and Decode"),
        (png(WIDE, 16), ff.Decode(dtype="float32"), "4 channels of uint16, and Decode takes 3"),
        (jpeg(1, SIZE), ff.Decode(dtype="uint16"), "samples of uint8, and Decode(dtype="),
        (png(WIDE[..., :3], 16, interlaced=True), ff.Decode(dtype="uint16"), "interlaced"),
        (npy(FLOATS), ff.Decode(), "an array of float32[12, 10, 1]; Decode(dtype="),
        (npy(FLOATS.astype(np.int64)), ff.Decode(dtype="float32"), "an array of int64, an image"),
        (npy(np.zeros((4, 4, 9), np.float32)), ff.Decode(dtype="float32"), "of shape (4, 4, 9)"),
        (
            any_tiff(WIDE[..., :1].astype(np.int16), 16, 1, format=2),
            ff.Decode(dtype="float32"),
            "not",
        ),
        (
            b"P6 12 10 65535\n" + bytes(720),
            ff.Decode(dtype="float32"),
            "PPM of mode RGB, which may",
        ),
        (pillow(FRAMES[0], "AVIF"), ff.Decode(dtype="float32"), "AVIF of mode RGB, which may have"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_samples_have_a_reason(blob, decode, text):
    stated = reason(blob, decode)
    assert stated.startswith("unsupported_format: ") and text in stated


def test_damage_is_found():
    broken = npy(FLOATS)[:-3]
    decode = ff.Decode(channels=1, dtype="float32")
    assert reason(broken, decode).startswith("truncated: ")
    huge = npy(FLOATS).replace(b"(12, 10)", b"(1200, 9999999)")
    assert "bomb" in reason(huge, decode) or "truncated" in reason(huge, decode)
    cut = DEEP_COLOR[: len(DEEP_COLOR) // 2]
    assert reason(cut, ff.Decode(dtype="uint16")).startswith("truncated: ")


@pytest.mark.parametrize(
    ("ops", "text"),
    [
        (
            [ff.Decode(dtype="uint16"), WHOLE, ff.Invert()],
            "works on bytes, got HWC uint16[12, 10, 3]",
        ),
        ([ff.Decode(dtype="float32"), WHOLE, ff.Equalize()], "have float32 pixels, leave it out"),
        ([ff.Decode(channels=4), WHOLE, ff.Invert()], "works on images of 1 or 3 channels, got"),
        ([ff.Decode(dtype="uint16"), WHOLE, ff.Rotate(9)], 'pixels write filter="nearest", and'),
        ([ff.Decode(dtype="uint16"), WHOLE, ff.Maybe(ff.Invert())], "Maybe works on bytes, got"),
        ([WHOLE, ff.ToFloat(), ff.Rotate(9, "nearest")], "as they are decoded, got HWC float32["),
    ],
    ids=str,
)
def test_ops_for_bytes_are_refused(ops, text):
    with pytest.raises(SpecError) as error:
        ff.Transform(ops)
    assert text in str(error.value)


def test_mixing_and_other_backends_are_refused(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "0.png").write_bytes(DEEP_COLOR)
    source = ff.ImageFolder(tmp_path)
    ops = [ff.Decode(dtype="uint16"), WHOLE]
    with pytest.raises(SpecError, match=r"MixUp mixes bytes of 1 or 3 channels, got HWC uint16\["):
        ff.Feed(source, [*ops, ff.MixUp()], batch=1)
    with pytest.raises(ConfigError, match='backend="dali" makes gray or RGB of 8 bits, got Dec'):
        ff.Feed(source, ops, batch=1, backend="dali")
    nvjpeg = ff.GpuDecode("nvjpeg")
    with pytest.raises(ConfigError, match='backend="nvjpeg" makes RGB of 8 bits, got Decode'):
        ff.Feed(source, [ff.Decode(channels=1), WHOLE], batch=1, decode=nvjpeg)
    with ff.Feed(
        source, [ff.Decode(channels=1, dtype="uint16"), WHOLE], batch=1, on_bad="raise"
    ) as feed:
        with pytest.raises(SampleError, match="3 channels of uint16"):
            next(iter(feed))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"channels": 2}, "Decode channels must be 1, 3 or 4, got 2"),
        ({"dtype": "int16"}, "Decode dtype must be uint8, uint16 or float32, got 'int16'"),
    ],
)
def test_options(options, text):
    with pytest.raises(ConfigError) as error:
        ff.Decode(**options)
    assert str(error.value) == text


def test_depth_follows_the_geometry_of_its_image(tmp_path):
    """An image whose red is the upper byte of its depth, cut and flipped alike."""
    for k in range(4):
        depth = RNG.integers(0, 65_536, (30, 40)).astype(np.uint16)
        color = np.dstack([depth >> 8] * 3).astype(np.uint8)
        for name, blob in (("image", png(color)), ("depth", png(depth[..., None], 16))):
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / f"{k}.png").write_bytes(blob)
    pairs = ff.Together(
        {name: ff.ImageFolder(tmp_path / name, labeled=False) for name in ("image", "depth")}
    )
    geometry = [
        ff.RandomResizedCrop(16, filter="nearest"),
        ff.RandomFlip(),
        ff.Rotate(30, "nearest"),
    ]
    ops = {
        "image": [*geometry, ff.Brightness((1.0, 1.0))],
        "depth": [ff.Decode(channels=1, dtype="uint16"), *geometry],
    }
    with ff.Feed(pairs, ops, batch=4, seed=2) as feed:
        assert feed.fields["depth"] == ff.Field("depth", (16, 16, 1), "uint16")
        for epoch in range(2):
            for batch in feed.batches(epoch):
                np.testing.assert_array_equal(batch["depth"] >> 8, batch["image"][..., :1])


def test_sizes_of_float_files_are_known(tmp_path):
    (tmp_path / "0.npy").write_bytes(npy(FLOATS))
    (tmp_path / "1.tiff").write_bytes(pillow(Image.fromarray(FLOATS), "TIFF"))
    source = ff.ImageFolder(tmp_path, labeled=False, extensions=(".npy", ".tiff"))
    assert read_headers(source).sizes.tolist() == [[*SIZE]] * 2


@pytest.mark.parametrize("dtype", ["uint16", pytest.param("float32", marks=pytest.mark.slow)])
def test_feeds_of_a_helper_process_and_of_pytorch(dtype, tmp_path):
    pytest.importorskip("torch")
    for k in range(4):
        (tmp_path / f"{k}.npy").write_bytes(npy(WIDE[..., k]))
    source = ff.ImageFolder(tmp_path, labeled=False, extensions=(".npy",))
    ops = [ff.Decode(channels=1, dtype=dtype), WHOLE, ff.Normalize((0.5,), (0.5,))]
    expected = WIDE.transpose(2, 0, 1)[..., None].astype(np.float64)
    expected = (expected / (65_535 if dtype == "uint16" else 1) - 0.5) / 0.5
    with ff.Feed(source, ops, batch=4, shuffle=False, side_process=True) as feed:
        for convert in ("host", "device"):
            images, _ = next(iter(feed.to_torch("cpu", convert=convert)))
            np.testing.assert_allclose(images.numpy(), expected, rtol=1e-6, atol=1e-6)
            feed.seek(0)


def test_padding_to_the_largest_image(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTFEED_CACHE", str(tmp_path / "cache"))
    arrays = [WIDE[:height, : height - 3, 0] for height in (8, 12)]
    for k, array in enumerate(arrays):
        (tmp_path / f"{k}.npy").write_bytes(npy(array))
    source = ff.ImageFolder(tmp_path, labeled=False, extensions=(".npy",))
    decode = ff.Decode(channels=1, dtype="uint16")
    ops = [decode, ff.Resize(ff.LargestSize(), fit="corner")]
    with ff.Feed(source, ops, batch=2, shuffle=False) as feed:
        batch = next(iter(feed))
    assert batch.images.dtype == np.uint16
    for array, image, valid in zip(arrays, batch.images, batch["valid"], strict=True):
        np.testing.assert_array_equal(image[valid][:, 0], array.ravel())
        assert not image[~valid].any()
