"""HEIC: told by content, decoded to the right RGB with libheif, refused with the pip command
without.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from decode.test_pillow import decoded
from helpers import heics
from helpers.heics import heic, picture
from helpers.preprocess.rasters import TURNED

import fastfeed as ff
from fastfeed.decode import DecodeFailure
from fastfeed.decode.formats import heic as module
from fastfeed.decode.sniff import sniff
from fastfeed.ops import Decode
from fastfeed.preprocess.model.plan import version_differences
from fastfeed.preprocess.model.recipe import Recipe
from fastfeed.preprocess.shard.versions import versions

needs_libheif = pytest.mark.skipif(
    module.installed() is None, reason="no pi-heif; pip install 'fastfeed[heic]'"
)
RGB = np.random.default_rng(0).integers(0, 256, (48, 70, 3), dtype=np.uint8)
FILE = heic([picture(RGB)])
TILES = [picture(np.full((32, 32, 3), 60 * k + 20, np.uint8)) for k in range(4)]
GRID = heic(TILES, grid=(2, 2, 60, 50))


def brands(*names: bytes) -> bytes:
    return heics.boxed(b"ftyp", names[0] + bytes(4) + b"".join(names[1:])) + bytes(32)


@pytest.mark.parametrize(
    ("blob", "format"),
    [
        (FILE, "HEIC"),
        (brands(b"heix", b"mif1", b"heix"), "HEIC"),
        (brands(b"mif1", b"mif1", b"heic"), "HEIC"),
        (brands(b"msf1", b"hevc"), "HEIC"),
        (brands(b"heic", b"mif1", b"heic", b"avif"), "HEIC"),
        (brands(b"avif", b"mif1", b"miaf"), "AVIF"),
        (brands(b"mif1", b"mif1", b"miaf", b"avif"), "AVIF"),
        (brands(b"avis", b"msf1"), "AVIF"),
        (brands(b"isom", b"mp42"), None),
        (brands(b"qt  ", b"eica", b"vif\0"), None),
        (b"\xff\x0a" + bytes(30), "JPEG XL"),
        (b"\0\0\0\x0cJXL \r\n\x87\n" + brands(b"jxl "), "JPEG XL"),
    ],
)
def test_told_by_content(blob, format):
    assert sniff(blob) == format


def test_without_libheif_the_reason_has_the_command(monkeypatch):
    monkeypatch.setattr(module, "_PACKAGES", ("no_such_package",))
    why = DecodeFailure("unsupported_format", "HEIC needs pi-heif: pip install 'fastfeed[heic]'")
    assert decoded(FILE) == why
    assert decoded(FILE[: len(FILE) // 2]) == why
    assert module.installed() is None


def test_plans_name_the_package_only_where_it_is(monkeypatch):
    monkeypatch.setattr(module, "_PACKAGES", ("no_such_package",))
    without = versions(Recipe())
    assert "heic" not in without
    monkeypatch.setattr(module, "_PACKAGES", ("no_such_package", "pillow"))
    (difference,) = version_differences(without, versions(Recipe()))
    assert difference.startswith("heic: none -> pillow ")


def test_nothing_is_imported_for_other_formats():
    program = (
        "import sys, numpy as np\n"
        "from fastfeed.decode import PillowEngine\n"
        "from fastfeed.ops import Decode\n"
        "from fastfeed.preprocess.model.recipe import Recipe\n"
        "from fastfeed.preprocess.shard.versions import versions\n"
        "PillowEngine(Decode()).probe([b'\\xff\\xd8\\xff', b'\\x89PNG\\r\\n\\x1a\\n', b'GIF89a'])\n"
        "versions(Recipe())\n"
        "loaded = [name for name in sys.modules if 'heif' in name]\n"
        "assert not loaded, loaded\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@needs_libheif
def test_pillow_and_its_plugins_stay_as_they_were(tmp_path):
    (tmp_path / "photo.heic").write_bytes(FILE)
    program = (
        "import sys\n"
        "from PIL import Image\n"
        "from fastfeed.decode import PillowEngine\n"
        "from fastfeed.ops import Decode\n"
        "Image.init()\n"
        "before = dict(Image.OPEN), dict(Image.EXTENSION), list(Image.ID)\n"
        "(header,) = PillowEngine(Decode()).probe([open(sys.argv[1], 'rb').read()])\n"
        "assert header.format == 'HEIC', header\n"
        "assert (dict(Image.OPEN), dict(Image.EXTENSION), list(Image.ID)) == before\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "photo.heic")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@needs_libheif
@pytest.mark.parametrize("orientation", range(1, 9))
def test_upright_once(orientation):
    """Cameras write the turn twice: as properties, which libheif applies, and in EXIF."""
    blob = heic([picture(RGB)], more=heics.turns(orientation), metadata=heics.exif(orientation))
    shown = TURNED[orientation](RGB)
    assert np.array_equal(decoded(blob), shown)
    cut = decoded(blob, box=(8, 4, 20, 30), size=(20, 30), flip=(True, False))
    assert np.array_equal(cut, shown[8:28, 4:34][::-1])


@needs_libheif
def test_exif_alone_does_not_turn():
    """ISO/IEC 23008-12, Annex A: it is informative there."""
    assert np.array_equal(decoded(heic([picture(RGB)], metadata=heics.exif(6))), RGB)


@needs_libheif
@pytest.mark.parametrize("depth", [8, 10, 12])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_upper_bits(depth, channels):
    samples = np.random.default_rng(depth).integers(0, 1 << depth, (48, 70, channels))
    blob = heic([picture(samples[..., 0] if channels == 1 else samples, depth)])
    assert np.array_equal(decoded(blob), np.broadcast_to(samples >> (depth - 8), (48, 70, 3)))


@needs_libheif
@pytest.mark.parametrize("depth", [8, 10])
def test_floats_are_those_of_8_bits(depth):
    samples = RGB if depth == 8 else RGB.astype(np.uint16) * 4
    ops = [Decode(dtype="float32"), ff.CenterCrop(RGB.shape[:2])]
    with ff.Transform(ops, threads=1) as transform:
        batch = transform([heic([picture(samples, depth)])])
    if depth == 8:
        np.testing.assert_array_equal(batch.images[0], RGB)
    else:
        assert "HEIC of mode RGB, which may have more than 8 bits" in batch.bad[0].detail


@needs_libheif
def test_subsampled_colors():
    samples = np.full((48, 70, 3), 128, np.uint8)
    samples[..., 0] = RGB[..., 0]
    assert np.array_equal(
        decoded(heic([picture(samples, chroma=1)])), np.repeat(RGB[..., :1], 3, axis=2)
    )


@needs_libheif
@pytest.mark.parametrize("is_premultiplied", [False, True])
def test_transparency_shows_the_matte(is_premultiplied):
    alpha = np.zeros((48, 70), np.uint8)
    alpha[:, 35:] = 255
    colors = RGB * (alpha[..., None] > 0) if is_premultiplied else RGB
    blob = heic([picture(colors)], alpha=picture(alpha), is_premultiplied=is_premultiplied)
    pixels = decoded(blob, Decode(matte=(10, 20, 30)))
    assert np.array_equal(pixels[:, 35:], RGB[:, 35:]) and (pixels[:, :35] == (10, 20, 30)).all()


@needs_libheif
@pytest.mark.parametrize("primary", [0, 1])
def test_the_primary_of_several_pictures(primary):
    blob = heic([picture(RGB), picture(255 - RGB[:40, :40])], primary=primary)
    assert np.array_equal(decoded(blob), [RGB, 255 - RGB[:40, :40]][primary])


@needs_libheif
def test_tiles_of_a_grid():
    pixels = decoded(GRID)
    assert pixels.shape == (60, 50, 3)
    assert [pixels[y, x].tolist() for y in (10, 50) for x in (10, 40)] == [
        [60 * k + 20] * 3 for k in range(4)
    ]


@needs_libheif
@pytest.mark.parametrize("blob", [FILE, GRID], ids=["one picture", "tiles"])
def test_truncated_anywhere(blob):
    """libheif alone would show a grid without the tiles that are missing."""
    lengths = [
        *range(16, 700, 7),
        *range(700, len(blob), 499),
        *(len(blob) - k for k in (9, 8, 7, 1)),
    ]
    assert {decoded(blob[:length]).reason for length in lengths} == {"truncated"}
    meta = int.from_bytes(blob[:4], "big")
    meta += int.from_bytes(blob[meta : meta + 4], "big")
    assert decoded(blob[:meta]).reason == "truncated", "cut off between two boxes"


@needs_libheif
def test_what_cameras_append_is_no_damage():
    assert np.array_equal(decoded(FILE + b"SEFH\x6b\0\0\0trailer"), RGB)
    assert np.array_equal(decoded(FILE + heics.boxed(b"free", bytes(100))), RGB)


def lying(claims: tuple[int, int], said: tuple[int, int]) -> bytes:
    """A coded picture of one size in a container that says another."""
    liar = picture(RGB, claims=claims)
    liar.properties[1] = heics.ispe(*said)
    return heic([liar])


@needs_libheif
@pytest.mark.parametrize(
    ("blob", "reason"),
    [
        (lying((20_000, 20_000), (20_000, 20_000)), "bomb"),  # by the header
        (lying((8_000, 8_000), (48, 70)), "bomb"),  # by the picture
        (lying((48, 70), (60, 60)), "corrupt"),
        (FILE.replace(b"hvc1", b"av01"), "unsupported_format"),
        (heic([picture(RGB), picture(RGB)]).replace(b"hvc1", b"j2k1", 1), "unsupported_format"),
        (FILE.replace(b"mdat", b"free"), "truncated"),
        (heic([replace(picture(RGB), slices=bytes(4))]), "corrupt"),
    ],
)
def test_damage_gets_its_reason(blob, reason):
    why = decoded(blob)
    assert isinstance(why, DecodeFailure) and why.reason == reason, why


@needs_libheif
def test_size_limit_counts_pixels_of_the_header():
    why = DecodeFailure("bomb", "70x48 pixels, the limit is 3359: Decode(max_pixels=...)")
    assert decoded(FILE, Decode(max_pixels=48 * 70 - 1)) == why


@needs_libheif
@pytest.mark.parametrize(
    "first", [0, *(pytest.param(at, marks=pytest.mark.slow) for at in (250, 500, 750))]
)
def test_every_flipped_bit_ends_as_pixels_or_as_a_reason(first):
    for at in range(first, first + 250):
        blob = bytearray(FILE)
        blob[at] ^= 1 << at % 8
        result = decoded(bytes(blob), size=(8, 8))
        assert isinstance(result, DecodeFailure) or result.shape == (8, 8, 3)


@needs_libheif
def test_decoded_from_several_threads():
    blobs = [heic([picture(RGB ^ k)], more=heics.turns(k % 8 + 1)) for k in range(16)]
    results: list = [None] * len(blobs)

    def work(k: int) -> None:
        results[k] = decoded(blobs[k])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(blobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(results[k], TURNED[k % 8 + 1](RGB ^ k)) for k in range(len(blobs)))


@needs_libheif
def test_a_feed_of_a_folder(tmp_path: Path):
    for k in range(6):
        path = tmp_path / "cats" / f"{k}.heic"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(heic([picture(np.full((32, 40, 3), 40 * k, np.uint8))]))
    (batch,) = ff.Feed(
        ff.ImageFolder(tmp_path), [ff.Resize((16, 16))], batch=6, threads=2, shuffle=False
    )
    assert batch.images[:, 8, 8, 0].tolist() == [0, 40, 80, 120, 160, 200]
