"""What samples say about the files they were made from: nothing about this machine or a place,
unless asked to.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
from helpers.photos import jpeg
from helpers.small_jobs import InlineEngine
from PIL import Image
from PIL.TiffImagePlugin import IFDRational

from fastfeed.errors import ConfigError
from fastfeed.preprocess import Metadata, Recipe, Scaling, run

ASKED = {
    "time": "2021-07-14T18:30:05+02:00",
    "camera": "NIKON Z 6",
    "lens": "NIKKOR Z 24-70mm f/4 S",
}
PARIS = [48.8583333, -2.2944444]


def photograph(format: str = "JPEG", **fields: Any) -> bytes:
    """A photograph with EXIF; `fields` replaces some of it."""
    exif = Image.Exif()
    exif[0x010F], exif[0x0110] = (
        fields.get("make", "NIKON CORPORATION"),
        fields.get("model", "NIKON Z 6\0"),
    )
    details, place = exif.get_ifd(0x8769), exif.get_ifd(0x8825)
    details[0x9003], details[0x9011] = fields.get("time", "2021:07:14 18:30:05"), "+02:00"
    details[0xA434] = "NIKKOR Z 24-70mm f/4 S"
    place[1], place[2] = "N", fields.get("latitude", (48, 51, 30))
    place[3], place[4] = "W", (2, 17, 40)
    file = io.BytesIO()
    Image.open(io.BytesIO(jpeg(1, (40, 56)))).save(file, format, exif=exif)
    return file.getvalue()


def samples(folder: Path) -> list[dict[str, Any]]:
    """The JSON of each sample."""
    metas = []
    for path in sorted(folder.glob("shard-*.tar")):
        with tarfile.open(path) as tar:
            metas += [json.load(tar.extractfile(one)) for one in tar if one.name.endswith(".json")]  # type: ignore[arg-type]
    return metas


def made(
    source: Path | str, target: Path, metadata: Metadata | None = None
) -> list[dict[str, Any]]:
    run(
        str(source),
        target,
        Recipe(Scaling(24), metadata=metadata or Metadata()),
        engine=InlineEngine(),
    )
    return samples(target)


def test_samples_do_not_tell_where_the_source_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "secret customer" / "photos"
    (source / "cats").mkdir(parents=True)
    (source / "cats" / "1.jpg").write_bytes(jpeg(1))
    metas = made(source, tmp_path / "shards")
    assert [meta["uri"] for meta in metas] == ["cats/1.jpg"]
    assert b"secret customer" not in b"".join(
        path.read_bytes() for path in (tmp_path / "shards").glob("shard-*")
    )
    again = made(tmp_path / "shards", tmp_path / "again")
    assert [meta["uri"] for meta in again] == ["cats/1.jpg"], (
        "of a job's output: the name of the original"
    )
    pattern = tmp_path / "shards" / "shard-*.tar"
    assert [meta["uri"] for meta in made(pattern, tmp_path / "third")] == [
        "shard-000000.tar#512:000000000.jpg"
    ]
    (source.parent / "table.csv").write_text("path\nphotos/cats/1.jpg\n")
    assert [meta["uri"] for meta in made(source.parent / "table.csv", tmp_path / "fourth")] == [
        "photos/cats/1.jpg"
    ]
    monkeypatch.chdir(source.parent)
    assert [meta["uri"] for meta in made("photos", tmp_path / "fifth")] == ["cats/1.jpg"]
    assert [meta["uri"] for meta in made("./photos/", tmp_path / "sixth")] == ["cats/1.jpg"]


def test_samples_say_what_the_docs_list(tmp_path: Path) -> None:
    (tmp_path / "photos" / "cats").mkdir(parents=True)
    (tmp_path / "photos" / "cats" / "1.jpg").write_bytes(photograph())
    (meta,) = made(tmp_path / "photos", tmp_path / "shards")
    docs = (Path(__file__).parents[2] / "docs" / "preprocess.md").read_text(encoding="utf-8")
    listed = docs[
        docs.index("Its JSON metadata holds") : docs.index("No other metadata of the file")
    ]
    assert set(meta) - {"label", "class"} == set(re.findall(r"`(\w+)`", listed)) - {
        "columns",
        "meta",
        "raw",
    }
    assert "the label and its class" in listed
    with tarfile.open(tmp_path / "shards" / "shard-000000.tar") as tar:
        content = next(tar.extractfile(member) for member in tar if member.name.endswith(".jpg"))
        assert content is not None and not {"exif", "icc_profile", "xmp"} & set(
            Image.open(content).info
        )


def test_absolute_uris_on_request(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "1.jpg").write_bytes(jpeg(1))
    (meta,) = made(tmp_path / "photos", tmp_path / "shards", Metadata(absolute_uri=True))
    assert meta["uri"] == str(tmp_path / "photos" / "1.jpg")


def test_exif_only_on_request_and_a_place_only_by_name(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for format in ("JPEG", "PNG", "WEBP"):
        (tmp_path / "photos" / f"{format}.{format.lower()}").write_bytes(photograph(format))
    without = made(tmp_path / "photos", tmp_path / "without")
    assert len(without) == 3 and not any(
        "NIK" in json.dumps(meta) or "columns" in meta for meta in without
    )
    names = ("time", "camera", "lens")
    for meta in made(tmp_path / "photos", tmp_path / "some", Metadata(exif=names)):
        assert meta["columns"] == {f"exif_{name}": ASKED[name] for name in names}, meta["uri"]
    for meta in made(tmp_path / "photos", tmp_path / "place", Metadata(exif=("gps",))):
        assert meta["columns"] == {"exif_gps": PARIS}


@pytest.mark.parametrize(
    ("content", "columns"),
    [
        (jpeg(1, (40, 56)), [None, None, None, None]),
        (photograph(time="    :  :     :  :  "), [None, ASKED["camera"], ASKED["lens"], PARIS]),
        (
            photograph(make="FUJIFILM", model="\nX-T4\x1b[31m"),
            [ASKED["time"], "FUJIFILM X-T4 [31m", ASKED["lens"], PARIS],
        ),
        (photograph(latitude=(IFDRational(1, 0), 1, 1)), [*ASKED.values(), None]),
        (photograph(latitude=(480, 1, 1)), [*ASKED.values(), None]),
        (photograph().replace(b"MM\0*", b"XX\0*"), [None, None, None, None]),
    ],
    ids=[
        "none",
        "no time",
        "escape sequences",
        "a fraction of nothing",
        "no such latitude",
        "damaged",
    ],
)
def test_odd_exif_costs_its_columns_not_the_photograph(
    tmp_path: Path, content: bytes, columns: list[Any]
) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "1.jpg").write_bytes(content)
    (meta,) = made(
        tmp_path / "photos", tmp_path / "shards", Metadata(exif=("time", "camera", "lens", "gps"))
    )
    assert [
        meta["columns"][f"exif_{name}"] for name in ("time", "camera", "lens", "gps")
    ] == columns


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"^exif must be one of time, camera, lens, gps, got 'place'$"
    ):
        Metadata(exif=("place",))
