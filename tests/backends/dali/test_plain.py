"""Which files DALI may decode: the native extension's word on the last scan is that of the few
lines of Python below.
"""

import importlib
import io

import numpy as np
import pytest
from helpers.engines import engine_for
from helpers.jpegs import NO_KERNEL, encoded, native, textured
from helpers.side_by_side import files, needs_dali
from PIL import Image

from fastfeed.ops.geometry import Resize
from fastfeed.ops.program.compile import fuse
from fastfeed.spec import ENCODED

pytestmark = [needs_dali, pytest.mark.skipif(native is None, reason=NO_KERNEL)]
END, SCAN = b"\xff\xd9", b"\xff\xda"


def altered(blob: bytes, rng: np.random.Generator) -> bytes:
    """Cut, or with a few bytes changed to ones that mean something in a JPEG."""
    some = bytearray(blob)
    for at in rng.integers(2, len(some) - 2, rng.integers(0, 4)):
        some[at : at + 2] = bytes(
            [0xFF, rng.choice([0x00, 0xC4, 0xD0, 0xD7, 0xD8, 0xD9, 0xDA, 0xDB, 0xFF])]
        )
    cut = len(some) if rng.random() < 0.5 else rng.integers(0, len(some))
    return bytes(some[:cut]) + rng.choice([b"", END, b"\0" * 63, END + b"\0" * 70, b"\xff"])


def last_scan_ends(blob: bytes) -> bool:
    if END not in blob[-64:]:  # some writers pad behind the end marker
        return False
    # the last one: nothing may follow it
    scan = np.frombuffer(blob, np.uint8)[max(blob.rfind(SCAN), 0) + 2 :]
    codes = scan[1:][np.flatnonzero(scan[:-1] == 0xFF)]
    return bool(((codes == 0) | (codes == 0xFF) | ((codes >= 0xD0) & (codes <= 0xD9))).all())


def test_the_kernel_agrees_with_python_on_altered_files():
    rng = np.random.default_rng(24)
    photo = textured(120, 160)
    whole = [
        *files(),
        *(encoded(photo, **how) for how in ({"progressive": True}, {"restart_marker_rows": 1}, {})),
    ]
    blobs = [
        b"",
        b"\xff",
        END,
        SCAN + END,
        *whole,
        *(altered(blob, rng) for blob in whole for _ in range(60)),
    ]
    want = [last_scan_ends(blob) for blob in blobs]
    assert native.last_scans_end(blobs) == want
    assert native.last_scans_end([np.frombuffer(blob, np.uint8) for blob in blobs]) == want
    assert 0.05 < np.mean(want) < 0.95


def test_files_stored_as_rgb_are_told_as_libjpeg_tells_them():
    photo = textured(40, 50)
    rgb, plain = (encoded(photo, keep_rgb=keep) for keep in (True, False))
    adobe = bytearray(rgb)
    at = adobe.index(b"Adobe")
    adobe[at + 11] = 1  # Adobe's marker says luma and chroma
    named = rgb[: at - 4] + rgb[at + 12 :]  # by the names of the components alone
    assert b"Adobe" not in named
    jfif = named[:2] + plain[2:20] + named[2:]  # JFIF knows no others
    blobs = [
        rgb,
        plain,
        bytes(adobe),
        named,
        jfif,
        b"",
        b"\xff\xd8\xff",
        encoded(photo, progressive=True),
    ]
    assert native.plain_jpegs(blobs) == [False, True, True, False, True, False, False, True]
    shown = [
        np.asarray(Image.open(io.BytesIO(blob)).convert("RGB"))
        for blob in (rgb, bytes(adobe), named, jfif)
    ]
    assert [(one == shown[0]).all() for one in shown] == [
        True,
        False,
        True,
        False,
    ]  # in libjpeg's eyes
    program = fuse([Resize((20, 20))], ENCODED)
    rows = importlib.import_module("fastfeed.backends.dali.plain").plain_rows
    headers = engine_for(program, "auto").probe([rgb, plain])
    assert rows(program, [rgb, plain], headers) == [False, True]


@pytest.mark.parametrize("given", [["text"], [None], [np.zeros((4, 4), np.uint8)[:, ::2]]])
def test_what_is_no_file_is_refused(given):
    with pytest.raises((TypeError, BufferError)):
        native.last_scans_end(given)
