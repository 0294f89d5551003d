"""An annotation file from elsewhere that names what is not below the folder of its images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.photos import jpeg
from helpers.remotes import uploaded

import fastfeed as ff


def annotations(*names: str) -> dict[str, Any]:
    return {
        "images": [
            {"id": k, "file_name": name, "width": 56, "height": 40} for k, name in enumerate(names)
        ],
        "annotations": [
            {"id": k, "image_id": k, "category_id": 1, "bbox": [1, 1, 9, 9]}
            for k in range(len(names))
        ],
        "categories": [{"id": 1, "name": "cat"}],
    }


@pytest.mark.parametrize(
    "name",
    [
        "/etc/hostname",
        "../secret.jpg",
        "link/secret.jpg",
        "http://127.0.0.1:9/a.jpg",
        "file:///etc/hostname",
    ],
)
def test_file_names_lead_nowhere_else(tmp_path: Path, name: str):
    images = tmp_path / "images"
    images.mkdir()
    (images / "a.jpg").write_bytes(jpeg(0))
    (tmp_path / "secret.jpg").write_bytes(jpeg(1))
    (images / "link").symlink_to(tmp_path)
    (tmp_path / "coco.json").write_text(json.dumps(annotations("a.jpg", name)))
    source = ff.Objects.coco(images, tmp_path / "coco.json")
    good, bad = source.read([0, 1])
    assert good == jpeg(0)
    assert isinstance(bad, ff.Failure) and bad.reason in ("not_allowed", "not_found")
    if name == "link/secret.jpg":
        assert "allow_path" in bad.detail
        assert ff.Objects.coco(images, tmp_path / "coco.json", allow_path=tmp_path).read([1]) == [
            jpeg(1)
        ]
    with ff.Feed(source, [ff.Resize((16, 16))], batch=2, on_bad="mask", shuffle=False) as feed:
        assert next(iter(feed.batches())).weights.tolist() == [1, 0]


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize(
    "more", [{"info": " " * 9_000}, {"info": [[]] * 300}], ids=["large", "many objects"]
)
def test_a_file_that_takes_more_than_its_memory(
    tmp_path: Path, remote: bool, more: dict[str, Any]
) -> None:
    content = annotations("a.jpg")
    content["annotations"][0]["segmentation"] = [[0.5] * 1000]  # is dropped before it is parsed
    for name, extra in (("coco", {}), ("large", more)):
        (tmp_path / f"{name}.json").write_text(json.dumps(content | extra))
    root = uploaded(tmp_path) if remote else str(tmp_path)
    assert len(ff.Objects.coco(tmp_path, f"{root}/coco.json", memory="9kB")) == 1
    with pytest.raises(
        ff.errors.SourceError, match=r"bytes of memory, the limit is 9,000; .* pass memory='1GB'"
    ):
        ff.Objects.coco(tmp_path, f"{root}/large.json", memory="9kB")
