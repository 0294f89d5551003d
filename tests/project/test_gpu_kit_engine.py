"""The kit's step on the JPEG engine, over a stand-in for nvJPEG: it sees right pixels, and wrong
ones.
"""

import time

import pytest
from helpers.cuda_on_cpu import needs_compiler
from helpers.gpu_kits import kit
from helpers.jpegs import NO_KERNEL, native
from helpers.late_nvjpeg import install
from helpers.side_by_side import encoded, picture

__all__ = ["kit"]
pytestmark = [
    pytest.mark.slow,
    needs_compiler,
    pytest.mark.skipif(native is None, reason=NO_KERNEL),
]


@pytest.fixture
def context(kit, tmp_path):
    """Of a machine with a GPU, with four photographs and a minute."""
    folder = tmp_path / "photos" / "imagenet"
    folder.mkdir(parents=True)
    for k in range(4):
        (folder / f"{k}.jpg").write_bytes(encoded(picture(150 + k, 200, k), "JPEG", quality=90))
    made = kit("step").Context("engine", False, 60.0, tmp_path, tmp_path / "engine.json")
    made.until = time.perf_counter() + 60
    return made


def pixels(kit, context):
    setting = context.setting()
    return kit("steps.engine")._pixels(context, setting, next(iter(setting.sets.values())))


def test_right_pixels(kit, context, monkeypatch):
    fake, _ = install(monkeypatch)
    assert pixels(kit, context) == []
    found = context.figures["levels against cpu"]
    assert len(found) == 10 and all(row["levels"] <= 1.01 for row in found.values())
    assert fake["decoded"] >= 10 * 4


def test_wrong_pixels(kit, context, monkeypatch):
    fake, _ = install(monkeypatch)
    fake["wrong"] = 3
    wrong = pixels(kit, context)
    assert len(wrong) == 10 and "photographs, Resize: " in wrong[0] and "on average" in wrong[0]


def test_an_engine_that_decodes_nothing(kit, context, monkeypatch):
    fake, _ = install(monkeypatch)
    fake["taller"] = 8
    wrong = pixels(kit, context)
    assert (
        len(wrong) == 10 and "photographs, Resize: the engine decoded none of 4 files" in wrong[0]
    )


def test_the_engine_counts_for_the_marks(kit):
    judged = kit("marks").judged
    rows = {
        "16 threads": {"images_per_second": 26_000.0},
        "16 threads, 3 lanes": {"error": "no room"},
    }
    assert "met: 26,000" in judged({"engine": {"figures": {"imagenet": rows}}}).values()
    nets = {
        "resnet50, kernel": {"4": {"real / synthetic": 0.4}, "16": {"real / synthetic": 0.99}},
        "resnet50, nvjpeg": {"4": {"real / synthetic": 0.97}, "2": {"real / synthetic": 0.985}},
        "resnet50, GPU": {"error": "no room"},
    }
    assert "met: 0.985 with 2 threads" in judged({"train-torch-gpu": {"figures": nets}}).values()
