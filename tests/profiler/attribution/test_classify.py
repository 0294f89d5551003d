"""Activities by the names of ranges and frames, with names that only look alike."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.profiler import kineto_files as make

from fastfeed.profiler.attribution.classify import Activity, range_activities
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
