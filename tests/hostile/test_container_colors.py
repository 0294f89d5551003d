"""Colors that AVIF and HEIC files name by numbers: in the container, in the coded picture, on the
tiles of a grid.
"""

from __future__ import annotations

import io
import re
import struct
from typing import Any

import numpy as np
import pytest
from helpers import heics
from helpers.avifs import Coded, avif, coded, nclx, saved
from helpers.engines import by_pillow
from helpers.heics import boxed, heic, picture
from helpers.jpegs import encoded, textured
from helpers.preprocess import icc
from helpers.preprocess.rasters import decoded, info_of, preprocessed
from PIL import AvifImagePlugin, Image, features

from fastfeed.decode import DecodeFailure
from fastfeed.decode.formats.avif import MOST_BYTES, av1_signal
from fastfeed.decode.formats.container import UNSPECIFIED, Container
from fastfeed.decode.formats.heic import hevc_signal, installed
from fastfeed.preprocess.pixels.image_info import image_info

has_avif = pytest.mark.skipif(
    not (features.check("avif") and AvifImagePlugin._avif.encoder_codec_available("aom")),
    reason="Pillow without libaom",
)
has_heic = pytest.mark.skipif(
    installed() is None, reason="no pi-heif; pip install 'fastfeed[heic]'"
)

PHOTO = textured(64, 128)
PQ, HLG, P3, SRGB, BT709 = (9, 16), (9, 18), (12, 13), (1, 13), (1, 1)
NAMES = {
    PQ: "BT.2020 PQ",
    HLG: "BT.2020 HLG",
    P3: "Display P3",
    SRGB: "sRGB",
    BT709: "BT.709",
    None: "none",
}
GRID = (1, 2, 64, 128)
PROFILE = heics.icc(icc.rgb_profile("Adobe RGB"))


def tiles(signal: tuple[int, int] | None = None) -> list[Coded]:
    return [coded(np.ascontiguousarray(PHOTO[:, left : left + 64]), signal) for left in (0, 64)]


@has_avif
@pytest.mark.parametrize("signal", NAMES, ids=str)
def test_numbers_in_the_coded_picture_count_as_those_of_the_container(signal: Any) -> None:
    alone = avif([coded(PHOTO, signal)])
    info = info_of(alone, icc=NAMES[signal], converts=signal not in (SRGB, None))
    same = avif([coded(PHOTO, signal)], more=[nclx(*(signal or (2, 2)))])
    assert info == image_info(same)
    assert np.array_equal(decoded(alone), decoded(same))
    assert np.array_equal(by_pillow(alone), decoded(alone)) != info.converts


@has_avif
@pytest.mark.parametrize("sampling", ["4:4:4", "4:2:2", "4:0:0"])
def test_numbers_are_found_in_every_profile(sampling: str) -> None:
    info_of(avif([coded(PHOTO, PQ, subsampling=sampling)]), icc="BT.2020 PQ")


PLACES = {  # signal of the coded picture, properties of the image, those of its tiles -> name
    "the container's numbers before the stream's": (PQ, [nclx(*P3)], [], "Display P3"),
    "a container that leaves colors open": (PQ, [nclx(2, 2)], [], "BT.2020 PQ"),
    "a profile before all numbers": (PQ, [nclx(*P3), PROFILE], [], "Adobe RGB"),
    "the first tile's stream": (HLG, [], [], "BT.2020 HLG"),
    "a tile's stream before its properties, as in libavif": (SRGB, [], [nclx(*PQ)], "sRGB"),
    "a tile's profile alone": (None, [], [PROFILE], "Adobe RGB"),
    "a tile's numbers alone": (None, [], [nclx(*PQ)], "BT.2020 PQ"),
    "numbers that H.273 reserves": (None, [nclx(3, 77)], [], "CICP 3/77"),
    "none": (None, [], [], "none"),
}


@has_avif
@pytest.mark.parametrize("place", PLACES)
def test_the_order_of_places(place: str) -> None:
    signal, more, on_tiles, name = PLACES[place]
    blob = avif(tiles(signal), grid=GRID, more=more, on_tiles=on_tiles)
    info_of(blob, icc=name, height=64, width=128)


CLAP = boxed(b"clap", b"".join(v.to_bytes(4, "big") for v in (100, 1, 40, 1, 0, 1, 0, 1)))


