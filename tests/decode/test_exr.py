"""OpenEXR: floats of files that are written here by the format's specification."""

from __future__ import annotations

import struct
import sys

import numpy as np
import pytest
from decode.test_deep import made, reason
from helpers.needs import needs

import fastfeed as ff

SIZE = (12, 10)  # that WHOLE of test_deep crops
PLANES = np.random.default_rng(0).normal(size=(4, *SIZE)).astype(np.float32)
FLOATS = ff.Decode(dtype="float32")
ONE = ff.Decode(channels=1, dtype="float32")
installed = needs("OpenEXR")


def exr(
    names: str, planes: np.ndarray, window: tuple[int, int] = (0, 0), sampling: int = 1
) -> bytes:
    """Uncompressed lines of one part, channels in the order of their names."""
    kind = {"uint32": 0, "float16": 1, "float32": 2}[planes.dtype.name]
    height, width = planes.shape[1:]
    top, left = window
    box = struct.pack("<4i", left, top, left + width - 1, top + height - 1)
    order = sorted(range(len(names)), key=names.__getitem__)
    each = struct.pack("<iBxxxii", kind, 0, sampling, sampling)
    channels = b"".join(names[k].encode() + b"\0" + each for k in order) + b"\0"
    attributes = {
        "channels chlist": channels,
        "compression compression": b"\0",
        "dataWindow box2i": box,
        "displayWindow box2i": struct.pack("<4i", 0, 0, 99, 99),
        "lineOrder lineOrder": b"\0",
        "pixelAspectRatio float": struct.pack("<f", 1),
        "screenWindowCenter v2f": bytes(8),
        "screenWindowWidth float": struct.pack("<f", 1),
    }
    header = struct.pack("<ii", 20000630, 2)
    for name, value in attributes.items():
        header += name.replace(" ", "\0").encode() + struct.pack("<xi", len(value)) + value
    lines = [b"".join(planes[k, y].tobytes() for k in order) for y in range(height)]
    first = len(header) + 1 + 8 * height
    offsets = [first + y * (8 + len(line)) for y, line in enumerate(lines)]
    chunks = [struct.pack("<ii", top + y, len(line)) + line for y, line in enumerate(lines)]
    return b"".join([header, b"\0", struct.pack(f"<{height}Q", *offsets), *chunks])


@installed
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(
    ("names", "decode"),
    [("RGB", FLOATS), ("Z", ONE), ("Y", FLOATS), ("RGBA", ff.Decode(channels=4, dtype="float32"))],
)
def test_floats_are_those_of_the_file(names, decode, dtype):
    planes = PLANES[: len(names)].astype(dtype)
    pixels = made(exr(names, planes, window=(3, -2)), decode)
    expected = np.moveaxis(planes.astype(np.float32), 0, 2)
    np.testing.assert_array_equal(pixels, np.broadcast_to(expected, pixels.shape))


@installed
@pytest.mark.parametrize(
    ("blob", "decode", "text"),
    [
        (exr("RGB", PLANES[:3]), ff.Decode(), "unsupported_format: unsupported: floats of OpenEXR"),
        (exr("RGBA", PLANES), FLOATS, "unsupported_format: unsupported: 4 channels of float32"),
        (exr("XYZ", PLANES[:3]), FLOATS, "unsupported_format: unsupported: channels X, Y, Z, an"),
        (exr("Z", PLANES[:1], sampling=2), ONE, "none of them subsampled"),
        (exr("Z", PLANES[:1].view(np.uint32)), ONE, "unsupported: samples of uint32, an image has"),
        (exr("Z", PLANES[:1]), ff.Decode(dtype="uint16"), "unsupported: samples of float32"),
        (exr("Z", PLANES[:1])[:60], ONE, "corrupt: "),
        (exr("Z", PLANES[:1])[:-9], ONE, "truncated: damaged or truncated pixel data"),
        (
            exr("Z", PLANES[:1]),
            ff.Decode(max_pixels=20, channels=1, dtype="float32"),
            "bomb: 10x12 pixels",
        ),
    ],
)
def test_other_files_are_refused(blob, decode, text):
    assert text in reason(blob, decode)


def test_without_the_package_the_reason_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "OpenEXR", None)
    found = reason(exr("Z", PLANES[:1]), ONE)
    assert found.startswith("unsupported_format: OpenEXR needs OpenEXR")
    assert "pip install 'fastfeed[exr]'" in found
