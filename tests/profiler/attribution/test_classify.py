"""What names of ranges and frames say of the host: the words of frameworks, and words that only
look alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from helpers.profiler import kineto_files as make
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfeed.errors import TraceError
from fastfeed.profiler.attribution import classify
from fastfeed.profiler.attribution.classify import Activity, call_activities, range_activities
from fastfeed.profiler.model.substrings import with_any
from fastfeed.profiler.model.trace import Calls, Origin, RangeKind, Ranges, Trace, table
from fastfeed.profiler.readers import read

INPUT = [
    "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
    "torch/utils/data/dataloader.py(762): _next_data",
    "[pl][profile][_TrainingEpochLoop].train_dataloader_next",
    "[pl][profile][_EvaluationLoop].val_next",
    "batch-generator",
    "data_loading",
    "next_batch",
    "wait_for_batch",
    "train.py(116): get_batch",
    "torch_xla/distributed/parallel_loader.py(42): next",
]
CHECKPOINT = [
    "torch/serialization.py(850): save",
    "save_checkpoint",
    "evaluate",
    "eval #3",
    "checkpoint",
    "save_model",
]
COMPILE = [
    "torch/_dynamo/convert_frame.py(1064): __call__",
    "torch/_inductor/compile_fx.py(700): compile_fx_inner",
    "torch/_inductor/scheduler.py(2100): codegen",
    "torch/_inductor/runtime/triton_heuristics.py(900): autotune_to_one_config",
    "entire_frame_compile (dynamo_timed)",
    "triton/compiler/compiler.py(226): compile",
    "XlaCompile:#module=jit_step#",
]
RUNS = [  # the compiled code, and helpers of what looks like compiling, saving or loading
    "torch/_dynamo/eval_frame.py(1039): _fn",
    "torch/_inductor/utils.py(3013): run",
    "torch/_inductor/output_code.py(590): __call__",
    "torch/_inductor/standalone_compile.py(62): __call__",
    "torch/_inductor/compile_fx.py(1767): run",
    "torch/_inductor/cudagraph_trees.py(2008): run",
    "torch/_inductor/runtime/triton_heuristics.py(1283): run",
    "triton/compiler/compiler.py(487): launch_metadata",
    "triton/runtime/autotuner.py(180): run",
    "flashinfer/autotuner.py(400): choose_one",
    "transformers/utils/import_utils.py(793): is_torchdynamo_compiling",
    "TorchDynamo Cache Lookup",
    "Torch-Compiled Region: 0/0",
    "CheckpointFunction",
    "CheckpointFunctionBackward",
    "evaluate.py(30): main",
    "eval_model.py(10): <module>",
    "save_everything.py(1): main",
    "dataloader_benchmark.py(12): <module>",
    "batch",
    "input",
]


WAITS = ["jax/_src/api.py(3165): try_to_block", "PyArray.block_until_ready"]


def activities(names: list[str], folder: Path) -> dict[str, Activity]:
    """What each range or Python frame of a trace says."""
    ranges = [
        make.event(
            "python_function" if ".py(" in name else "user_annotation", name, 100 + 10 * at, 5
        )
        for at, name in enumerate(names)
    ]
    trace = read(
        make.write(folder / "trace.json", [make.launch(1, 80), make.kernel(1, 90, 2), *ranges])
    )
    classified = [Activity(int(code)) for code in range_activities(trace)]
    return dict(zip(map(trace.name, trace.ranges.name.tolist()), classified, strict=True))


@pytest.mark.parametrize(
    ("names", "activity"),
    [
        (INPUT, Activity.INPUT),
        (CHECKPOINT, Activity.CHECKPOINT),
        (COMPILE, Activity.COMPILE),
        (WAITS, Activity.SYNC),
    ],
)
def test_words_of_frameworks_are_known(
    names: list[str], activity: Activity, tmp_path: Path
) -> None:
    assert activities(names, tmp_path) == dict.fromkeys(names, activity)


def test_what_only_looks_like_it_is_framework_or_python(tmp_path: Path) -> None:
    classified = activities(RUNS, tmp_path)
    assert set(classified) == set(RUNS)
    plain = (Activity.FRAMEWORK, Activity.PYTHON, Activity.NOTHING)
    assert {name: activity for name, activity in classified.items() if activity not in plain} == {}


def assert_as_one_by_one(names: Iterable[str]) -> None:
    """Classified all at once, each name is what all patterns in turn say of it."""
    texts = tuple(dict.fromkeys(names))
    name, kind = np.divmod(np.arange(len(texts) * len(RangeKind)), len(RangeKind))
    trace = Trace(
        Origin("made", "chrome"),
        texts,
        ranges=table(Ranges, start=name, end=name, name=name, kind=kind),
        calls=table(Calls, start=np.arange(len(texts)), end=0, name=np.arange(len(texts))),
    )
    expected = [
        classify._classify_range(text, RangeKind(kind), None)
        for text in texts
        for kind in RangeKind
    ]
    assert range_activities(trace).tolist() == expected
    assert call_activities(trace).tolist() == [classify._classify_call(text) for text in texts]


@pytest.mark.slow
def test_names_of_real_traces_are_classified_as_one_by_one(data: Path):
    names: set[str] = set(INPUT + CHECKPOINT + COMPILE + RUNS + WAITS)
    for path in (data / "traces").rglob("*"):
        if (
            path.is_file()
            and path.parent != data / "traces"
            and path.suffix not in (".nsys-rep", ".qdrep")
        ):
            try:
                names.update(read(path).names)
            except TraceError:
                continue
    assert len(names) > 5_000
    assert_as_one_by_one(names)


PATTERNS = [*[one for one, _ in (*classify._RANGES, *classify._CALLS)], classify._PROFILER_STEP]


@pytest.mark.parametrize("pattern", PATTERNS, ids=[one.pattern[:20] for one in PATTERNS])
def test_whatever_matches_a_pattern_contains_a_word_of_it(pattern: re.Pattern[str]):
    """So that no pattern is passed over, whatever is added to it."""

    @settings(max_examples=20)
    @given(st.lists(st.from_regex(pattern), min_size=10, max_size=20))
    def each(names: list[str]) -> None:
        assert_as_one_by_one(names)

    each()


@given(
    st.lists(
        st.text(st.sampled_from("aiskAISK\u0130\u0131\u017f\u212a\n\u00df\u03a3."), max_size=8),
        max_size=8,
    )
)
def test_names_that_contain_a_part_whatever_their_case(names: list[str]):
    parts = ("is", "ask", "k.a")
    expected = [
        any(re.search(re.escape(part), name, re.IGNORECASE) for part in parts) for name in names
    ]
    assert with_any(names, parts).tolist() == expected
