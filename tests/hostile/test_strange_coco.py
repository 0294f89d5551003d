"""An annotation file from elsewhere that names what is not below the folder of its images."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.photos import jpeg

import fastfeed as ff


@pytest.mark.parametrize(
    "name", ["/etc/hostname", "../secret.jpg", "link/secret.jpg", "http://127.0.0.1:9/a.jpg", "file:///etc/hostname"]
)
def test_file_names_lead_nowhere_else(tmp_path: Path, name: str):
    images = tmp_path / "images"
    images.mkdir()
    (images / "a.jpg").write_bytes(jpeg(0))
    (tmp_path / "secret.jpg").write_bytes(jpeg(1))
    (images / "link").symlink_to(tmp_path)
    content = {
        "images": [{"id": k, "file_name": text, "width": 56, "height": 40} for k, text in enumerate(("a.jpg", name))],
        "annotations": [{"id": k, "image_id": k, "category_id": 1, "bbox": [1, 1, 9, 9]} for k in range(2)],
        "categories": [{"id": 1, "name": "cat"}],
    }
    (tmp_path / "coco.json").write_text(json.dumps(content))
    source = ff.Objects.coco(images, tmp_path / "coco.json")
    good, bad = source.read([0, 1])
    assert good == jpeg(0)
    assert isinstance(bad, ff.Failure) and bad.reason in ("not_allowed", "not_found")
    if name == "link/secret.jpg":
        assert "allow_path" in bad.detail
        assert ff.Objects.coco(images, tmp_path / "coco.json", allow_path=tmp_path).read([1]) == [jpeg(1)]
    with ff.Feed(source, [ff.Resize((16, 16))], batch=2, on_bad="mask", shuffle=False) as feed:
        assert next(iter(feed.batches())).weights.tolist() == [1, 0]
