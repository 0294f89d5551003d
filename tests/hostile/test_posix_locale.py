"""Names that no terminal can show, in a locale that knows ASCII alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import environment
from helpers.photos import jpeg

SCRIPT = """
import sys
import fastfeed as ff
source = ff.ImageFolder(sys.argv[1])
print(source, source.classes)
with ff.Feed(source, [ff.Resize((8, 8))], batch=3, quarantine=sys.argv[2]) as feed:
    print(feed)
    for batch in feed:
        print(batch.ids.tolist())
    print([str(failure) for failure in feed.stats().bad])
    ff.save_state(sys.argv[2] + ".state", feed.state())
"""


@pytest.mark.parametrize("locale", ["C", "POSIX", "C.UTF-8"])
def test_names_that_are_not_ascii_and_not_utf8(tmp_path: Path, locale: str):
    root = os.fsencode(tmp_path / "photos")
    for folder in (b"caf\xc3\xa9", b"\xff\xfe"):
        os.makedirs(os.path.join(root, folder))
        for i in range(4):
            with open(os.path.join(root, folder, b"%d-\xc3\xbc-\xff.jpg" % i), "wb") as file:
                file.write(jpeg(i) if i else b"no image")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "photos"), str(tmp_path / "bad.jsonl")],
        capture_output=True,
        env=environment() | {"LC_ALL": locale, "LANG": locale},
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    assert b"not_image" in done.stdout and (tmp_path / "bad.jsonl").read_bytes().count(b"\n") == 2