@has_avif
@pytest.mark.parametrize(
    "change", [[CLAP], heics.turns(6), heics.turns(2)], ids=["clap", "irot", "imir"]
)
def test_tiles_are_not_turned_or_cut_one_by_one(change: list[bytes]) -> None:
    """As in libavif; the whole image is."""
    whole = by_pillow(avif(tiles(), grid=GRID))
    assert isinstance(whole, np.ndarray) and whole.shape == (64, 128, 3)
    assert np.array_equal(by_pillow(avif(tiles(), grid=GRID, on_tiles=change)), whole)
    changed = by_pillow(avif(tiles(), grid=GRID, more=change))
    want = {b"clap": whole[12:52, 14:114], b"irot": np.rot90(whole, -1), b"imir": whole[:, ::-1]}
    assert np.array_equal(changed, want[change[0][4:8]])


@has_avif
def test_numbers_in_an_image_sequence() -> None:
    """Those of its track count, as in libavif: of the description of its samples, or of the first
    of them.
    """
    more = {"save_all": True, "append_images": [Image.fromarray(PHOTO[::-1])]}
    blob = saved(PHOTO, codec="aom", advanced={"transfer-characteristics": "hlg"}, **more)
    image, track = (match.start() + 8 for match in re.finditer(b"colrnclx", blob))
    assert image < blob.index(b"moov") < track

    def changed(at: int, numbers: bytes) -> bytes:
        return blob[:at] + numbers + blob[at + len(numbers) :]

    other_matrix = b"\0\x09"
    assert np.array_equal(by_pillow(changed(image + 4, other_matrix)), by_pillow(blob))
    assert not np.array_equal(by_pillow(changed(track + 4, other_matrix)), by_pillow(blob))
    info_of(changed(image, b"\0\x0c"), icc="sRGB")
    info_of(changed(track, b"\0\x0c"), icc="Display P3")
    info_of(blob.replace(b"colrnclx", b"freenclx"), icc="BT.709 HLG")


