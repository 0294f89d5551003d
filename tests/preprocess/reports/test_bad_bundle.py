"""Bundles of bad images: what can be decoded or the first bytes, bounded, and nothing trusted."""

from __future__ import annotations

import io
import json
import zipfile
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import ClassVar

import pytest
from helpers.photos import jpeg
from helpers.small_jobs import InlineEngine, finished_job
from PIL import Image, ImageFile

from fastfeed.decode.base import DecodeFailure
from fastfeed.preprocess import open_input
from fastfeed.preprocess.model.bad_filter import BadImage
from fastfeed.preprocess.model.record import BadSample
from fastfeed.preprocess.planning.bad_images import bad_images
from fastfeed.preprocess.reports import bad_bundle
from fastfeed.preprocess.reports.bad_bundle import (
    BadPreview,
    PreviewTask,
    hex_lines,
    page,
    spread,
    write_bundle,
)


def read(path: Path) -> tuple[str, list[dict[str, object]]]:
    with zipfile.ZipFile(path) as bundle:
        assert bundle.namelist() == ["index.html", "bad.jsonl"]
        lines = bundle.read("bad.jsonl").decode().splitlines()
        return bundle.read("index.html").decode(), [json.loads(line) for line in lines]


def test_a_bundle(tmp_path: Path) -> None:
    job = finished_job(tmp_path)
    input = open_input(str(tmp_path / "source"))
    for name in ("a.zip", "b.zip"):
        assert write_bundle(tmp_path / name, input, bad_images(job), InlineEngine()) == 3
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    text, rows = read(tmp_path / "a.zip")
    by_reason = {row["reason"]: row for row in rows}
    assert by_reason["truncated"]["preview"] and by_reason["truncated"]["format"] == "JPEG"
    assert (by_reason["truncated"]["height"], by_reason["truncated"]["width"]) == (40, 56)
    assert bytes.fromhex(str(by_reason["not_image"]["first_bytes"])) == b"<html>404</html>"
    assert by_reason["not_image"]["name"] == "cats/0000_2.jpg"
    assert {row["class"] for row in rows} == {"cats"}
    assert text.count("data:image/jpeg;base64,") == 1 and "&lt;html&gt;40" in text
    assert not ImageFile.LOAD_TRUNCATED_IMAGES, "no other decoder lets such files pass"


def preview(tmp_path: Path, content: bytes, reason: str = "corrupt") -> BadPreview:
    (tmp_path / "photos").mkdir(exist_ok=True)
    (tmp_path / "photos" / "x.jpg").write_bytes(content)
    task = PreviewTask(open_input(str(tmp_path / "photos")), [0], [reason], 32)
    (outcome,) = InlineEngine().run(task, [0])
    if outcome.error is not None:
        raise outcome.error
    return outcome.summary["previews"][0]


def test_the_part_that_is_there_is_shown(tmp_path: Path) -> None:
    whole = jpeg(1, (64, 64))
    half = preview(tmp_path, whole[: len(whole) // 2])
    image = Image.open(io.BytesIO(half.jpeg))
    assert image.size == (32, 32) and half.bytes == len(whole) // 2
    top = image.crop((0, 0, 32, 8))
    bottom = image.crop((0, 24, 32, 32))
    assert max(high - low for low, high in top.getextrema()) > 100
    assert max(high - low for low, high in bottom.getextrema()) < 20, "gray"


def test_what_is_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = jpeg(1, (64, 64))
    crashed = preview(tmp_path, whole, "worker_crash")
    assert crashed.note == "not decoded again, because of worker_crash"
    assert crashed.format == "JPEG" and not crashed.jpeg and len(crashed.first) == 64
    monkeypatch.setattr(bad_bundle, "_MAX_PIXELS", 4095)
    many = preview(tmp_path, whole)
    assert (many.note, many.height) == ("too many pixels for a preview", 64)
    monkeypatch.setattr(bad_bundle, "_MAX_BYTES", len(whole) - 1)
    large = preview(tmp_path, whole)
    assert (large.note, large.first) == ("too large a file for a preview", b"")
    assert preview(tmp_path, b"%PDF-1.7").format == ""
    noise = preview(tmp_path, b"\x89PNG\r\n\x1a\n" + bytes(40))
    assert noise.format == "PNG" and noise.note and not noise.jpeg


def test_an_image_that_kills_its_decoder_is_noted(tmp_path: Path) -> None:
    class Context:
        begun: ClassVar[list[int]] = []

        def begin(self, sample: int) -> None:
            self.begun.append(sample)

        def room(self, need: int) -> AbstractContextManager[None]:
            return nullcontext()

    for k in range(3):
        (tmp_path / f"{k}.jpg").write_bytes(jpeg(k))
    task = PreviewTask(open_input(str(tmp_path), label=""), [0, 1, 2], ["corrupt"] * 3, 32)
    summary = task.run(0, Context(), {1: DecodeFailure("worker_crash", "signal 11")})
    assert [bool(preview.jpeg) for preview in summary["previews"]] == [True, False, True]
    assert summary["previews"][1].note == "worker_crash: signal 11"
    task.alone(1, Context())
    assert Context.begun == [0, 2, -1, 1]


def test_some_of_each_reason() -> None:
    def images(reason: str, count: int) -> list[BadImage]:
        return [BadImage(BadSample(k, f"{k}", reason), 0, f"{k}", "") for k in range(count)]

    all_images = images("empty", 1000) + images("corrupt", 2) + images("bomb", 50)
    chosen = spread(all_images, 60)
    assert Counter(image.sample.reason for image in chosen) == {
        "empty": 29,
        "corrupt": 2,
        "bomb": 29,
    }
    assert [i.sample.id for i in chosen if i.sample.reason == "empty"][:3] == [0, 34, 68]
    assert len(spread(all_images, 2)) == 2 and spread(all_images[:5], 60) == all_images[:5]


def test_strange_names_and_bytes_do_no_harm() -> None:
    sample = BadSample(0, "u", "corrupt", "<script>\x1b")
    image = BadImage(sample, 0, "<script>alert(1)</script>\x1b[31m", "<b>")
    text = page([(image, BadPreview(9, b"<script>\x1b\x00", "JPEG", note="<i>"))], 1, "<u>&")
    for part in ("<script", "<b>", "<i>", "<u>", "\x1b", "\x00"):
        assert part not in text
    assert "73 63 72 69 70 74 3e  &lt;script&gt;" in text
    assert hex_lines(b"\x00A") == f"{'00 41':<24} .A"
