"""Files that Pillow warns of: the file is named, once per kind of warning; what others warn of is
shown as ever.
"""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import environment
from helpers.photos import jpeg, picture
from PIL import Image

CUT_EXIF = b"Exif\0\0II*\0\x08\0\0\0\x09\0\x12\x01\x03\0\x01\0\0\0\x01\0\0\0"  # one of nine entries
TIFF_SAYS = (
    "Pillow says: Metadata Warning, tag 284 had too many entries: 2, expected 1 (reported for the"
    " first such file"
)
EXIF_SAYS = (
    "Pillow says: Corrupt EXIF data. Expecting to read 12 bytes but only got 0. (reported for the"
    " first such file"
)

FEED = """
import sys, warnings
import fastfeed as ff

def main():
    options = {"decode": sys.argv[2]} if sys.argv[2] != "side" else {"side_process": True}
    ops = [ff.Resize((8, 8))]
    with ff.Feed(ff.ImageFolder(sys.argv[1]), ops, batch=3, threads=2, shuffle=False, **options) as feed:
        for batch in feed:
            print(batch.ids.tolist(), int(batch.images.astype(int).sum()))
        print("bad", len(feed.stats().bad))
    warnings.warn("of another")

if __name__ == "__main__":
    main()
"""


def with_tag_of_two(seed: int) -> bytes:
    """A TIFF with two values where the format allows one."""
    out = io.BytesIO()
    Image.fromarray(picture(seed)).save(out, "TIFF")
    data = bytearray(out.getvalue())
    at = int.from_bytes(data[4:8], "little")
    for entry in range(at + 2, at + 2 + 12 * int.from_bytes(data[at : at + 2], "little"), 12):
        if data[entry : entry + 2] == (284).to_bytes(2, "little"):  # PlanarConfiguration
            data[entry + 4 : entry + 8] = (2).to_bytes(4, "little")
    return bytes(data)


def with_cut_exif() -> bytes:
    """A JPEG that is left to Pillow."""
    out = io.BytesIO()
    Image.fromarray(picture(2)).convert("CMYK").save(out, "JPEG", exif=CUT_EXIF)
    return out.getvalue()


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    files = {f"{i}.jpg": jpeg(i) for i in range(5)}
    files |= {"5.tif": with_tag_of_two(5), "6.tif": with_tag_of_two(6), "7.jpg": jpeg(7)}
    files |= {"8.jpg": with_cut_exif()}
    (tmp_path / "photos" / "a").mkdir(parents=True)
    for name, content in files.items():
        (tmp_path / "photos" / "a" / name).write_bytes(content)
    return tmp_path / "photos"


def feed(photos: Path, how: str, *options: str) -> tuple[str, list[str]]:
    """Its batches, and the lines on standard error."""
    script = photos.parent / "feed.py"
    script.write_text(FEED)
    command = [sys.executable, *options, str(script), str(photos), how]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment(), timeout=110, check=False
    )
    assert done.returncode == (1 if options == ("-W", "error") else 0), done.stderr
    return done.stdout, done.stderr.splitlines()


@pytest.mark.parametrize("how", ["auto", "pillow", pytest.param("side", marks=pytest.mark.slow)])
def test_a_feed_names_the_files(photos: Path, how: str):
    batches, lines = feed(photos, how)
    assert batches.splitlines()[-1] == "bad 0"
    told = [line for line in lines if "Pillow says" in line]
    assert len(told) == 2, lines
    for file, says in (("5.tif", TIFF_SAYS), ("8.jpg", EXIF_SAYS)):
        (line,) = [line for line in told if says in line]
        assert line.replace("6.tif", "5.tif").startswith(
            f"{photos / 'a' / file}: "
        )  # whichever was decoded first
    others = [line for line in lines if line not in told]
    assert [line for line in others if "Warning" in line] == [
        line for line in others if "of another" in line
    ][:1]
    assert any("UserWarning: of another" in line for line in others)


def test_a_jpeg_that_the_kernel_declines_late(photos: Path):
    for file in photos.glob("a/*"):
        file.unlink()
    for i in range(2):
        (photos / "a" / f"{i}.jpg").write_bytes(jpeg(i))
    (photos / "a" / "9.jpg").write_bytes(with_cut_exif())
    lines = feed(photos, "auto")[1]
    assert [line for line in lines if "EXIF" in line] == [
        f"{photos / 'a' / '9.jpg'}: {EXIF_SAYS} only)"
    ]


def test_filters_are_the_users(photos: Path):
    """Warnings that are errors change no batch and are told all the same; what is ignored stays
    silent.
    """
    plain, _ = feed(photos, "auto")
    strict, lines = feed(photos, "auto", "-W", "error")
    assert strict == plain
    assert sum("Pillow says" in line for line in lines) == 2
    silent, lines = feed(photos, "auto", "-W", "ignore")
    assert (silent, lines) == (plain, [])


def test_other_threads_record_their_own_warnings(photos: Path):
    script = """
import sys, warnings
import fastfeed as ff
with ff.Feed(ff.ImageFolder(sys.argv[1]), [ff.Resize((8, 8))], batch=3, threads=2, seed=0) as feed:
    batches, own = feed.batches(0), 0
    for _ in range(3):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            next(batches)
            warnings.warn("mine")
        own += sum(str(warning.message) == "mine" for warning in caught)
    print(own, "mine")
    shown = warnings.showwarning
    warnings.showwarning = lambda *rest: shown(*rest)  # as tools do; must not make a circle
    for batch in feed:
        pass
    warnings.warn("after")
"""
    command = [sys.executable, "-c", script, str(photos)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment(), timeout=110, check=False
    )
    assert (done.returncode, done.stdout) == (0, "3 mine\n"), done.stderr
    assert "UserWarning: after" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--dedupe", "near")])
def test_preprocess_names_the_files(photos: Path, options: tuple[str, ...]):
    command = [
        sys.executable,
        "-c",
        "from fastfeed.cli import main; main()",
        "preprocess",
        "photos",
        "shards",
    ]
    command += ["--size", "16", "--workers", "2", "--shard-samples", "2", *options]
    env = environment(PYTHONWARNINGS="error") if options else environment()
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=env,
        cwd=photos.parent,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stderr.splitlines() if "Pillow says" in line]
    assert len(told) == 2, done.stderr
    assert f"photos/a/8.jpg: {EXIF_SAYS} only)" in told
    assert "UserWarning" not in done.stderr