def bits(text: str) -> bytes:
    """A sequence header in its unit, from bits."""
    text = text.replace(" ", "")
    content = int(text.ljust(-len(text) % 8 + len(text), "0"), 2).to_bytes(
        -(-len(text) // 8), "big"
    )
    return b"\x12\0\x0a" + bytes([len(content)]) + content


# AV1 specification, 5.5.1: before the colors, of a header that is not reduced
# timing, every 5th tick, 4 bits of delay
MODEL = "1" + "0" * 64 + "1" + "00101" + "1" + "00011" + "0" * 32 + "0" * 10
POINTS = (
    "1"
    + "00001"
    + "0" * 12
    + "01000 1"
    + "1"
    + "0" * 9
    + "1"
    + "0000"
    + "0" * 12
    + "00100"
    + "0"
    + "0"
)
SIZE = "0101 0101" + "111111" + "111111" + "1" + "0" * 7
TOOLS = "000" + "0000" + "1" + "00" + "0 1 0 1" + "000" + "000"
COLORS = "00001001 00010000 00001001"
NUMBERS = (*PQ, 9)
HEADERS = {
    "models and two points": "000 0 0" + MODEL + POINTS + SIZE + TOOLS + "0 0 1" + COLORS,
    "12 bits": "010 0 0" + "0 0 00000" + "0" * 12 + "00111" + SIZE + TOOLS + "1 1 0 1" + COLORS,
    "no order, no tools for screens": "001 0 0"
    + "0 0 00000"
    + "0" * 12
    + "00000"
    + "0101 0101"
    + "1" * 12
    + "0"
    + "000"
    + "0000"
    + "0"
    + "0 0"
    + "000"
    + "0 1"
    + COLORS,
    "reduced": "000 1 1 00000" + "0101 0101" + "1" * 12 + "000" + "000" + "0 0 1" + COLORS,
}


@pytest.mark.parametrize("name", HEADERS)
def test_every_kind_of_sequence_header(name: str) -> None:
    unit = bits(HEADERS[name])
    assert av1_signal(unit) == NUMBERS
    assert av1_signal(b"\x12\0" + b"\x2a\x81\0\x07" + unit) == NUMBERS, (
        "behind other units, with longer sizes"
    )
    assert av1_signal(b"\x0c\x40" + unit[4:]) == NUMBERS, "with an extension, without a size"
    without = HEADERS[name].removesuffix("1" + COLORS) + "0"
    assert av1_signal(bits(without + "0" * 8)) == UNSPECIFIED
    for end in range(len(unit)):
        assert av1_signal(unit[:end]) in (UNSPECIFIED, NUMBERS)


@has_avif
def test_damaged_streams_name_no_colors() -> None:
    stream = coded(PHOTO, PQ).stream[:60]
    rng = np.random.default_rng(0)
    for _ in range(500):
        damaged = bytearray(stream)
        damaged[int(rng.integers(20))] = int(rng.integers(256))
        av1_signal(bytes(damaged))
    assert (
        av1_signal(b"")
        == av1_signal(bytes(MOST_BYTES))
        == av1_signal(b"\xff" * MOST_BYTES)
        == UNSPECIFIED
    )


@pytest.mark.parametrize("is_inside", [False, True], ids=["in the file", "in idat"])
@pytest.mark.parametrize("wide", [2, 4], ids=["version 1", "version 2"])
def test_coded_data_in_parts(wide: int, is_inside: bool) -> None:
    """ISO/IEC 14496-12, 8.11.3: extents count from the beginning of the file, or of `idat`."""
    data = bytes(range(100))

    def file(begin: int) -> bytes:
        item = (
            (1).to_bytes(wide, "big")
            + bytes([0, is_inside])
            + b"\0\0\0\2"
            + struct.pack(">4I", begin, 7, begin + 7, 0)
        )
        iloc = boxed(b"iloc", b"\x44\0" + (1).to_bytes(wide, "big") + item, wide // 2)
        meta = boxed(b"pitm", b"\0\1", 0) + iloc + boxed(b"idat", data)
        return boxed(b"meta", meta, 0)

    blob = file(0 if is_inside else len(file(0)) - len(data))
    assert Container(blob).coded(40) == data[:40]
    assert Container(blob).coded(1000) == data


def test_coded_data_without_places_are_the_file_from_a_base_on() -> None:
    """ISO/IEC 14496-12, 8.11.3: an offset and a length of no bytes are 0."""
    iloc = boxed(b"iloc", b"\0\x40\0\1" + b"\0\1\0\0" + b"\0\0\0\x08" + b"\0\1", 0)
    blob = boxed(b"meta", boxed(b"pitm", b"\0\1", 0) + iloc, 0)
    assert Container(blob).coded(1000) == blob[8:]


def heic_with(signal: tuple[int, int]) -> heics.Picture:
    result = picture(PHOTO)
    result.properties[2] = nclx(*signal, 0)
    return result


@has_heic
@pytest.mark.parametrize("signal", [PQ, HLG, P3, BT709, SRGB], ids=str)
def test_numbers_of_a_heic(signal: tuple[int, int]) -> None:
    blob = heic([heic_with(signal)])
    info = info_of(blob, icc=NAMES[signal])
    assert np.array_equal(by_pillow(blob), PHOTO), "a feed shows the file's levels"
    assert np.array_equal(decoded(blob), PHOTO) != info.converts
    info_of(heic([heic_with(signal)], more=[PROFILE]), icc="Adobe RGB")
    half = heic_with(signal)
    half.properties[1:2] = [heics.ispe(64, 128)]
    info_of(heic([half, half], grid=(2, 1, 128, 128)), icc=NAMES[signal])


@has_heic
def test_numbers_of_a_heic_in_quicktimes_form() -> None:
    """As in libheif: without the range."""
    result = heic_with(PQ)
    result.properties[2] = boxed(b"colr", b"nclc" + struct.pack(">HHH", *PQ, 9))
    info_of(heic([result]), icc="BT.2020 PQ", converts=True)


@has_heic
@pytest.mark.parametrize("signal", [PQ, P3, SRGB], ids=str)
def test_numbers_in_the_stream_of_a_heic(signal: tuple[int, int]) -> None:
    coded_alone = picture(PHOTO, signal=signal)
    del coded_alone.properties[2]
    info = info_of(heic([coded_alone]), icc=NAMES[signal])
    assert np.array_equal(by_pillow(heic([coded_alone])), PHOTO)
    assert np.array_equal(decoded(heic([coded_alone])), decoded(heic([heic_with(signal)])))
    info_of(heic([coded_alone, coded_alone], grid=(2, 1, 128, 128)), icc=NAMES[signal])
    info_of(heic([coded_alone], more=[nclx(*HLG, 0)]), icc="BT.2020 HLG")
    assert info.converts == (signal != SRGB)


CUT = boxed(b"clap", b"".join(v.to_bytes(4, "big") for v in (60, 1, 64, 1, 0, 1, 0, 1)))
ON_TILES = {  # properties -> a tile with them
    "irot": (heics.turns(6), lambda tile: np.rot90(tile, -1)),
    "imir": (heics.turns(2), np.fliplr),
}


def heic_tiles(on_tiles: list[bytes]) -> list[heics.Picture]:
    result = [picture(np.ascontiguousarray(PHOTO[:, left : left + 64])) for left in (0, 64)]
    for tile in result:
        tile.properties += on_tiles
    return result


@has_heic
@pytest.mark.parametrize("change", ON_TILES)
def test_tiles_of_a_heic_are_turned_one_by_one(change: str) -> None:
    """As in libheif: a grid is made of its tiles as they are shown (ISO/IEC 23008-12, 6.6.2.3)."""
    on_tiles, turned = ON_TILES[change]
    got = by_pillow(heic(heic_tiles(on_tiles), grid=GRID))
    want = [turned(PHOTO[:, left : left + 64]) for left in (0, 64)]
    assert np.array_equal(got, np.hstack(want))
    bad = by_pillow(heic(heic_tiles([CUT]), grid=GRID))
    assert isinstance(bad, DecodeFailure) and bad.reason == "corrupt" and "tiles" in bad.detail


def derived(kinds: list[bytes], source: list[bytes], more: list[bytes]) -> bytes:
    """A coded picture, and images that are derived from each other; the last is shown."""
    coded_alone = picture(PHOTO, signal=PQ)
    size = heics.ispe(64, 128)
    contents = {
        b"iden": b"",
        b"grid": struct.pack(">BBBBHH", 0, 0, 0, 0, 128, 64),
        b"iovl": bytes(2) + b"\xff" * 8 + struct.pack(">HHhh", 128, 64, 0, 0),
    }
    items = [(b"hvc1", coded_alone.slices, [*coded_alone.properties[:2], *source])]
    items += [(kind, contents[kind], [size]) for kind in kinds]
    items[-1][2].extend(more)
    references = [(b"dimg", number + 1, [number]) for number in range(1, len(items))]
    return heics.container(items, references, len(items), (b"heic", b"mif1"), len(kinds))


DERIVED = {  # kinds of images, properties of the coded one, of the image -> name
    "the stream": ([b"iden"], [], [], "BT.2020 PQ"),
    "the source's numbers": ([b"iden"], [nclx(*P3, 0)], [], "Display P3"),
    "the source's profile": ([b"iden"], [nclx(*P3, 0), PROFILE], [], "Adobe RGB"),
    "its own numbers": ([b"iden"], [nclx(*P3, 0)], [nclx(*HLG, 0)], "BT.2020 HLG"),
    "of an overlay": ([b"iovl"], [nclx(*P3, 0), PROFILE], [], "Adobe RGB"),
    "several times": ([b"iden", b"grid"], [nclx(*P3, 0), PROFILE], [], "Adobe RGB"),
}


@has_heic
@pytest.mark.parametrize("case", DERIVED)
def test_colors_of_an_image_derived_from_another(case: str) -> None:
    kinds, source, more, name = DERIVED[case]
    blob = derived(kinds, source, more)
    info_of(blob, icc=name, converts=True)
    if source:
        assert np.array_equal(by_pillow(blob), PHOTO)


@pytest.mark.parametrize("matrix", [3, 10, 11, 13, 14, 15, 18, 255])
@pytest.mark.parametrize(
    "kind", [pytest.param("avif", marks=has_avif), pytest.param("heic", marks=has_heic)]
)
def test_a_matrix_that_cannot_be_undone_is_refused_by_name(kind: str, matrix: int) -> None:
    """ITU-T H.273, table 4: libheif takes constant luminance for its relative without."""
    if kind == "avif":
        blob = avif([coded(PHOTO)], more=[nclx(*SRGB, matrix)])
    else:
        blob = heic([picture(PHOTO)], more=[nclx(*SRGB, matrix)])
        blob = blob.replace(nclx(*SRGB, 0), boxed(b"free", bytes(11)))
    for read in (by_pillow, preprocessed):
        bad = read(blob)
        assert isinstance(bad, DecodeFailure) and bad.reason == "unsupported_format"
        named = f"matrix {matrix} of", "NCLX matrix", "Conversion from YUV"
        assert any(text in bad.detail for text in named)


@has_avif
@pytest.mark.parametrize("matrix", [0, 17])
def test_a_matrix_that_does_not_fit_its_picture_is_refused(matrix: int) -> None:
    """The identity has no subsampling, YCgCo-Ro 9 bits for 8."""
    blob = avif([coded(PHOTO, subsampling="4:2:0")], more=[nclx(*SRGB, matrix)])
    bad = by_pillow(blob)
    assert isinstance(bad, DecodeFailure) and bad.reason == "unsupported_format"


@has_heic
def test_a_heic_coded_otherwise_is_not_called_damaged() -> None:
    items = [(b"jpeg", encoded(PHOTO), [heics.ispe(64, 128)])]
    bad = by_pillow(heics.container(items, [], 1, (b"heic", b"mif1"), 0))
    assert isinstance(bad, DecodeFailure) and bad.reason == "unsupported_format"


@has_heic
def test_the_first_parameters_of_a_heic_count() -> None:
    """As in libheif; were all read, a file of them would take hours."""
    open_colors = picture(PHOTO)
    open_colors.properties[2:] = [picture(PHOTO, signal=PQ).configuration()]
    info_of(heic([open_colors]), icc="none")


def ue(*values: int) -> str:
    return "".join("0" * ((value + 1).bit_length() - 1) + f"{value + 1:b}" for value in values)


# ITU-T H.265, 7.3.2.2: before the usability information, in the order of the standard
LISTS = ("0" + ue(0)) * 6 + ("1" + ue(*[1] * 64)) * 6 + ("1" + ue(*[2] * 65)) * 8
REFERENCES = "".join(("0" if k else "") + ue(1, 2) + (ue(0) + "1") * 3 for k in range(2))
USABILITY = "1" + "1 11111111" + "0" * 32 + "1 0" + "1 101 0 1" + "00001001 00010000 00001001"
PARAMETERS = {
    "plain": "0000 000 1"
    + "0" * 96
    + ue(0, 1, 320, 240)
    + "0"
    + ue(0, 0, 4)
    + "1"
    + ue(4, 2, 4)
    + ue(*[0] * 6)
    + "0"
    + "00"
    + "0"
    + ue(0)
    + "0"
    + "00",
    "layers, lists, windows, PCM, references": "0000 010 1"
    + "0" * 96
    + "11 01"
    + "00" * 6
    + "0" * 96
    + "0" * 8
    + ue(0, 3)
    + "0"
    + ue(320, 240)
    + "1"
    + ue(1, 2, 3, 4)
    + ue(0, 0, 4)
    + "1"
    + ue(4, 2, 4) * 3
    + ue(*[0] * 6)
    + "1 1"
    + LISTS
    + "00"
    + "1"
    + "0" * 8
    + ue(0, 0)
    + "1"
    + ue(2)
    + REFERENCES
    + "1"
    + ue(2)
    + "0" * 18
    + "00",
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_every_kind_of_sequence_parameters(name: str) -> None:
    text = (PARAMETERS[name] + USABILITY).replace(" ", "")
    content = int(text.ljust(-len(text) % 8 + len(text), "1"), 2).to_bytes(
        -(-len(text) // 8), "big"
    )
    unit = b"\x42\1" + content.replace(b"\0\0", b"\0\0\3")
    other = b"\x20\0\1\0\2\x40\1"
    box = bytes(22) + b"\2" + other + b"\x21\0\1" + len(unit).to_bytes(2, "big") + unit
    assert hevc_signal(box) == NUMBERS
    for end in range(0, len(box), 9):
        assert hevc_signal(box[:end]) in (UNSPECIFIED, NUMBERS)
    rng = np.random.default_rng(0)
    for _ in range(40):
        damaged = bytearray(box)
        damaged[int(rng.integers(len(box)))] = int(rng.integers(256))
        hevc_signal(bytes(damaged))


@has_heic
def test_a_heic_of_open_or_unknown_colors() -> None:
    info_of(heic([heic_with((2, 2))]), icc="none")
    bad = image_info(heic([heic_with((3, 77))]))
    assert isinstance(bad, DecodeFailure) and bad.reason == "unsupported_format"
    assert "NCLX" in bad.detail, "libheif refuses it by name"
    bad = image_info(heic([picture(PHOTO)], more=[boxed(b"colr", b"abcd" + bytes(6))]))
    assert isinstance(bad, DecodeFailure) and bad.reason == "unsupported_format"


def test_pillow_without_libavif_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AvifImagePlugin, "SUPPORTED", False)
    bad = by_pillow(boxed(b"ftyp", b"avif\0\0\0\0") + bytes(io.DEFAULT_BUFFER_SIZE))
    assert (
        isinstance(bad, DecodeFailure)
        and bad.reason == "unsupported_format"
        and "AVIF" in bad.detail
    )
