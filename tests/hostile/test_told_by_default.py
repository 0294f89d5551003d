"""A script that sets up no logging: what a run does not train on is on standard error, and so is
the file behind a line of libtiff.
"""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

from conftest import environment
from helpers.photos import broken, jpeg, picture
from PIL import Image

SCRIPT = """
import sys
import fastfeed as ff
with ff.Feed(ff.ImageFolder(sys.argv[1]), [ff.Resize((8, 8))], batch=2, threads=1, prefetch=0, shuffle=False) as feed:
    for batch in feed:
        pass
"""


def test_bad_samples_are_on_standard_error(tmp_path: Path):
    folder = tmp_path / "photos" / "a"
    folder.mkdir(parents=True)
    for i in range(6):
        (folder / f"{i}.jpg").write_bytes(jpeg(i))
    out = io.BytesIO()
    Image.fromarray(picture(6)).save(out, "TIFF", compression="tiff_lzw")
    data = bytearray(out.getvalue())
    with Image.open(out) as image:
        (first,) = image.tag_v2[273]  # where the strip begins
    data[first + 30 : first + 50] = bytes(byte ^ 0xFF for byte in data[first + 30 : first + 50])
    (folder / "4.tif").write_bytes(data)
    (folder / "7.jpg").write_bytes(broken("truncated"))
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "photos")]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment(), timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    told = f"sample 5 is bad and was replaced: {folder / '4.tif'}: corrupt (decoder error -2)"
    assert sum(line.startswith(told) for line in done.stderr.splitlines()) == 1, done.stderr
    assert (
        "2 of 8 samples have been bad so far (1 corrupt, 1 truncated); all are in feed.stats().bad"
        in done.stderr
    )
