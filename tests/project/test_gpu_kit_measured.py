"""What steps of `make gpu-kit` measure first, how sets and nets share the time, how an interrupted
step resumes.
"""

# ruff: noqa: F811  fixtures
import importlib
import json
import os
import sys
import time
import types

import pytest
from helpers.gpu_kits import ROOT, kit  # noqa: F401  fixture
from helpers.needs import needs


@pytest.fixture
def check(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return lambda name: importlib.import_module(f"benchmarks.gpu_check.{name}")


@pytest.fixture
def context(kit, tmp_path):
    """Of the step `hybrid`, with both sets and a minute."""
    for name in ("imagenet", "stock"):
        (tmp_path / "photos" / name).mkdir(parents=True)
    made = kit("step").Context("hybrid", False, 60.0, tmp_path, tmp_path / "hybrid.json")
    made.until = time.perf_counter() + 60
    return made


def order(check, monkeypatch, tmp_path, learned):
    """Names of those who were measured one by one, with loads that this machine was told before
    each hybrid.
    """
    rates, setting = check("parts.rates"), check("parts.setting")
    monkeypatch.setenv("FASTFEED_CACHE", str(tmp_path))
    told = setting.Setting(
        True, False, 16, tmp_path, None, time.perf_counter() + 1e6, {"imagenet": tmp_path}, learned
    )
    seen = []

    class Fake:
        def __init__(self, *of):
            self.speed = 1000.0
            decode = of[2] if len(of) == 4 else None
            if getattr(decode, "cpu_share", 0) is None:
                self.share = types.SimpleNamespace(value=0.3)
                seen.append(rates.read_measured(rates.measurements_file())["hw_load"])
            if getattr(decode, "hw_load", None) == 0.9:
                self.speed = 2000.0

        def warm(self, seconds):
            pass

        def run(self, seconds):
            return rates.Rate(self.speed, 0.1)

        def close(self):
            pass

    monkeypatch.setattr(rates, "Ours", Fake)
    monkeypatch.setattr(rates, "Rival", Fake)
    monkeypatch.setattr(setting.Setting, "say", lambda *_: None)
    return list(rates._Set(told, "imagenet", tmp_path).figures()["singly"]), seen


@needs("nvidia")
def test_hybrid_comes_right_after_the_kernel_with_the_load_that_is_known(
    check, monkeypatch, tmp_path
):
    names, loads = order(check, monkeypatch, tmp_path, {"hw_load": 0.25})
    assert names[:4] == [
        "cpu kernel",
        "hybrid, dali",
        "hybrid, dali, hw load 1",
        "DALI, 16 threads, hw load 0.25",
    ]
    assert "dali, hw load 0.25" in names and set(loads) == {0.25}


@needs("nvidia")
def test_a_load_that_is_not_known_is_found_before_hybrid(check, monkeypatch, tmp_path):
    names, loads = order(check, monkeypatch, tmp_path, {})
    assert names[: names.index("hybrid, dali")] == [
        "cpu kernel",
        *(f"dali, hw load {load:g}" for load in (0, 0.65, 0.9, 1)),
    ]
    assert set(loads) == {0.9}, "the fastest"


def cell(rate):
    return {"images_per_second": rate, "cpu_ms": 0.1}


@needs("nvidia")
def test_the_step_hybrid_takes_its_load_from_the_step_before_and_one_set_first(
    kit, context, monkeypatch
):
    step, seen = kit("steps.hybrid"), []
    figures = {
        "fastfeed": {
            "16 threads, load 0.12": cell(9.0),
            "8 threads, load 0.9": cell(8.0),
            "x": {"error": "y"},
        }
    }
    (context.out.parent / "loads.json").write_text(json.dumps({"figures": {"imagenet": figures}}))

    def run(setting):
        (name,) = setting.sets
        seen.append((name, setting.learned.get("hw_load"), round(setting.left())))
        return {name: {"singly": {"cpu kernel": cell(1.0), "hybrid, dali": cell(2.0)}}}

    monkeypatch.setattr(step.rates, "run", run)
    step.run(context)
    assert [row[:2] for row in seen] == [("imagenet", 0.12), ("stock", None)]
    assert seen[0][2] == 39 and seen[1][2] >= 59, "what the first does not need is the second's"


@needs("nvidia")
def test_without_a_rate_of_hybrid_the_step_has_no_result_and_is_tried_again(
    kit, check, context, monkeypatch
):
    step, sets = kit("steps.hybrid"), []

    def run(setting):
        sets.append(list(setting.sets))
        return {"imagenet": {"singly": {"cpu kernel": cell(1.0)}}}

    monkeypatch.setattr(step.rates, "run", run)
    with pytest.raises(
        check("parts.setting").NotRun,
        match=r"hybrid was not measured on imagenet in 60 s: run the same",
    ):
        step.run(context)
    assert sets == [["imagenet"]]


def test_the_mark_of_hybrid_is_met_by_one_that_ran_alone_where_no_final_did(kit):
    figures = {
        "imagenet": {
            "finals": {},
            "singly": {"hybrid, dali": cell(26_000.0), "cpu kernel": cell(30_000.0)},
        }
    }
    said = kit("marks").judged({"hybrid": {"figures": figures}})
    assert said["hybrid >= 25,000 ImageNet-size images/s"] == "met: 26,000"


@needs("nvidia")
def test_loads_shares_its_time_between_the_sets_and_asks_each_decoder_at_each_load(
    kit, context, monkeypatch
):
    """Three seconds for a cell of 150: not all fit, and those of the large photographs are not left
    out.
    """
    step, clock = kit("steps.loads"), [0.0]
    monkeypatch.setattr(kit("step"), "time", types.SimpleNamespace(perf_counter=lambda: clock[0]))
    context.until, context.seconds, cells = 150.0, 150.0, []
    monkeypatch.setattr(step, "threads_here", lambda *_: [4, 8, 16])
    monkeypatch.setattr(
        type(context),
        "setting",
        lambda self: types.SimpleNamespace(sets=dict.fromkeys(("imagenet", "stock"))),
    )

    def measured(context, found, name, who, key, make):
        if not context.skips(f"{name}, {who}, {key}", step._CELL):
            clock[0] += 3.0
            cells.append((name, who, key))
            found[who][key] = cell(1000.0 if "0.25" in key else 500.0)
            context.note(name, found)

    monkeypatch.setattr(step, "_cell", measured)
    step.run(context)
    assert clock[0] <= 150 and len(cells) >= 46
    for who in ("fastfeed", "DALI"):
        ran = [key for name, one, key in cells if (name, one) == ("imagenet", who)]
        assert {float(key.split()[-1]) for key in ran if key.startswith("16")} == set(step.LOADS)
        later = [key for key in ran if key.startswith("8")]
        assert not later or later[0] == "8 threads, load 0.25", (
            "other numbers of threads begin where the rate was best"
        )
        assert [key for name, one, key in cells if (name, one) == ("stock", who)][:2] == [
            "16 threads, load 0.4",
            "16 threads, load 0",
        ]
    assert context.figures["best load, imagenet"] == 0.25
    assert any(what.startswith("imagenet") for what in context.left_out)


def test_parts_of_the_time_give_back_what_they_do_not_need(kit, tmp_path, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(kit("step"), "time", types.SimpleNamespace(perf_counter=lambda: clock[0]))
    context = kit("step").Context(
        "loads", False, 90.0, tmp_path, tmp_path / "loads.json", until=190.0
    )
    with context.part(1 / 3):
        assert context.left() == 30.0 and context.skips("what takes longer", 31)
        clock[0] += 10
        with context.part(0.5):
            assert context.left() == 10.0
    assert context.left() == 80.0


RESUMING = """
import json, sys
from pathlib import Path
out = Path(sys.argv[sys.argv.index("--out") + 1])
before = out.with_suffix(".interrupted.json")
found = json.loads(before.read_text())["figures"] if before.exists() else {}
out.write_text(json.dumps({"step": sys.argv[1], "state": "ok", "figures": {"before": found}}))
"""


def test_a_step_whose_call_was_killed_gets_the_rows_that_it_had(kit, tmp_path, monkeypatch):
    process, result = kit("process"), tmp_path / "train-keras-jax.json"
    (tmp_path / "resuming.py").write_text(RESUMING)
    monkeypatch.setattr(process, "STEP", "resuming")
    environ = dict(os.environ, PYTHONPATH=str(tmp_path))
    run = lambda: process.run("train-keras-jax", [], environ, result, 60, tmp_path / "log")  # noqa: E731
    rows = {"resnet50": {"synthetic": {"images_per_second": 1.0}}}
    result.write_text(json.dumps({"state": "running", "figures": rows}))
    assert run()["figures"]["before"] == rows
    assert run()["figures"]["before"] == {}, "that step has ended"
    before = tmp_path / "train-keras-jax.interrupted.json"
    before.write_text(json.dumps({"figures": rows}))
    # killed again, before its first row
    result.write_text(json.dumps({"state": "running", "figures": {}}))
    assert run()["figures"]["before"] == rows
    context = kit("step").Context("train-keras-jax", True, 1.0, tmp_path, result)
    before.write_text(json.dumps({"figures": rows}))
    assert (
        context.interrupted("resnet50") == rows["resnet50"] and context.interrupted("vit_b") == {}
    )


class Model:
    """Takes every step at once."""

    def __init__(self):
        self.fits = []

    def fit(self, data, epochs, steps_per_epoch, callbacks, verbose):
        self.fits.append((type(data).__name__, epochs, steps_per_epoch))
        for step in range(epochs * steps_per_epoch):
            callbacks[0].on_train_batch_end(step)


@pytest.mark.slow
@needs("keras", "jax")
def test_keras_has_the_same_epochs_on_both_sides_and_keeps_rows_as_they_come(
    kit, context, monkeypatch, tmp_path
):
    from helpers.photos import folder

    step, model = kit("steps.train_keras"), Model()
    folder(tmp_path / "made", {"a": 8})
    (tmp_path / "photos" / "imagenet").rmdir()
    (tmp_path / "made" / "a").rename(tmp_path / "photos" / "imagenet")
    monkeypatch.setattr(step, "keras_model", lambda *_: model)
    monkeypatch.setattr(step, "threads_here", lambda *_: [2, 4])
    monkeypatch.setattr(step, "_still", lambda *_: iter(()))
    context.stand_in, context.name = True, "train-keras-jax"
    notes, note = [], type(context).note
    monkeypatch.setattr(
        type(context),
        "note",
        lambda self, name, value: (notes.append((name, list(value))), note(self, name, value)),
    )
    step.run(context)
    assert {fit[1:] for fit in model.fits} == {(1, 12)} and len(model.fits) == 6
    rows = [value for name, value in notes if name == "resnet50"]
    assert rows == [
        ["synthetic"],
        ["synthetic", "4 threads"],
        ["synthetic", "4 threads", "2 threads"],
    ]
    context.out.with_suffix(".interrupted.json").write_text(
        json.dumps({"figures": {"resnet50": context.figures["resnet50"]}})
    )
    model.fits.clear()
    step.run(context)
    assert len(model.fits) == 3, "ViT-B alone: the rows of ResNet-50 were there"


def test_a_count_of_gpus_that_fails_is_the_steps_failure(kit, check, context, monkeypatch):
    step, scaling = kit("steps.gpus"), check("parts.scaling")

    def count(folder, ranks, stand_in, seconds):
        if ranks == 8:
            raise RuntimeError("rank 3 of 8 ended with 1: no room")
        return {"synthetic": 100.0, "real": 99.0}

    monkeypatch.setattr(scaling, "_count", count)
    monkeypatch.setattr(scaling, "counts_here", lambda: [1, 2, 4, 8])
    with pytest.raises(
        check("parts.setting").Wrong, match=r"8 ranks: rank 3 of 8 ended with 1: no room"
    ) as error:
        step.run(context)
    assert error.value.figures["by count"]["4"]["real efficiency"] == 0.25


@needs("nvidia")
def test_one_count_that_hangs_leaves_time_for_the_others(check, monkeypatch, tmp_path):
    scaling, given = check("parts.scaling"), []
    monkeypatch.setattr(
        scaling, "_count", lambda folder, ranks, stand_in, seconds: given.append(seconds) or {}
    )
    scaling.measured(tmp_path, (1, 2, 8), True, 100.0)
    assert [round(seconds) for seconds in given] == [60, 60, 100]


@pytest.mark.slow
def test_a_wheel_without_its_kernel_is_not_packed_unless_asked(kit, monkeypatch, tmp_path, capsys):
    pack, packed = kit("kit.pack"), []
    monkeypatch.setattr(pack, "built", lambda *_: None)
    monkeypatch.setattr(
        pack, "packed", lambda out, files, *_: packed.append(files) or {"parts": {}}
    )
    monkeypatch.setattr(pack.contents, "download", lambda *_: [])
    out = ["--out", str(tmp_path / "kit"), "--python", sys.executable]
    with pytest.raises(
        SystemExit, match=r"No kit was packed\. Install Python 3\.12 or newer"
    ) as ended:
        pack.main(out)
    assert ended.value.code != 0 and not packed
    assert "NO WHEEL WITH THE KERNEL TRAVELS" in capsys.readouterr().out
    pack.main([*out, "--without-kernel"])
    assert [path.name for path in packed[0]] == ["fastfeed-source.tar.gz"]
    said = " ".join(capsys.readouterr().out.split())
    assert "Pillow decodes, and no rate of the native extension" in said
