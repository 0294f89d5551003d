"""`python -W error`, arrays of nothing, states that cannot be saved."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
from helpers.photos import jpeg
from PIL import Image

import fastfeed as ff
from fastfeed.errors import ConfigError, StateError


def _warns() -> bytes:
    """A TIFF that Pillow warns of: an entry of its directory has more values than it may."""
    image, out = Image.fromarray(np.full((16, 16, 3), 90, np.uint8)), io.BytesIO()
    image.save(out, "TIFF")
    data = bytearray(out.getvalue())
    at = int.from_bytes(data[4:8], "little")
    for k in range(int.from_bytes(data[at : at + 2], "little")):
        entry = at + 2 + 12 * k
        if int.from_bytes(data[entry : entry + 2], "little") == 284:  # PlanarConfiguration
            data[entry + 4 : entry + 8] = (2).to_bytes(4, "little")
    return bytes(data)


SCRIPT = """
import sys
import numpy as np
import fastfeed as ff
with ff.Feed(ff.ImageFolder(sys.argv[1]), [ff.Resize((8, 8))], batch=2, threads=2, shuffle=False) as feed:
    for batch in feed:
        print(batch.ids.tolist(), int(batch.images.astype(np.int64).sum()))
    print(len(feed.stats().bad))
"""


def test_warnings_as_errors_change_nothing(tmp_path):
    for i in range(3):
        (tmp_path / "a").mkdir(exist_ok=True)
        (tmp_path / "a" / f"{i}.jpg").write_bytes(jpeg(i, (16, 16)))
    (tmp_path / "a" / "9.tif").write_bytes(_warns())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Image.open(tmp_path / "a" / "9.tif").load()
    assert caught, "the file has to be one that Pillow warns of"

    def run(*options: str) -> str:
        command = [sys.executable, *options, "-c", SCRIPT, str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    plain = run()
    assert plain.splitlines()[-1] == "0"
    assert run("-W", "error") == plain


def test_no_images_at_all():
    with pytest.raises(ConfigError) as error:
        ff.Arrays(np.zeros((0, 8, 8, 3), np.uint8))
    assert str(error.value) == "Arrays needs at least one image, got an array of shape (0, 8, 8, 3)"
    with pytest.raises(ConfigError, match=r"pixels.*got shape \(2, 0, 8, 3\)"):
        ff.Arrays(np.zeros((2, 0, 8, 3), np.uint8))


def test_a_state_that_cannot_be_saved(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    for path, reason in (
        (tmp_path / "file" / "s.json", "Not a directory"),
        (tmp_path / "folder", "Is a directory"),
    ):
        with pytest.raises(
            StateError,
            match=rf"^cannot save a state to {path}: {reason}; pass a file in a folder that",
        ):
            ff.save_state(path, {"epoch": 0})
    if os.geteuid():
        (tmp_path / "folder").chmod(0o500)
        with pytest.raises(StateError, match="Permission denied"):
            ff.save_state(tmp_path / "folder" / "s.json", {"epoch": 0})
